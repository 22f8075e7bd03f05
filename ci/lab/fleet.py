# SPDX-License-Identifier: GPL-2.0
"""Makes the disk of several machines, and boots them: lab.machines. fleet.sh, which calls this, describes it."""

import subprocess
import sys

from . import STDERR, TOP, boot, build, built, results, script, steps

PLAN = steps.Plan([("kernel", 1200), ("packages", 1800), ("multipath", 600)], [], [])
# The sizes of the examples are those of real machines, and so are the times.
INSTALL = """
apt-get install srp-storage python3
systemctl disable etcd multipathd
sed -i 's/^cache = .*/cache = 32/; s/^lun = .*/&\\nextent = 1/' /usr/share/doc/srp-storage/examples/wss.toml
sed -i 's/^ioc-guid = .*/&\\nlease = 20/' /usr/share/doc/srp-storage/examples/xorset.toml
"""


def make_disk():
    """Makes the images at steps.WORK, and returns whether that has succeeded."""
    tree = steps.WORK / "tree"
    for folder in steps.WORK, built() / "log":
        folder.mkdir(parents=True, exist_ok=True)
    base = script("node-base.sh")
    build("deb.sh")
    steps.make_testbed(0, TOP / "build/deb")
    steps.must("cp", steps.TESTS / "guest/journal.py", steps.TESTBED)
    steps.remove(tree)
    steps.must("cp", "-a", f"{base}/tree", tree)
    steps.put_testbed(tree)
    steps.must("cp", "-r", f"{steps.OURS}/fleet/.", tree)
    if not steps.Node(PLAN, name="fleet").natively(tree, "fleet-root", PLAN.ahead):
        return False
    steps.in_disk(tree, "bash", "-euc", INSTALL, stdout=STDERR)
    for name in "vmlinuz", "initrd.img":
        steps.must("cp", "-L", tree / name, steps.WORK)
    steps.make_disks(tree, [])
    steps.remove(tree)
    return True


def main():
    if not make_disk():
        return 1
    record = built() / "log/fleet.results"
    record.unlink(missing_ok=True)
    words = ["--console", "/log/fleet.log", "--results", f"/log/{record.name}", "--memory", "1024", "--smp", "1"]
    status = subprocess.run(boot.in_lab("machines", "stock", [f"{steps.WORK}:/disk"], *words)).returncode
    found = results.read(record)
    for r in found:
        results.add(r)
    for image in (*steps.WORK.glob("*.ext4"), *steps.WORK.glob("*.qcow2")):
        image.unlink()
    # Without results no guest ran.
    return 0 if status == 0 and found else 1


if __name__ == "__main__":
    sys.exit(main())
