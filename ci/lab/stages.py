# SPDX-License-Identifier: GPL-2.0
"""Runs the stages of make test and prints the sum. test.sh, which calls this, describes the environment."""

import collections
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from . import TOP, headers, packing, results, script

LOGS = TOP / "build/log"
LONG = bool(os.environ.get("LONG"))
# The workloads of the fast set: small I/O and a login. Totals of large writes vary too much for one round.
BENCH = "" if LONG else "4k-read-qd16,4k-write-qd16,login-1-channel"

# A stage: its name, its lane, whether it is quiet, the kernels it needs (built ahead of time), and the command. The
# stages of a lane run one after the other, in parallel with the other lanes. The tools lane compiles. The qemu lane
# uses one emulated CPU. Stages with time limits run when the tools lane has built all that they need: the demos, and
# then the guests (lane last). While the qemu lane has a CPU, they have the other one: one demo at a time, and half as
# many guests. Beside them run only the waiting lane, which mostly waits for timers and the network, and the idle lane,
# which counts instructions in the remaining CPU time. A quiet stage prints nothing if it succeeds.
TABLE = f"""
fmt           tools    quiet  -        ci/lint.sh fmt-check
unsafe        tools    -      -        ci/lint.sh unsafe
cycles        tools    -      -        ci/lint.sh cycles
abi           tools    -      -        ci/lint.sh abi
reasons       tools    -      -        ci/lint.sh reasons
bounds        tools    -      -        ci/lint.sh bounds
lab           tools    quiet  -        ci/lint.sh lab
pages         tools    -      -        ci/lint.sh pages
drawings      tools    -      -        ci/lint.sh drawings
host          tools    -      -        userspace-tests/host/run
fabric        tools    -      -        storage/run test
reports       tools    -      -        ci/lint.sh reports
stock         tools    quiet  stock    ci/module.sh stock build/SERIES/stock
test          tools    quiet  test     ci/module.sh test build/SERIES/test
kasan         tools    quiet  kasan    ci/module.sh kasan build/SERIES/kasan
clippy        tools    quiet  stock    ci/lint.sh clippy
doc           tools    quiet  kasan    ci/lint.sh doc
build         tools    quiet  rt,kasan{",arm64-16k" if LONG else ""} ci/guests.sh --build
kunit         waiting  -      kasan    ci/kunit.sh
next          waiting  -      -        nice -n 19 ci/next.sh
kunit-test    qemu     -      test     ci/kunit.sh test
deb           qemu     -      -        ci/deb.sh
node          qemu     -      -        ci/node.sh
bench         idle     -      stock    env SHORT=1 ONLY={os.environ.get("ONLY", BENCH)} ci/bench.sh
bench-arm64   idle     -      arm64-16k env SHORT=1 KERNEL=arm64-16k ci/bench.sh
demo          demos    -      stock    ci/demo.sh
guests        last     -      stock,rt,kasan{",arm64-16k,arm64-64k,test,rtdebug,kcsan" if LONG else ""} ci/guests.sh
"""
# Only in the long set, as their kernels take long to build or to emulate.
ONLY_LONG = ("test", "kunit-test", "bench-arm64")
# Stages on the other series, in the long set. The remaining stages would need a debug kernel of that series.
ON_OTHERS = "stock test kasan clippy kunit kunit-test demo bench guests"
FLAVOURS = ("stock", "rt", "arm64", "arm64-16k")


class Refused(Exception):
    """A stage that does not exist."""


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    lane: str
    quiet: bool
    kernels: tuple
    command: tuple
    series: str
    kernel: str


def look(name, series, table=TABLE):
    """Returns the stage NAME, NAME@SERIES or NAME@KERNEL."""
    plain, _, on = name.partition("@")
    kernel = on if on in FLAVOURS else "stock"
    series = on if on and on not in FLAVOURS else series
    for line in table.split("\n"):
        words = line.split()
        if words and words[0] == plain:
            break
    else:
        raise Refused(f"no stage {name}")
    _, lane, quiet, kernels, *command = words
    if (plain, on) == ("guests", headers.OWN):
        # These are few, so the parts do not share them.
        kernels, command = "stock", ["env", "-u", "PART", *command]
    if kernel != "stock" and command != ["ci/demo.sh"] and (plain, on) != ("node", "arm64"):
        raise Refused(f"no stage {name}: only the demo runs on {kernel}")
    kernels = tuple(kernel if k == "stock" else k for k in kernels.split(",") if k != "-")
    command = tuple(word.replace("SERIES", series) for word in command)
    return Stage(name, lane, quiet == "quiet", kernels, command, series, kernel)


def default(series):
    """Returns the names of all stages."""
    names = [line.split()[0] for line in TABLE.strip().split("\n")]
    # Debian 13's own kernel has no Rust.
    own = headers.OWN
    if not LONG:
        return [n for n in names if n not in ONLY_LONG] + [f"stock@{own}", "demo@rt"]
    others = [line.split()[0] for line in script("series.sh").splitlines()]
    names += [f"{n}@{other}" for other in others if other != series for n in ON_OTHERS.split()]
    return names + [f"node@{own}", "node@arm64", f"demo@{own}", "demo@rt", "demo@arm64-16k", f"guests@{own}"]


def share(names, part):
    """Returns the stages of one of several parts. The parts share the guests of each `guests` stage; of the others each
    has every Nth, as the table has the long ones side by side."""
    number, parts = packing.read_part(part)
    is_shared = lambda name: name.partition("@")[0] == "guests" and name != f"guests@{headers.OWN}"
    others = [n for n in names if not is_shared(n)]
    return others[number - 1 :: parts] + [n for n in names if is_shared(n)]


def ahead(stages, series):
    """Returns the slow builds of the stages as (priority, series, script, argument)."""
    needs = set()
    for s in stages:
        if re.match(r"demo|bench|kunit|guests|node", s.name):
            needs.add((0, series, "guest.sh", ""))
        if s.name.startswith("node"):
            needs.add((0, series, "node-base.sh", "" if s.kernel == "stock" else s.kernel))
        needs |= {(1 if s.series == series else 2, s.series, "kernel.sh", k) for k in s.kernels}
    return sorted(needs)


class Runner:
    """Runs stages, each in a process group, so that it can be killed as a whole. A new session would be a separate
    autogroup of the scheduler, where `nice` has no effect."""

    def __init__(self, stages, record=None):
        """Adds all results to the file `record`."""
        self.stages, self.record, self.began = stages, record, time.monotonic()
        self.done = {}
        self.failures = []
        self.running, self.ending = set(), False
        # One stage at a time prints.
        self.printing = threading.Lock()
        # Locked while the qemu lane needs a CPU; half of the guests wait for it.
        self.busy = LOGS / "qemu-lane.lock"

    def start(self, command, series, nice=0, kernel="", **options):
        if self.ending:
            sys.exit("stages are killed")
        env = os.environ | {"SERIES": series, "KERNEL": kernel or "stock"} | options.pop("env", {})
        command = ["nice", "-n", str(nice), *map(str, command)] if nice else list(map(str, command))
        p = subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, env=env, process_group=0, **options)
        self.running.add(p)
        return p

    def start_ahead(self, series):
        """Starts the slow builds in parallel with the first stages, which wait for the network and for one CPU. Builds
        for other series get the CPU time that SERIES leaves. A failed build is repeated, and counted, by the stage that
        needs it."""
        for priority, on, name, argument in ahead(self.stages, series):
            log = LOGS / f"ahead-{pathlib.Path(name).stem}{f'-{argument}-{on}' if argument else ''}.log"
            with open(log, "wb") as f:
                words = [TOP / "ci" / name, *([argument] if argument else [])]
                self.start(words, on, 10 if priority > 1 else 0, stdout=subprocess.DEVNULL, stderr=f)

    def stage(self, s):
        log, record = LOGS / f"stage-{s.name}.log", LOGS / f"stage-{s.name}.results"
        record.unlink(missing_ok=True)
        print(f"==> {s.name}: {' '.join(s.command)}", file=sys.stderr, flush=True)
        began = time.monotonic()
        with open(log, "wb") as f:
            live = s.lane == "last"
            p = self.start(
                s.command, s.series, 19 if s.lane == "idle" else 0, s.kernel,
                env={"RESULTS": str(record), "BESIDE": str(self.busy)},
                stdout=subprocess.PIPE if live else f, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if live:
                for line in p.stdout:
                    f.write(line)
                    f.flush()
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            self.running.discard(p)
        found = results.of_command(s.name, p.returncode, results.read(record))
        for r in found if self.record else ():
            results.add(dataclasses.replace(r, stage=s.name), self.record)
        times = began - self.began, time.monotonic() - began, usage.ru_utime + usage.ru_stime
        self.report(s, found, log, times)

    def report(self, s, found, log, times):
        total = results.Sum(found)
        began, seconds, cpu = times
        lines = log.read_text(errors="replace").splitlines()
        failed = [r for r in found if r.result == "fail"]
        for r in failed:
            self.failures.append(f"{s.name}: {r.name}{f':{r.kind}' if r.kind else ''}: {r.reason}"[:300])
        if failed and not any(r.name != s.name for r in failed):
            self.failures += [f"    | {line}"[:300] for line in lines if line.strip()][-5:]
        with self.printing:
            if s.lane != "last" and (failed or not s.quiet):
                print("\n".join(lines[-60:] if s.quiet else lines))
            print(
                f"stage {s.name}: {total['ok']} passed, {total['fail']} failed, {total.skipped} skipped "
                f"({seconds:.0f} s, CPU {cpu:.0f} s, began at {began:.0f} s)",
                flush=True,
            )
            self.done[s.name] = total

    def lane(self, stages, then=lambda: None):
        """Starts a lane, which calls `then` at its end, and returns its thread."""

        def run():
            try:
                for s in stages:
                    self.stage(s)
            finally:
                then()

        t = threading.Thread(target=run, daemon=True)
        t.start()
        return t

    def run(self):
        lanes = collections.defaultdict(list)
        for s in self.stages:
            lanes[s.lane].append(s)
        demos, last = lanes.pop("demos", []), lanes.pop("last", [])
        busy = open(self.busy, "w")
        fcntl.flock(busy, fcntl.LOCK_EX)
        qemu = self.lane(lanes.pop("qemu", []), busy.close)
        threads = {lane: self.lane(stages) for lane, stages in lanes.items()}
        if tools := threads.get("tools"):
            tools.join()
        at_once = 1 if qemu.is_alive() else 2
        for t in [self.lane(demos[n::at_once]) for n in range(at_once)]:
            t.join()
        self.lane(last).join()
        for t in (qemu, *threads.values()):
            t.join()

    def kill(self):
        self.ending = True
        for p in self.running:
            if p.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(p.pid, signal.SIGTERM)


def main():
    series = os.environ["SERIES"]
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        names = os.environ.get("STAGES", "").split() or default(series)
        record = None
        if part := os.environ.get("PART"):
            names = share(names, part)
            record = LOGS / f"part-{part.replace('/', '-of-')}.results"
            record.unlink(missing_ok=True)
        runner = Runner([look(name, series) for name in names], record)
    except (Refused, headers.Refused) as e:
        sys.exit(f"test.sh: {e}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        runner.start_ahead(series)
        runner.run()
    finally:
        runner.kill()
    total = results.Sum()
    for one in runner.done.values():
        total.update(one)
    # A lane that died leaves stages without a result.
    missing = len(runner.stages) - len(runner.done)
    if missing:
        print(f"{missing} stages did not run")
        total["fail"] += missing
    if runner.failures:
        print("failed:", *runner.failures[-20:], sep="\n")
    seconds = int(time.monotonic() - began)
    print(f"in {seconds // 60} min {seconds % 60} s")
    print(total)
    return 0 if total.good else 1


if __name__ == "__main__":
    sys.exit(main())
