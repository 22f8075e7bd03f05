# SPDX-License-Identifier: GPL-2.0
"""Performs the steps of an administrator on a node, and adds a result for each. node.sh, which calls this, describes
them."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from . import STDERR, TOP, boot, build, built, in_root, results, script

WORK = TOP / "build/node"
TESTBED = WORK / "testbed"
TESTS = TOP / "userspace-tests"
OURS = TOP / "ci/node"
# Programs in the chroot of a disk behave as if it had booted its newest kernel.
CHROOT_PATH = "PATH=/testbed/root-bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The steps that a step depends on, besides those that are always done.
ALWAYS = ("kernel", "packages")
NEEDS = {
    "paths": ["multipath"],
    "back": ["at_boot"],
    "second_day": ["back"],
    "root_on_srp": ["root_image"],
    "root_by_dracut": ["dracut_image", "off_srp"],
    "root_by_table": ["table_images"],
    "table_by_dracut": ["root_by_table"],
    "off_srp": ["at_boot", "root_on_srp"],
    "dump_image": ["root_image"],
    "dump": ["crash"],
    "crash": ["dump_image"],
    "refused": ["firmware"],
    "enrolled": ["firmware"],
    "upgrade_kernel": ["at_boot"],
    "upgrade_package": ["at_boot"],
    "remove": ["at_boot"],
    "c_driver": ["remove"],
    "built": ["from_source", "remove"],
}


class Refused(Exception):
    """A step that does not exist."""


def is_boot(step):
    return step[0].startswith("reboot")


@dataclasses.dataclass
class Plan:
    """The steps as (name, seconds), in three places."""

    # In the chroot of the disk, before it boots.
    ahead: list
    # In the chroot of a copy of the disk, instead of installing the packages.
    instead: list
    # The steps in the guest. A name `reboot...` ends a boot and tells how to do the next one.
    booted: list

    def steps(self):
        """Returns all steps in their order."""
        return [*self.ahead, *self.instead, *(step for step in self.booted if not is_boot(step))]

    def has(self, name):
        return any(step[0] == name for step in self.steps())


def whole(long, previous):
    """Returns the plan of a set. `previous` tells whether there is an older kernel series to upgrade from."""
    ahead = [("kernel", 1200), ("packages", 1800), ("multipath", 600)]
    at_boot = [("at_boot", 300), ("reboot", 0), ("back", 300)]
    remove = [("remove", 1200), ("c_driver", 600)]
    if not long:
        return Plan(ahead, [], [("login", 300), ("paths", 600), *at_boot, ("second_day", 300), *remove])
    ahead += [("root_image", 600), ("dracut_image", 900), ("table_images", 1500), ("dump_image", 900)]
    ahead += [("firmware", 600), ("late_module", 1200)]
    upgrade = [("upgrade_kernel", 14400), ("reboot", 0), ("back", 300)] if previous else []
    booted = [
        ("login", 300), ("paths", 600), ("patched_paths", 900), *at_boot, ("second_day", 300),
        ("reboot-srp", 0), ("root_on_srp", 300), ("reboot", 0), ("off_srp", 300),
        ("reboot-dracut", 0), ("root_by_dracut", 300), ("reboot", 0), ("off_srp", 300),
        ("reboot-table", 0), ("root_by_table", 300), ("reboot-table-dracut", 0), ("table_by_dracut", 300),
        ("reboot-srp", 0), ("crash", 1200), ("reboot-dump", 0), ("dump", 600),
        ("reboot-secure", 0), ("refused", 1200), ("reboot-mok", 0), ("enrolled", 1200), ("reboot", 0),
        *upgrade, ("upgrade_package", 7200), ("reboot-alone", 0), ("tests", 3600), ("reboot", 0),
        *remove, ("built", 600),
    ]  # fmt: skip
    return Plan(ahead, [("make_dkms", 3600), ("from_source", 3600)], booted)


def short(*ahead):
    """Returns the plan on Debian 13's own kernel, without Rust, and on an arm64 machine."""
    booted = [("login", 300), ("at_boot", 300), ("reboot", 0), ("back", 300), ("remove", 1200), ("c_driver", 600)]
    return Plan([*ahead], [], booted)


def own():
    return short(("packages", 1800))


def on_arm64():
    return short(("kernel", 3600), ("packages", 7200))


def chosen(plan, names):
    """Returns the plan with these steps and the steps that they need, without boots that have no step."""
    known = dict.fromkeys(name for name, _ in plan.steps())
    wanted, new = set(), [*filter(plan.has, ALWAYS), *names]
    while new:
        name = new.pop()
        if name not in known:
            hint = " without LONG=1" if whole(True, True).has(name) else ""
            raise Refused(f"STEPS: no step '{name}'{hint}; there are {' '.join(known)}")
        if name not in wanted:
            wanted.add(name)
            new += NEEDS.get(name, [])

    def kept(steps):
        before, found = [], []
        for step in steps:
            if is_boot(step):
                before = [step]
            elif step[0] in wanted:
                found += [*before, step]
                before = []
        return found

    return Plan(kept(plan.ahead), kept(plan.instead), kept(plan.booted))


class Node:
    """Performs a plan on a kernel, and counts the completed steps."""

    def __init__(self, plan, kernel="stock", name="node"):
        self.plan, self.kernel, self.name, self.done = plan, kernel, name, 0

    def told(self, name, verdict, seconds=0, reason=""):
        self.done += 1
        results.add(results.Result(f"{self.name}/{name}", verdict, seconds, reason))
        print(f"{verdict:4} {self.name}/{name}: {reason or f'{seconds} s'}", flush=True)

    def natively(self, tree, log, steps):
        """Performs steps in the chroot of a disk that is not booted. Stops at the first failure. Returns whether all
        steps have succeeded."""
        log = built() / f"log/{log}.log"
        with open(log, "wb") as f:
            for name, seconds in steps:
                f.write(f"==> {name}\n".encode())
                f.flush()
                began = time.monotonic()
                command = ["timeout", "-k", "20", seconds, "bash", "/testbed/step", name]
                status = in_disk(tree, *command, stdout=f, check=False)
                took = int(time.monotonic() - began)
                if status:
                    self.told(name, "fail", took, f"status {status} after {took} s")
                    break
                self.told(name, "ok", took)
            else:
                return True
        print("".join(f"    | {line}\n" for line in log.read_text(errors="replace").splitlines()[-80:]), end="")
        for name, _ in self.plan.steps()[self.done :]:
            self.told(name, "fail", reason="did not run")
        return False

    def boot(self):
        """Boots the disk until its plan is done. Returns 0 on success."""
        record = built() / "log/node.results"
        record.unlink(missing_ok=True)
        words = ["--console", "/log/node.log", "--results", f"/log/{record.name}", "--memory", "4096", "--plan"]
        words.append(",".join(f"{name}:{seconds}" for name, seconds in self.plan.booted))
        status = subprocess.run(boot.in_lab("node", self.kernel, [f"{WORK}:/disk"], *words)).returncode
        found = results.read(record)
        for r in found:
            results.add(r)
        # Without results the guest did not run.
        return 0 if status == 0 and found else 1


def must(*words, **options):
    """Runs a command, and ends this program if it fails."""
    status = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, **options).returncode
    if status:
        sys.exit(f"node.sh: status {status}: {' '.join(map(str, words))}")


def remove(tree):
    must("rm", "-rf", "--one-file-system", tree)


def in_disk(tree, *words, stdout=STDERR, check=True):
    """Runs a command in the chroot of a disk with its testbed, and returns its status."""
    words = in_root(tree, [f"{TESTBED}:/testbed:ro"], "env", CHROOT_PATH, "DEBIAN_FRONTEND=noninteractive", *words)
    status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT).returncode
    if status and check:
        sys.exit(f"node.sh: status {status}: {' '.join(words)}")
    return status


def make_testbed(late, debs):
    """Makes the disk at /testbed: the tests, the pages with commands, our packages DEBS with their index, and their
    source. The storage is LATE seconds late at boot."""
    remove(TESTBED)
    for folder in "bin", "source":
        (TESTBED / folder).mkdir(parents=True)
    guest = TESTS / "guest"
    files = [*(TESTS / "node").iterdir(), guest / "lib", guest / "lib.sh", OURS / "root-bin"]
    files += [TOP / page for page in ("README.md", "docs/boot.md", "docs/from-source.md")]
    must("cp", "-r", *files, TESTBED)
    must("cp", *packages(debs), *(debs / name for name in ("Packages", "Release")), TESTBED)
    must("git", "-C", TOP, "archive", f"--output={WORK}/source.tar", "HEAD")
    must("tar", "-x", "-C", TESTBED / "source", "-f", WORK / "source.tar")
    (WORK / "source.tar").unlink()
    (TESTBED / "late").write_text(f"{late}\n")
    # The chroot has no kernel to load modules, and only the plan reboots.
    (TESTBED / "root-bin/modprobe").symlink_to("/bin/true")
    (TESTBED / "bin/reboot").symlink_to("/bin/true")


def packages(folder):
    return sorted(pathlib.Path(folder).glob("*.deb"))


def put_testbed(tree):
    """Adds the test to a base system: its disks, and the services that make the storage and run the plan."""
    must("cp", "-r", f"{OURS}/disk/.", tree)
    for folder in "testbed", "var/lib/testbed", "etc/systemd/system/multi-user.target.wants":
        (tree / folder).mkdir(parents=True, exist_ok=True)
    with open(tree / "etc/initramfs-tools/modules", "a") as f:
        f.write("virtio_pci\nvirtio_blk\next4\n")
    wants = tree / "etc/systemd/system/multi-user.target.wants"
    (wants / "testbed.service").symlink_to("/etc/systemd/system/testbed.service")


def put_archive(tree, kernels, newer, patched_multipath):
    """Makes an apt archive at /testbed, which the disk uses. On its first day the archive lacks the newest kernel."""
    pool = pathlib.Path(script("node-pool.sh", TESTBED)) / "pool"
    (dkms,) = TESTBED.glob("ib-srp-rs-dkms_*.deb")
    version = subprocess.check_output(["dpkg-deb", "-f", dkms, "Version"], text=True).strip()
    if newer:
        build("deb.sh", f"{version}+testbed", TESTBED / "newer")
    for folder in "pool", "multipath":
        (TESTBED / folder).mkdir()
    # A pattern for awk.
    newest = "\\nVersion: " + re.sub(r"[.+~]", r"[\g<0>]", kernels[0][2]) if len(kernels) > 1 else ""
    base = pathlib.Path(script("node-base.sh")) / "tree"
    for day, but in ("day1", newest), ("day2", ""):
        binds = [f"{TESTBED}:/testbed", f"{pool}:/testbed/pool:ro", f"{OURS}:/node:ro"]
        must(*in_root(base, binds, "bash", "/node/publish", day, but))
    if patched_multipath:
        must("cp", *packages(script("multipath.sh")), TESTBED / "multipath")
    for package in packages(pool):
        link(package, TESTBED / "pool" / package.name)
    sources = tree / "etc/apt/sources.list"
    lines = [line for line in sources.read_text().splitlines() if not line.startswith("deb")]
    lines += [f"deb [trusted=yes] file:/testbed/day1 {suite} main" for suite in ("trixie", "trixie-backports")]
    sources.write_text("".join(f"{line}\n" for line in lines))


def link(file, to):
    """Links a file, or copies it to another file system."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copy2(file, to)


def upgrade(tree, release):
    """Upgrades a disk from the second day's archive, as an emulated CPU would take an hour. Keeps the tree that the
    module was built with."""
    sources = tree / "etc/apt/sources.list"
    sources.write_text(sources.read_text().replace("/day1", "/day2"))
    with open(built() / "log/node-upgraded.log", "wb") as f:
        in_disk(tree, "bash", "-euc", "apt update; apt full-upgrade", stdout=f)
    (TESTBED / "kdir").mkdir()
    must("cp", "-a", tree / "var/cache/ib-srp-rs" / release, TESTBED / "kdir")


def make_disks(tree, steps):
    """Makes the images that the guest boots from, with its plan."""
    # A boot before the first step only tells how to boot.
    steps = steps[bool(steps) and is_boot(steps[0]) :]
    (tree / "var/lib/testbed/plan").write_text("".join(f"{name} {seconds}\n" for name, seconds in steps))
    for image in WORK.glob("*.ext4"):
        image.unlink()
    for options in (
        ["-d", "/disk/tree", "/disk/node.ext4", "16G"],
        ["-O", "^has_journal", "-m", "0", "-d", "/disk/testbed", "/disk/testbed.ext4", "6G"],
    ):
        must(*in_root(script("root.sh"), [f"{WORK}:/disk"], "mke2fs", "-q", "-t", "ext4", *options))


def main():
    stable, release, _ = script("series.sh", "stable").split()
    kernel = os.environ.get("KERNEL") or "stock"
    is_own, is_stock = os.environ["SERIES"] == stable, kernel == "stock"
    long = bool(os.environ.get("LONG")) and is_stock and not is_own
    # Series, release and version of the newest kernels.
    kernels = [line.split() for line in script("series.sh").splitlines()[:2]] if long else []
    plan = own() if is_own else whole(long, len(kernels) > 1) if is_stock else on_arm64()
    names = os.environ.get("STEPS", "").split()
    try:
        plan = chosen(plan, names) if names else plan
    except Refused as e:
        sys.exit(f"node.sh: {e}")
    node = Node(plan, kernel)
    tree, copy = WORK / "tree", WORK / "copy"
    for folder in WORK, built() / "log":
        folder.mkdir(parents=True, exist_ok=True)
    base = script("node-base.sh", kernel)
    build("deb.sh")
    make_testbed(120 if long else 20, TOP / "build" / ("deb" if is_stock else f"deb-{kernel}"))
    remove(tree)
    must("cp", "-a", f"{base}/tree", tree)
    put_testbed(tree)
    # The archive has the headers of the newest kernel only.
    if is_own and not (tree / "boot" / f"vmlinuz-{release}").exists():
        in_disk(tree, "bash", "-euc", "apt update; apt full-upgrade")
    if long:
        put_archive(tree, kernels, plan.has("upgrade_package"), plan.has("patched_paths"))
    if not node.natively(tree, "node-root", plan.ahead):
        return 1
    if plan.has("upgrade_kernel") or plan.instead:
        remove(copy)
        must("cp", "-a", tree, copy)
        if plan.has("upgrade_kernel"):
            upgrade(copy, kernels[0][1])
        if not node.natively(copy, "node-instead", plan.instead):
            return 1
        if plan.has("from_source"):
            must("cp", "-a", copy / "var/lib/testbed/desk/source", TESTBED / "built")
        remove(copy)
    if not plan.booted:
        remove(tree)
        return 0
    make_disks(tree, plan.booted)
    remove(tree)
    status = node.boot()
    for image in WORK.glob("*.ext4"):
        image.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
