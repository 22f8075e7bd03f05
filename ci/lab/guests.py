# SPDX-License-Identifier: GPL-2.0
"""Runs guest tests. guests.sh, which calls this, describes the selection and the environment."""

import argparse
import concurrent.futures
import dataclasses
import fcntl
import os
import queue
import re
import subprocess
import sys
import threading

from . import TOP, boot, built, headers, packing, results, script

BENCH = TOP / "userspace-tests/bench"
TOOLS = ("odd-target", "user-verbs", "srpctl", "srp-target", "srp-hostile", "wss", "xorset")
# The modules that are built with patches of ci/kernel.sh, and replace those of Debian's kernels. With rt preemption
# provokes the bugs of soft RoCE and of the target; with large pages soft RoCE copies wrong data.
RXE = {"sw/rxe": "rdma_rxe"}
PATCHED = {"rt": RXE | {"ulp/srpt": "ib_srpt"}, "arm64-16k": RXE}
IS_TEST = re.compile(r"\d\d-")
PRINTING = threading.Lock()
# The soft RDMA drivers and the target sometimes stall, break connections or crash, also with the C driver, so a failed
# test runs once more. Failures of our module do not run again: the module in a trace, wrong data, lost commands.
OURS = re.compile(
    rb"\+0x[0-9a-f]+/0x[0-9a-f]+ \[ib_srp\]|FAILED: .*(is wrong|verif|mismatch|stale|corrupt|lost or completed)"
)


class Lab:
    """The files that guests need."""

    def __init__(self, driver):
        self.driver = driver
        self.built = built()
        self.logs = self.built / "log"
        self.files = []
        # The folder of the programs, for each kernel.
        self.tools = {}

    def module(self, kernel, name, source=TOP, *variables):
        target = ("modules", *variables) if variables else ()
        return ("module.sh", kernel, self.built / name, source, *target)

    def builds(self, guests):
        """Returns the scripts that build what these guests need, with their arguments, in any order."""
        kernels = sorted({g.kernel for g in guests})
        # The programs and the disk are built for the guest's architecture.
        for kernel in {k.startswith("arm64"): k for k in kernels}.values():
            yield "tools.sh", kernel
            yield "guest.sh", kernel
        for kernel in kernels:
            yield "initramfs.sh", kernel
            if self.driver != "c":
                yield self.module(kernel, kernel)
            if any(g.kernel == kernel and g.kind == "vfab" for g in guests):
                yield self.module(kernel, f"vfab-{kernel}", TOP, "SRP_VFAB=1")
            if modules := PATCHED.get(kernel):
                patched = script("kernel.sh", "patched", kernel)
                for folder, module in modules.items():
                    yield self.module(kernel, f"{module}-{kernel}", f"{patched}/drivers/infiniband/{folder}")
            yield self.module(kernel, f"slow_qp-{kernel}", f"{TOP}/userspace-tests/slow_qp")

    def prepare(self, guests):
        """Builds what these guests need. A build of a module has mostly one thread."""
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda words: script(*words), self.builds(guests)))
        self.tools = {kernel: script("tools.sh", kernel) for kernel in {g.kernel for g in guests}}
        # 27-wall runs the bench.
        self.files += [f"{TOP}/ci/bench.sh", f"{TOP}/ci/lib.sh:ci-lib.sh"]
        self.files += [f"{TOP}/tools/lio-example", f"{TOP}/README.md", f"{TOP}/docs/srpctl.md"]
        self.files += [f"{TOP}/tools/srplat", f"{TOP}/tools/srplat:srpslow"]
        wall = "measure", "peers", "cores", "wall", "counts", "ratios", "page"
        self.files += [f"{BENCH}/{name}.py" for name in wall]

    def boot(self, guest, name):
        """Runs a guest and prints its output when it has ended. Returns its results."""
        modules = [] if self.driver == "c" else [f"{self.built}/{guest.kernel}/rust/ib_srp.ko"]
        modules.append(f"{self.built}/slow_qp-{guest.kernel}/slow_qp.ko")
        modules += [f"{self.built}/{m}-{guest.kernel}/{m}.ko" for m in PATCHED.get(guest.kernel, {}).values()]
        files = [f"{self.tools[guest.kernel]}/{name}" for name in TOOLS]
        files += self.files + [f"{self.built}/vfab-{guest.kernel}/rust/ib_vfab.ko"] * (guest.kind == "vfab")
        record = self.logs / f"{name}.results"
        record.unlink(missing_ok=True)
        # Of 86-personalities.
        chosen = [f"PERSONALITIES={names}"] if (names := os.environ.get("PERSONALITIES")) else []
        # A test may clean up for another 180 s.
        tests = [f"{p.name}:{p.deadline + 180}" for p in guest.runs]
        command = [
            "--log", name, "--memory", guest.memory, "--smp", guest.ncpus,
            "--append", " ".join([*guest.append, *chosen]), "--results", f"/log/{record.name}",
            *(word for m in modules for word in ("--module", m)), *(word for f in files for word in ("--file", f)),
            "--group", name, "--", *tests,
        ]  # fmt: skip
        command = boot.command(guest.kernel, *command)
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        with PRINTING:
            sys.stdout.buffer.write(p.stdout)
            sys.stdout.flush()
        return whole(guest, results.read(record))

    def is_ours(self, name):
        """Returns whether the guest's console has a failure that only our module can cause."""
        console = self.logs / f"{name}.log"
        return console.exists() and bool(OURS.search(console.read_bytes()))


def is_test(result):
    """Returns whether this is the result of a test, and not of its guest."""
    return bool(IS_TEST.match(result.name))


def key(result):
    return f"{result.name}:{result.kind}" if is_test(result) else result.name


def whole(guest, found):
    """Returns the results of a guest, with a failure for each test without a result."""
    known = {key(r) for r in found}
    missing = [p for p in guest.runs if p.name not in known]
    for p in missing:
        print(f"fail {guest.name}/{p.name}: the guest did not run", flush=True)
    return found + [results.Result(p.test, "fail", 0, "the guest did not run", p.kind, guest.kernel) for p in missing]


def only(guest, names):
    """Returns the guest with only these tests."""
    return dataclasses.replace(guest, runs=tuple(p for p in guest.runs if p.name in names))


def merge(first, again, suffix, what):
    """Merges the results of a second run of the tests with the result `what` into those of the first run. The second
    result of a test counts, except that a failed test that is skipped then stays failed. Failures of the second guest
    outside of its tests count, too. Returns the results, and how many tests passed only in the second run."""
    second = {key(r): r for r in again}
    merged, passed = [], 0
    for r in first:
        other = second.get(key(r)) if is_test(r) and r.result == what else None
        if other is None or (what, other.result) == ("fail", "skip"):
            other = r
        elif other.result == "ok":
            passed += 1
        merged.append(other)
    outside = [dataclasses.replace(r, name=f"{r.name}{suffix}") for r in again if not is_test(r) and r.result == "fail"]
    return merged + outside, passed


def judge(lab, guest, first):
    """Runs the failed tests of a guest once more. Returns all results, and how many tests passed only then."""
    failed = [key(r) for r in first if is_test(r) and r.result == "fail"]
    if not failed or lab.is_ours(guest.name):
        return first, 0
    print(f"once more: {' '.join(failed)}", flush=True)
    return merge(first, lab.boot(only(guest, failed), f"{guest.name}-again"), "-again", "fail")


def alone(lab, guest, first):
    """Runs the tests that a slow machine left without a verdict, each in a guest of its own."""
    passed = 0
    for name in [key(r) for r in first if is_test(r) and r.result == "slow"]:
        print(f"once more: {name}", flush=True)
        suffix = "-alone-" + re.sub(r"-.*:", "", name).replace("+", "-")
        first, n = merge(first, lab.boot(only(guest, [name]), guest.name + suffix), suffix, "slow")
        passed += n
    return first, passed


def boot_all(lab, guests, at_once, beside):
    """Runs guests, `at_once` at a time; half as many until the file `beside`, if any, is unlocked. Returns the results
    of each."""
    left, found = queue.SimpleQueue(), [[]] * len(guests)
    for n in range(len(guests)):
        left.put(n)

    def slot(number):
        if beside and number >= max(1, at_once // 2):
            with open(beside) as f:
                fcntl.flock(f, fcntl.LOCK_SH)
        while True:
            try:
                n = left.get_nowait()
            except queue.Empty:
                return
            found[n] = lab.boot(guests[n], guests[n].name)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(slot, range(at_once)))
    return found


def run(lab, guests, at_once, beside=None):
    """Runs guests. Returns all results, and how many tests passed only in a second run."""
    second, found = 0, boot_all(lab, guests, at_once, beside)
    # Now one guest at a time. The slow tests come last.
    for step in judge, alone:
        for n, guest in enumerate(guests):
            found[n], passed = step(lab, guest, found[n])
            second += passed
    return [r for one in found for r in one], second


def chosen(words, one):
    """Returns the guests for a selection. `one` falls back to the long set for a test that is only there."""
    if one and words in ([], [""]):
        raise headers.Refused("which test? make one TEST=09-channels KIND=rxe; the tests are in userspace-tests/guest")
    try:
        return packing.guests("long" if os.environ.get("LONG") else "fast", words, one)
    except headers.Refused:
        if not one or os.environ.get("LONG"):
            raise
    os.environ["LONG"] = "1"
    return packing.guests("long", words, one)


def main():
    p = argparse.ArgumentParser(prog="guests.sh", description="Runs guest tests.")
    p.add_argument("--list", action="store_true", help="only show the guests, with the time that they take about")
    p.add_argument("--build", action="store_true", help="only build what the guests need")
    p.add_argument("--one", action="store_true", help="only the first test that is selected")
    p.add_argument("selection", nargs="*", help="TEST[:KIND][@KERNEL] or PARAMETER=VALUE")
    a = p.parse_args()
    try:
        guests = chosen(a.selection, a.one)
        if part := os.environ.get("PART"):
            guests = packing.share(guests, part)
    except headers.Refused as e:
        sys.exit(f"guests.sh: {e}")
    if a.list:
        for g in guests:
            print(f"{g.name}: {g.takes:.0f} s: {' '.join(p.test for p in g.runs)}")
        return 0
    lab = Lab(os.environ.get("DRIVER"))
    lab.prepare(guests)
    if a.build:
        return 0
    # A guest is idle half of the time.
    at_once = int(os.environ.get("GUESTS") or 2 * len(os.sched_getaffinity(0)))
    found, second = run(lab, guests, at_once, os.environ.get("BESIDE"))
    for r in found:
        results.add(r)
    if second:
        print(f"guests: {second} of these passed only in a second run, see above")
    for r in found:
        if r.result == "slow":
            print(f"guests: not judged: {key(r)}: {r.reason}")
    total = results.Sum(found)
    # With our kernels no test may be skipped, except on a slow machine. With the C driver some are.
    return 0 if total.good and (not total["skip"] or lab.driver == "c") else 1


if __name__ == "__main__":
    sys.exit(main())
