# SPDX-License-Identifier: GPL-2.0
"""Measures the drivers in guests. bench.sh, which calls this, describes the modes and the environment."""

import os
import pathlib
import re
import subprocess
import sys
import time

from . import TOP, boot, build, built, in_root, script

BENCH = TOP / "userspace-tests/bench"
OUT = TOP / "build/bench"
MIB = 1 << 20
# Workloads with data for the comparison with other initiators, and the subset that soft-RoCE also runs.
COMPARED = re.compile(r"(4k|16k|128k|1m)-")
SMALL = re.compile(r"4k-")
# The curves by the device and the number of CPUs that they need.
CURVES = {("rxe", 1): ("sessions", "luns"), ("vfab", 1): ("targets",), ("rxe", 16): ("channels",)}
# Minutes of all rounds on a device, seconds of a run, and the points: as many as leave time for five rounds.
CORES, CORES_SHORT = ("9", "0.6", "*-d1,*-d32,4k-*-d32-apart"), ("1.2", "0.3", "4k-read-d8,64k-write-d8")
# The processor of a guest. The first one has no fast string instructions, so the kernel copies in a loop.
LOOPS, STRINGS = "max,la57=off,erms=off,fsrm=off", "max,la57=off,erms=on,fsrm=on"
ARM64 = "neoverse-n1"
# What `make bench-path` may add to a device, and the variables of guest.sh or parameters of the kernel that do it.
ADDED = {
    "direct": ["COMPLETE_TYPE=1"], "noinit": ["init_on_alloc=0"], "mlx5": ["PERSONALITY=mlx5"],
    "late": ["INTERRUPT_NS=1000"], "still": ["MODERATION=off"], "fsrm": [],
}  # fmt: skip
# The C driver may free a completion queue that a softirq on another CPU still uses (docs/testing.md).
C_DRIVER = re.compile(rb" ib_srp(\(-\))?( |$)")


class Refused(Exception):
    """A selection without work."""


def rows(file):
    """Returns the words of each line of a table."""
    lines = (BENCH / file).read_text().splitlines()
    return [line.split() for line in lines if line.split() and not line.startswith("#")]


def names(file, pattern):
    """Returns the workloads of a table that a pattern matches, separated by commas."""
    return ",".join(row[0] for row in rows(file) if pattern.match(row[0]))


def judged(bounds):
    """Returns the workloads with a bound, separated by commas."""
    return ",".join(sorted({row[0] for row in rows(bounds)}))


def cpus_of(file, only):
    """Returns the CPU counts of the workloads in `only`, or of all, without duplicates."""
    return sorted({row[1] for row in rows(file) if not only or row[0] in only.split(",")})


def died_with_c(console):
    """Returns whether a known bug of the C driver ended the guest. That driver is not marked as out of tree."""
    lines = console.read_bytes().splitlines() if console.exists() else []
    loaded = [line for line in lines if b"Modules linked in:" in line]
    known = any(b"ib_poll_handler+" in line for line in lines)
    return known and bool(loaded) and bool(C_DRIVER.search(loaded[-1]))


class Bench:
    """Guests that measure, and the programs that turn their logs into tables."""

    def __init__(self, plugin="counts", workloads="workloads.tsv", rounds=None, kernel="stock"):
        """Builds what all guests need. Kernels other than `stock` have only the workloads for one CPU."""
        e = os.environ
        self.kernel, self.suffix = kernel, "" if kernel == "stock" else f"-{kernel}"
        self.short, self.plugin, self.workloads = bool(e.get("SHORT")), plugin, workloads
        self.options = ["--share", "0.5"] if self.short else []
        self.rounds = e.get("ROUNDS") or rounds or ("1" if self.short else "5")
        self.bounds = f"bounds{'' if kernel == 'stock' else '-arm64'}.tsv"
        self.only = e.get("ONLY") or (judged(self.bounds) if self.short else "")
        self.kind, self.logs = "rxe", built() / "log"
        self.cpu, self.always, self.append = LOOPS if kernel == "stock" else ARM64, [], []
        for folder in OUT, self.logs:
            folder.mkdir(parents=True, exist_ok=True)
        self.root = script("root.sh")
        self.so = plugin and pathlib.Path(script("plugin.sh", plugin)).name
        build("module.sh", kernel, built() / kernel)

    def once(self, name, cpus, program, options):
        """Boots a guest. Returns its status. measure.py writes to its second disk, the plugin to a file."""
        disk = self.logs / f"{name}.disk"
        with open(disk, "wb") as f:
            f.truncate(512 * MIB)
        # QEMU's clock counts instructions only with one CPU; with more it is the host's clock.
        clock = ["--icount"] if cpus == "1" and self.so else ["--accel", "tcg", "--smp", cpus]
        mtu = [f"MTU={os.environ['MTU']}"] if os.environ.get("MTU") else []
        words = [
            *clock, "--qemu=-cpu", f"--qemu={self.cpu}", "--append", " ".join(mtu + self.always + self.append),
            "--log", name, "--timeout", os.environ.get("TIMEOUT") or "21600",
            "--qemu=-drive", f"--qemu=file=/log/{name}.disk,if=virtio,format=raw",
            *(["--qemu=-plugin", f"--qemu=/cache/{self.so}/plugin.so,out=/log/{name}.counts"] if self.so else []),
            "--module", built() / self.kernel / "rust/ib_srp.ko",
            "--file", BENCH / "guest.sh", "--file", BENCH / "measure.py",
            "--file", f"{BENCH / self.workloads}:workloads.tsv", *options,
            "--", "bash", "/srp/guest.sh", self.kind, cpus, self.rounds, self.only, program, *self.options,
        ]  # fmt: skip
        return subprocess.run(boot.command(self.kernel, *words)).returncode

    def guest(self, name, cpus, program, options=()):
        """Runs a guest in which the drivers take turns. Returns its status, and its log."""
        name = f"bench-{name}"
        status = self.once(name, cpus, program, options)
        if status and died_with_c(self.logs / f"{name}.log"):
            print("==> the guest died with the C driver loaded: once more", file=sys.stderr, flush=True)
            status = self.once(name, cpus, program, options)
        return status, f"/log/{name}"

    def must(self, *words):
        """Runs a guest that has to succeed. Returns its log."""
        status, log = self.guest(*words)
        if status:
            sys.exit(status)
        return log

    def guests(self, suffix=""):
        """Runs the guests of all workloads. Returns their logs."""
        cpus = [n for n in cpus_of("workloads.tsv", self.only) if n == "1" or self.kernel == "stock"]
        return [self.must(f"{n}{self.suffix}{suffix}", n, "measure") for n in cpus]

    def report(self, program, *words):
        """Prints a table of the results. Returns the status of the program."""
        binds = f"{BENCH}:/bench:ro", f"{OUT}:/out", f"{self.logs}:/log"
        command = "env", "PYTHONDONTWRITEBYTECODE=1", "python3", f"/bench/{program}"
        return subprocess.run(in_root(self.root, binds, *command, *words)).returncode

    def about(self):
        """Returns options that describe the measurement and the machine."""
        commit = subprocess.run(
            ["git", "-C", TOP, "describe", "--always", "--dirty"], capture_output=True, text=True
        ).stdout.strip()
        cpu = re.search(r"^model name.*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
        found = {"commit": commit, "host cpu": cpu[1] if cpu else ""}
        for name in "qemu-system-x86_64", "rustc", "clang", "gcc":
            version = in_root(self.root, [], name, "--version")
            first = subprocess.run(version, stdout=subprocess.PIPE, text=True).stdout.splitlines()[:1]
            found[name.partition("-")[0]] = "".join(first)
        return [word for name, value in found.items() for word in ("--about", f"{name}={value}")]

    def peers_files(self):
        """Returns the options for peers.sh and peers.py."""
        iscsi = sorted(pathlib.Path(script("iscsi.sh")).iterdir())
        # Debian's kernel has no rnbd.
        source = pathlib.Path(script("linux.sh")) / "source/drivers"
        rnbd = built() / "rnbd"
        modules = [f"CONFIG_INFINIBAND_RTRS{part}=m" for part in ("", "_CLIENT", "_SERVER")]
        build("module.sh", "stock", rnbd / "rtrs", source / "infiniband/ulp/rtrs", "modules", *modules)
        modules = [f"CONFIG_BLK_DEV_RNBD_{part}=m" for part in ("CLIENT", "SERVER")]
        symbols = "KBUILD_EXTRA_SYMBOLS=/out/rtrs/Module.symvers"
        build("module.sh", "stock", rnbd, source / "block/rnbd", "modules", *modules, symbols)
        found = [("--file", f) for f in iscsi]
        found += [("--module", m) for folder in (rnbd, rnbd / "rtrs") for m in sorted(folder.glob("*.ko"))]
        found += [("--file", BENCH / name) for name in ("peers.sh", "peers.py")]
        return [word for words in found for word in words]

    def device(self, name):
        """Makes the guests those of a device, KIND or KIND+WHAT+WHAT... of ADDED. Returns further options."""
        self.kind, *those = name.split("+")
        if unknown := set(those) - ADDED.keys():
            raise Refused(f"DEVICES has {', '.join(unknown)}, which is not one of {' '.join(ADDED)}")
        self.cpu = STRINGS if "fsrm" in those else LOOPS
        self.append = [word for what in those for word in ADDED[what]]
        options = self.vfab_file() if self.kind == "vfab" else []
        if "direct" in those:
            source, out = pathlib.Path(script("kernel.sh", "patched", "direct")), built() / "srpt-direct"
            source /= "drivers/infiniband/ulp/srpt"
            build("module.sh", "stock", out, source, "modules", "CONFIG_INFINIBAND_SRPT=m")
            options += ["--module", out / "ib_srpt.ko"]
        return options

    def vfab_file(self):
        """Builds ib_vfab. Returns its options."""
        build("module.sh", "stock", built() / "vfab-stock", TOP, "modules", "SRP_VFAB=1")
        return ["--file", built() / "vfab-stock/rust/ib_vfab.ko"]


def icount():
    """Both drivers, with bounds."""
    kernel = os.environ.get("KERNEL") or "stock"
    if kernel not in ("stock", "arm64", "arm64-16k"):
        sys.exit(f"bench.py: no bench on {kernel}")
    bench = Bench(kernel=kernel)
    again, record = (OUT / f"{name}{bench.suffix}" for name in ("again", "bench.results"))
    options = [*bench.about(), "--bounds", f"/bench/{bench.bounds}"]
    results = ["--results", f"/out/{record.name}", "--out", f"/out/results{bench.suffix}.json"]
    for file in again, record:
        file.unlink(missing_ok=True)
    short = ["--short", "--again", f"/out/{again.name}"] if bench.short else []
    logs = bench.guests()
    status = bench.report("report.py", *options, *short, *results, *logs)
    if again.exists() and again.stat().st_size:
        bench.only, bench.rounds, bench.options = again.read_text().strip(), "3", []
        logs += bench.guests("-again")
        status = bench.report("report.py", *options, "--short", *results, *logs)
    if record.exists():
        with open(os.environ["RESULTS"], "a") as f:
            f.write(record.read_text())
    return status, [] if bench.suffix else ["plot.py", "/out"]


def peers():
    """Both drivers and other initiators of the kernel."""
    bench = Bench()
    files = bench.peers_files()
    bench.only = bench.only or names("workloads.tsv", COMPARED)
    log = bench.must("peers", "1", "peers", files)
    status = bench.report("report.py", "--peers", *bench.about(), "--out", "/out/peers.json", log)
    if status:
        sys.exit(status)
    return 0, ["plot.py", "/out", "peers"]


def path(mode="path", devices="vfab vfab+fsrm rxe", always=(), parts=None):
    """The instructions of an I/O, by layer. `parts` has the workloads of guests of their own, by a name of these."""
    bench, status, logs = Bench("paths", f"{mode}-workloads.tsv", "1"), 0, []
    bench.always = list(always)
    if initiators := os.environ.get("INITIATORS"):
        bench.always.append(f"INITIATORS={initiators}")
    files, wanted = [*bench.peers_files(), "--file", BENCH / "path.py"], bench.only
    program, more = ("curves", ["--curves"]) if parts else ("path", [])
    if parts:
        files += ["--file", BENCH / "curves.py"]
    for device in (os.environ.get("DEVICES") or devices).split():
        options = [*files, *bench.device(device)]
        usual = {mode: wanted or ("" if device == "vfab" else names(bench.workloads, SMALL))}
        for part, bench.only in (parts or usual).items():
            for cpus in cpus_of(bench.workloads, bench.only):
                # If a guest dies, keep what it has measured.
                failed, log = bench.guest(f"{part}-{cpus}-{device}", cpus, program, options)
                status = failed or status
                logs.append(log)
    status = bench.report("paths.py", *bench.about(), *more, "--out", f"/out/{mode}.tsv", *logs) or status
    return status, []


def moderation():
    """Interrupts at once, moderated ones and polling. A poller gives way only to a preemption at once."""
    return path("moderation", "vfab+mlx5+late+still vfab+mlx5+late", ["preempt=full"])


def curves():
    """The instructions of an I/O against depth, CPUs, LUNs and sessions. Each curve has a guest of its own."""
    known = dict.fromkeys(row[0].partition("-")[0] for row in rows("curves-workloads.tsv"))
    wanted = (os.environ.get("ONLY") or ",".join(known)).split(",")
    if unknown := [curve for curve in wanted if curve not in known]:
        raise Refused(f"ONLY has {', '.join(unknown)}, which is not one of {' '.join(known)}")
    os.environ.setdefault("INITIATORS", "rust,c,nvme")
    parts = {f"curves-{curve}": names("curves-workloads.tsv", re.compile(f"{curve}-")) for curve in wanted}
    return path("curves", "vfab vfab+fsrm", parts=parts)


def scale():
    """How both drivers scale."""
    wanted = (os.environ.get("ONLY") or "").split(",")
    bench, logs = Bench(rounds="3"), []
    for (bench.kind, cpus), curves in CURVES.items():
        bench.only = ",".join(curve for curve in curves if wanted == [""] or curve in wanted)
        if not bench.only:
            continue
        files = ["--memory", "8192", "--file", BENCH / "scale.py"]
        files += bench.vfab_file() if bench.kind == "vfab" else []
        logs.append(bench.must(f"scale-{bench.kind}-{cpus}", str(cpus), "scale", files))
    if not logs:
        raise Refused(f"ONLY has no curve: {' '.join(c for curves in CURVES.values() for c in curves)}")
    return bench.report("growth.py", *bench.about(), "--out", "/out/scale.json", *logs), ["plot.py", "/out", "scale"]


def cores():
    """Both drivers and other initiators of the kernel, on all CPUs, by the clock."""
    bench, logs, status = Bench(None, rounds="0"), [], 0
    os.environ.setdefault("MTU", "4200")
    minutes, seconds, bench.only = CORES_SHORT if bench.short else CORES
    bench.only = os.environ.get("ONLY") or bench.only
    minutes = float(os.environ.get("MINUTES") or minutes)
    cpus, load = str(os.environ.get("CPUS") or len(os.sched_getaffinity(0))), os.getloadavg()[0]
    files = [*bench.peers_files(), "--file", BENCH / "cores.py", "--file", BENCH / "ratios.py"]
    vfab = bench.vfab_file()
    for bench.kind in (os.environ.get("DEVICES") or "vfab rxe").split():
        names, left = [], minutes
        # If the guest dies with the C driver, its rounds stay, and another one has the rest of the time.
        for name in f"bench-cores-{bench.kind}", f"bench-cores-{bench.kind}-again":
            began = time.monotonic()
            bench.options = ["--minutes", f"{left:.2f}", "--seconds", seconds, "--both-ends"]
            died = bench.once(name, cpus, "cores", files + vfab * (bench.kind == "vfab"))
            names.append(f"/log/{name}")
            left = max(left - (time.monotonic() - began) / 60, 0)
            if not died or not died_with_c(bench.logs / f"{name}.log"):
                break
        status = died or status
        logs.append(f"{bench.kind}={','.join(names)}")
    layers = ["--layers", "/out/path.tsv"] if (OUT / "path.tsv").exists() else []
    about = [*bench.about(), *layers, "--about", f"load before, of {os.cpu_count()} CPUs={load:.2f}"]
    return bench.report("page.py", *about, "--out", "/out/cores", *logs) or status, []


def realtime():
    """The latency of both drivers with PREEMPT_RT, each in a guest of its own, as the C driver crashes that kernel."""
    folder = built() / "vfab-rt"
    build("module.sh", "rt", folder, TOP, "modules", "SRP_VFAB=1")
    (built() / "log").mkdir(exist_ok=True)
    status = {}
    for driver in (os.environ.get("ONLY") or "rust,c").split(","):
        ours = ["--module", folder / "rust/ib_srp.ko"] if driver == "rust" else []
        words = [
            "--icount", "--log", f"bench-rt-{driver}", "--timeout", "1800", *ours,
            "--file", folder / "rust/ib_vfab.ko", "--file", BENCH / "realtime.sh", "--file", BENCH / "realtime.py",
            "--", "bash", "/srp/realtime.sh", "vfab", "6",
        ]  # fmt: skip
        status[driver] = subprocess.run(boot.command("rt", *words)).returncode
        print(f"realtime: {driver}: {'ended with an error' if status[driver] else 'ok'}", flush=True)
    return status.get("rust", 0), []


MODES = {
    "icount": icount, "peers": peers, "path": path, "moderation": moderation, "curves": curves, "scale": scale,
    "cores": cores, "rt": realtime,
}  # fmt: skip


def main():
    try:
        status, plot = MODES[os.environ.get("MODE") or "icount"]()
    except Refused as e:
        sys.exit(f"bench.sh: {e}")
    if plot and not os.environ.get("SHORT"):
        if subprocess.run([TOP / "ci/plot.sh", *plot]).returncode:
            return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
