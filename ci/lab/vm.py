# SPDX-License-Identifier: GPL-2.0
"""Boots a guest and watches its console. ci/vm.sh runs this in the toolchain root."""

import argparse
import contextlib
import ctypes
import glob
import hashlib
import mmap
import os
import platform
import re
import select
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time

from . import peer, results
from .reports import reader

PANIC = re.compile(r"\] (?:Kernel panic|---\[ end Kernel panic)")
# The kernel takes some seconds to reach user space.
INIT = re.compile(r"Run /init as init process")
BOOT_SECONDS = 240
# Time limit of a guest around its tests: before the first, between two, and after the last.
AROUND_SECONDS = 1500
# Time limit of the kmemleak scan, which runs like a test but has no deadline of its own.
SCAN_SECONDS = 600
STAMP = re.compile(r"\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ::(\w+) ?(.*)")


def cpio(files):
    """Returns a newc archive of {path: (mode, bytes)}."""
    out = bytearray()
    folders = set()
    for path in files:
        parts = path.split("/")[:-1]
        folders.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    everything = [(f, stat.S_IFDIR | 0o755, b"") for f in sorted(folders)]
    everything += [(p, stat.S_IFREG | mode, data) for p, (mode, data) in sorted(files.items())]
    everything.append(("TRAILER!!!", 0, b""))
    for ino, (path, mode, data) in enumerate(everything, 1):
        name = path.encode() + b"\0"
        fields = [ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out += b"070701" + b"".join(b"%08x" % f for f in fields) + name
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def tree(folder, to):
    """Returns the files below `folder`, moved to `to`, in the format of `cpio`."""
    files = {}
    for at, dirs, names in os.walk(folder):
        dirs[:] = [d for d in dirs if not d.startswith(".")]
        for name in names:
            path = os.path.join(at, name)
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with open(path, "rb") as f:
                files[os.path.join(to, os.path.relpath(path, folder))] = (mode, f.read())
    return files


def tsc_khz():
    """Returns the rate of the time-stamp counter of QEMU's TCG guests, or None on a machine without one. A guest that
    waits for a CPU while it measures the rate is wrong by up to a factor of 30, and so is its clock."""
    if platform.machine() != "x86_64":
        return None
    # rdtsc; shl $32, %rdx; or %rdx, %rax; ret
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3")
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def now():
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def both():
        # Use the shortest interval: it was not preempted between its two reads.
        reads = []
        for _ in range(100):
            before, ticks, after = now(), counter(), now()
            reads.append((after - before, before, ticks))
        return min(reads)[1:]

    (began, first), _, (ended, last) = both(), time.sleep(0.1), both()
    return (last - first) * 1_000_000 // (ended - began)


def with_parent():
    """Kills the guest when this program ends for any reason (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Guest:
    def __init__(self, args, kernel):
        self.args = args
        self.kernel = kernel
        with open(f"{kernel}/release") as f:
            self.release = f.read().strip()
        # A kernel for User-Mode Linux is an ELF program.
        with open(f"{kernel}/vmlinuz", "rb") as f:
            self.uml = f.read(4) == b"\x7fELF"
        self.arm = "-arm64" in self.release
        self.peer = None
        self.is_report = reader()
        # Whether a panic is expected.
        self.to_crash = False
        # Whether the deadline expired because the machine was too slow.
        self.too_slow = False
        self.limit = self.deadline = 0

    def initramfs(self, job):
        files = tree("/srp/ci/guest", "payload/ci")
        if os.path.isdir("/srp/userspace-tests/guest"):
            files |= tree("/srp/userspace-tests/guest", "payload/tests")
        if os.path.isdir("/srp/tools/udev"):
            files |= tree("/srp/tools/udev", "payload/udev")
        table = "/srp/userspace-tests/bad-logins.tsv"
        if os.path.exists(table):
            with open(table, "rb") as f:
                files["payload/bad-logins.tsv"] = (0o644, f.read())
        files["payload/job"] = (0o644, job.encode())
        for ko in self.args.module:
            with open(ko, "rb") as f:
                files[f"lib/modules/{self.release}/updates/{os.path.basename(ko)}"] = (0o644, f.read())
        for item in self.args.file:
            src, _, dst = item.partition(":")
            with open(src, "rb") as f:
                files["payload/" + (dst or os.path.basename(src))] = (0o755, f.read())
        f = tempfile.NamedTemporaryFile(prefix="initramfs")
        with open(f"{self.kernel}/initramfs.cpio", "rb") as base:
            f.write(base.read())
        f.write(b"\0" * (-f.tell() % 4) + cpio(files))
        f.flush()
        return f

    def parameters(self, extra):
        """Returns the kernel parameters."""
        a = self.args
        console = "tty0" if self.uml else "ttyAMA0" if self.arm else "ttyS0"
        append = (
            f"console={console} quiet printk.time=1 printk.devkmsg=on "
            f"loglevel={4 if a.shell else 7} panic=-1 oops=panic "
            "mitigations=off random.trust_cpu=on net.ifnames=0 "
            "rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60 "
            f"kunit.enable={int(a.kunit)} {extra} {a.append}"
        )
        if self.uml or self.arm:
            return append
        # no_timer_check: without it the kernel panics if its timer does not tick in time, as in a guest without CPU
        # time.
        khz = None if a.icount else tsc_khz()
        return append + " tsc=reliable no_timer_check" + (f" tsc_early_khz={khz}" if khz else "")

    def machine(self, kvm):
        """Returns QEMU's arguments for a machine with our pipe as its console."""
        a = self.args
        program, machine = ("qemu-system-aarch64", "virt") if self.arm else ("qemu-system-x86_64", "q35")
        if kvm:
            accel = ["-accel", "kvm", "-cpu", "host"]
        elif a.icount:
            accel = ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-cpu", "max,la57=off,erms=off,fsrm=off"]
        else:
            # A processor with pages of 16 KiB, without pointer authentication, which TCG computes slowly.
            accel = ["-accel", "tcg,thread=multi", "-cpu", "neoverse-n1" if self.arm else "max,la57=off"]
        return [
            program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", machine, *accel, "-smp", "1" if a.icount else str(a.smp), "-m", str(a.memory),
            "-device", "virtio-rng-pci", "-chardev", "stdio,id=console,signal=off",
            "-serial", "chardev:console",
        ]  # fmt: skip

    def command(self, initrd, extra, kvm):
        a = self.args
        if self.uml:
            # nohz=off: an idle CPU may miss pending work and then sleep until its next timer. Writes to the disk go to
            # a file beside the initramfs. `c`: do not lock the image, as QEMU would wait for the lock.
            return [
                f"{self.kernel}/vmlinuz", f"mem={a.memory}M", f"ncpus={a.smp}", "seccomp=on", "nohz=off",
                f"initrd={initrd.name}", f"ubd0c={initrd.name}.cow,/guest/root.ext4", "con0=null,fd:1", "con=null",
                *self.parameters(extra).split(),
            ]  # fmt: skip
        return self.machine(kvm) + [
            "-kernel", f"{self.kernel}/vmlinuz", "-initrd", initrd.name, "-append", self.parameters(extra),
            "-drive", "file=/guest/root.ext4,if=virtio,format=raw,snapshot=on", *a.qemu,
        ]  # fmt: skip

    def kvm(self):
        """Returns whether a guest boots under KVM here: /dev/kvm alone is not enough."""
        if self.args.accel != "auto":
            return self.args.accel == "kvm"
        if self.uml or self.arm or self.args.icount or not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return False
        version = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
        key = hashlib.sha256(f"{version} {os.uname().release} {self.kernel_id()}".encode()).hexdigest()[:16]
        verdict = f"/cache/kvm-{key}"
        if not os.path.exists(verdict):
            with self.initramfs("") as initrd:
                ok = any(m == ("probe", "ok") for m in self.watch(self.command(initrd, "probe=1", True), 20, None))
            with open(f"{verdict}.{os.getpid()}", "w") as f:
                f.write("yes\n" if ok else "no\n")
            os.rename(f.name, verdict)
        with open(verdict) as f:
            return f.read() == "yes\n"

    def kernel_id(self):
        with open(f"{self.kernel}/vmlinuz", "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def cpu(self):
        """Returns the CPU time of the running guest in seconds."""
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                user, system = f.read().rpartition(")")[2].split()[11:13]
        except OSError:
            return 0
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def starved(self):
        """Returns whether the running guest waited for a CPU for at least half of the time that it was runnable."""
        ran = waited = 0
        for path in glob.glob(f"/proc/{self.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path) as f:
                on, off, _ = map(int, f.read().split())
                ran, waited = ran + on, waited + off
        return waited > ran

    def end_in(self, seconds):
        """Sets the deadline of the running guest."""
        self.limit, self.deadline = seconds, time.monotonic() + seconds

    def watch(self, command, limit, log, tries=3):
        """Yields the events of the console: ("report", text), ("line", text), (word, rest) for a line of our protocol,
        and finally ("ended", why)."""
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             preexec_fn=with_parent)
        self.pid = p.pid
        self.end_in(limit)
        booted = time.monotonic() + BOOT_SECONDS
        latest = booted + 4 * BOOT_SECONDS
        rest, why, over = b"", None, False
        # Reports from early boot, before any of our code has run.
        early = []
        try:
            while True:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    if not why:
                        why = f"deadline of {self.limit:.0f} s"
                        self.too_slow = self.starved()
                    break
                if booted and time.monotonic() > booted:
                    if not self.starved() or time.monotonic() > latest:
                        why = "hung in early boot"
                        break
                    booted += BOOT_SECONDS
                if not select.select([p.stdout], [], [], min(left, 1))[0]:
                    continue
                data = os.read(p.stdout.fileno(), 65536)
                if not data:
                    break
                if log:
                    log.write(data)
                    log.flush()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace").rstrip("\r")
                    if INIT.search(text):
                        booted = None
                        while early:
                            yield "report", early.pop(0)
                    if m := STAMP.search(text):
                        if m[1] == "guest":
                            # The guest powers off: ignore further reports. The disk disappears before init does.
                            why, over = m[2], True
                            # User-Mode Linux with several CPUs sometimes hangs at the end.
                            self.deadline = min(self.deadline, time.monotonic() + 10)
                        else:
                            yield m[1], m[2]
                    elif self.is_report(text) and not over and not self.to_crash:
                        if booted:
                            early.append(text)
                        else:
                            yield "report", text
                        if PANIC.search(text):
                            why = "died in early boot" if booted else "kernel panic"
                            self.deadline = min(self.deadline, time.monotonic() + 5)
                    else:
                        yield "line", text
        finally:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(5)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()
            p.stdout.close()
        # Once in a few hundred boots QEMU's TCG hangs a guest before it has run any code of ours, or lets a CPU run
        # into an int3 that another CPU has already patched away. Other reports count.
        patched = why == "died in early boot" and not self.uml and "Oops: int3" in early[0]
        for text in early:
            if patched and tries > 1:
                print(text, flush=True)
            else:
                yield "report", text
        if tries > 1 and (patched or why == "hung in early boot"):
            print(f"the guest {why}, starting it again", flush=True)
            yield from self.watch(command, limit, log, tries - 1)
        else:
            yield "ended", why or "the guest ended without a word"


def tail(log, lines=60):
    with open(log, errors="replace") as f:
        for line in f.readlines()[-lines:]:
            print("    | " + line.rstrip("\r\n"))


def run_command(guest):
    """Runs the command line in the guest and returns its exit status."""
    a = guest.args
    status, reports, why = None, [], ""
    with guest.initramfs(" ".join(shlex.quote(c) for c in a.command) + "\n") as initrd, open(a.console, "wb") as log:
        for word, text in guest.watch(guest.command(initrd, "job=command", guest.kvm()), a.timeout, log):
            if word == "exit":
                status = int(text)
            elif word == "peer":
                guest.peer.order(text)
            elif word == "ended":
                why = text
            else:
                if word == "report":
                    reports.append(text)
                if a.verbose or not re.match(r"\[ *\d+\.\d{6}\]", text):
                    print(text, flush=True)
    if guest.peer:
        reports += guest.peer.reports
    if reports:
        print(f"kernel report: {reports[0]}")
        tail(a.console)
        return 1
    if status is None:
        print(f"the command did not end: {why}")
        tail(a.console)
        return 1
    return status


class Verdicts:
    """Turns the events of a guest's console into the results of its tests.

    A report of the kernel fails the test that runs, or the guest if no test runs. If the guest dies, the test that runs
    has failed, and the later ones did not run."""

    def __init__(self, name, tests, tell):
        """`tests` are NAME:KIND; `tell` gets each result as (name, result, seconds, reason)."""
        self.name, self.tests, self.tell = name, tests, tell
        self.results = {}
        self.current, self.output, self.reports = None, [], []

    def result(self, test, verdict, seconds=0, reason="", shown=""):
        self.results[test] = verdict
        self.tell(test, verdict, seconds, reason)
        text = shown or reason
        print(f"{verdict:4} {self.name}/{test}{': ' if text else ''}{text}", flush=True)
        if verdict == "fail":
            for line in [o for o in self.output[:-80] if "FAILED:" in o] + self.output[-80:]:
                print("    | " + line)

    def begin(self, test):
        if self.reports:
            self.result("boot" if self.current is None else "between tests", "fail", reason=self.reports[0])
        self.current, self.output, self.reports = test, [], []

    def said(self, *words):
        """The first line of the test's output with one of these words."""
        return next((o for word in words for o in self.output if word in o), "")

    def end(self, test, verdict, seconds, cpu):
        shown = f"{seconds} s, CPU {cpu:.0f} s"
        if self.reports:
            self.result(test, "fail", seconds, f"kernel report: {self.reports[0]}")
        elif verdict == "ok":
            self.result(test, "ok", seconds, shown=shown)
        elif verdict == "fail":
            self.result(test, "fail", seconds, self.said("FAILED:"), shown)
        else:
            self.result(test, verdict, seconds, self.said("skipped:") or "it does not say why")
        self.output, self.reports = [], []

    def line(self, text, is_report=False):
        self.output.append(text)
        if is_report:
            self.reports.append(text)

    def ended(self, why, too_slow):
        """Handles the end of the guest. `why` is `end` if it has done everything; `too_slow`: it lacked CPU time."""
        missing = "fail", "did not run"
        if too_slow and not self.reports:
            missing = "slow", f"skipped: machine too slow: {why} of the guest"
        elif self.current and self.current not in self.results:
            self.result(self.current, "fail", reason=self.reports[0] if self.reports else why)
        elif why != "end" or self.reports:
            self.result("end", "fail", reason=self.reports[0] if self.reports else why)
        self.output = []
        for test in self.tests:
            if test not in self.results:
                self.result(test, missing[0], reason=missing[1])

    @property
    def good(self):
        return "fail" not in self.results.values() and "ok" in self.results.values()


def run_tests(guest, name, tests):
    """Runs `tests` [(name, kind, seconds)] and prints their results."""
    a = guest.args
    # The guest itself ends a test at its limit, and prints the stacks.
    limits = {f"{n}:{k}": int(s) + 60 for n, k, s in tests}

    def tell(test, verdict, seconds, reason):
        if a.results:
            name, _, kind = test.partition(":")
            results.add(results.Result(name, verdict, seconds, reason, kind, a.kernel), a.results)

    verdicts = Verdicts(name, limits, tell)
    cpu = 0
    job = "".join(f"{n} {k} {s}\n" for n, k, s in tests)
    with guest.initramfs(job) as initrd, open(a.console, "wb") as log:
        for word, text in guest.watch(guest.command(initrd, "job=run", guest.kvm()), AROUND_SECONDS, log):
            if word == "test":
                test, verdict, *seconds = text.split()
                guest.end_in(limits.get(test, SCAN_SECONDS) if verdict == "begin" else AROUND_SECONDS)
                if verdict == "begin":
                    cpu = guest.cpu()
                    verdicts.begin(test)
                else:
                    verdicts.end(test, verdict, int(seconds[0]), guest.cpu() - cpu)
            elif word == "peer":
                guest.peer.order(text)
            elif word == "ended":
                verdicts.ended(text, guest.too_slow)
            else:
                verdicts.line(text, word == "report")
    if guest.peer and guest.peer.reports:
        verdicts.result("peer", "fail", reason=guest.peer.reports[0])
    return 0 if verdicts.good else 1


def run_shell(guest):
    with guest.initramfs(" ".join(guest.args.command)) as initrd:
        command = guest.command(initrd, "job=shell", guest.kvm())
        return subprocess.run(command).returncode


def arguments(prog, description):
    p = argparse.ArgumentParser(prog=prog, description=description)
    p.add_argument("--memory", type=int, default=3072, help="MiB")
    p.add_argument("--smp", type=int, default=2)
    p.add_argument("--timeout", type=float, default=600, help="seconds until a guest with a command is ended")
    p.add_argument("--module", action="append", default=[], help="a .ko for updates/ in the guest")
    p.add_argument("--file", action="append", default=[], help="FILE[:NAME], at /srp/NAME in the guest")
    p.add_argument("--append", default="", help="more kernel parameters")
    p.add_argument("--qemu", action="append", default=[], help="one more argument of QEMU")
    p.add_argument("--accel", choices=("auto", "kvm", "tcg"), default="auto")
    p.add_argument("--icount", action="store_true", help="the clock counts instructions; one CPU")
    p.add_argument("--kunit", action="store_true", help="run the KUnit suites of modules as they load")
    p.add_argument("--console", default="/log/console.log", help="where the console goes")
    p.add_argument("--verbose", action="store_true", help="show the kernel's lines too")
    p.add_argument("--group", help="run TESTS, NAME:KIND:SECONDS each, under this name")
    p.add_argument("--kernel", default="", help="the kernel, for --results")
    p.add_argument("--results", help="a file for the results of the tests")
    p.add_argument("--shell", action="store_true", help="an interactive shell; the command is what it does first")
    p.add_argument("command", nargs="*")
    return p


def table(name):
    """Writes the ACPI table in a file of hexadecimal digits for QEMU, and returns the path."""
    path = f"/tmp/{name}.table"
    with open(f"/srp/userspace-tests/guest/{name}.hex") as hexadecimal, open(path, "wb") as f:
        f.write(bytes.fromhex("".join(line for line in hexadecimal if not line.startswith("#"))))
    return path


def main():
    a = arguments("vm.sh", "Runs a command or tests in a guest.").parse_args()
    guest = Guest(a, "/kernel")
    # A kernel parameter, so that the header of a test can set it.
    if m := re.search(r"\bpeer=(\S+)", a.append):
        guest.peer = peer.Peer(guest, m[1], with_parent)
    if m := re.search(r"\btable=(\w+)", a.append):
        a.qemu += ["-acpitable", f"file={table(m[1])}"]
    try:
        if a.shell:
            return run_shell(guest)
        if a.group:
            return run_tests(guest, a.group, [tuple(t.split(":")) for t in a.command])
        return run_command(guest)
    finally:
        if guest.peer:
            guest.peer.end()


if __name__ == "__main__":
    sys.exit(main())
