# SPDX-License-Identifier: GPL-2.0
"""Runs the KUnit suites of both modules in a guest. kunit.sh, which calls this, describes the environment."""

import os
import re
import subprocess
import sys

from . import TOP, boot, build, built, results

IN_GUEST = """
modprobe -a dummy rdma_rxe siw || exit 1
for k in rxe:0 siw:1; do
	d=dummy${k#*:}
	ip link add $d type dummy && ip addr add 10.0.${k#*:}.1/24 dev $d && ip link set $d up || exit 1
	rdma link add ${k%:*}0 type ${k%:*} netdev $d || exit 1
done
modprobe ib_srp || exit 1
cat /sys/kernel/debug/kunit/*/results
rmmod ib_srp || exit 1
modprobe ib_vfab || exit 1
cat /sys/kernel/debug/kunit/*/results
rmmod ib_vfab"""
SUITE = re.compile(r" *# Subtest: (\S+)")
PLAN = re.compile(r" +1\.\.(\d+)")
VERDICT = re.compile(r" +((?:not )?ok) \d+ (?:- )?(\S+)(.*)")
OURS = re.compile(rb"\[ib_(srp|vfab)\]")
# What `check!` and `check_eq!` say in the log.
CHECK = re.compile(r"\.rs:\d+: ")


def verdicts(ktap):
    """Returns the results of the tests in the guest's output. Each suite announces 1..N, followed by N verdicts. A skip
    is an error: tests only skip without their device, which is present."""
    found, suite, planned = [], "", 0
    for line in ktap.splitlines():
        if m := SUITE.match(line):
            suite = m[1]
        elif m := PLAN.match(line):
            planned += int(m[1])
        elif m := VERDICT.match(line):
            good = m[1] == "ok" and "# SKIP" not in m[3]
            name = f"kunit/{suite}/{m[2]}"
            found.append(results.Result(name, "ok") if good else results.Result(name, "fail", reason=line.strip()))
    if planned > len(found):
        found.append(results.Result("kunit", "fail", reason="tests without a verdict", count=planned - len(found)))
    if not found:
        found.append(results.Result("kunit", "fail", reason="no suite ran"))
    return found


def main():
    kernel = sys.argv[1] if len(sys.argv) > 1 else "kasan"
    folder, log = built() / f"kunit-{kernel}", f"kunit-{kernel}"
    build("module.sh", kernel, folder, TOP, "modules", "SRP_KUNIT=1", "SRP_VFAB=1", "KRUSTFLAGS=-Dwarnings")
    modules = [f"{folder}/rust/{name}.ko" for name in ("ib_srp", "ib_vfab")]
    console = built() / f"log/{log}.log"
    suites = os.environ.get("SUITES")
    words = ["--log", log, "--timeout", "1500", "--kunit"]
    words += ["--append", f"kunit.filter_glob={suites}"] if suites else []
    words += [word for m in modules for word in ("--module", m)]
    command = boot.command(kernel, *words, "--", "bash", "-c", IN_GUEST)

    def run():
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")

    guest = run()
    # User-Mode Linux with several CPUs rarely dies in its own code. Such a guest is shown, and booted once more.
    died = guest.returncode != 0 and console.exists() and console.read_bytes()
    if died and b"Kernel panic" in died and not OURS.search(died):
        print(guest.stdout)
        print("kunit: the guest died without our code in its trace; once more")
        guest = run()
    found = verdicts(guest.stdout)
    if guest.returncode and not results.Sum(found)["fail"]:
        found.append(results.Result("kunit", "fail", reason="the guest failed"))
    failed = [r for r in found if r.result == "fail"]
    if failed:
        log = console.read_text(errors="replace").splitlines() if console.exists() else []
        checks = [line for line in log if CHECK.search(line)]
        failed[0].reason += "".join(f"; {line.strip()}" for line in checks)
        print("".join(f"    | {line}\n" for line in guest.stdout.splitlines() + checks), end="")
    for r in found:
        results.add(r)
    print("".join(f"fail {r.name}: {r.reason}\n" for r in failed), end="")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
