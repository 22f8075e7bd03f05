#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Repeats an operation; each time another of its allocations fails.

fail-nth.py prepare                 lets every kind of allocation fail
fail-nth.py insmod FILE ADD_TARGET  loads the module (and unloads it, if it could be loaded)
fail-nth.py login ADD_TARGET TEXT   logs in (and out); the writer's own allocations
fail-nth.py others ADD_TARGET TEXT  the same; allocations of all threads with the module in the call trace
fail-nth.py reconnect HOST DISK     resets the host

In the environment: STEP, to fail every STEP-th allocation only; DEBUGFS, its mount point. Prints a line for each
outcome, and finally the number of allocations. The sweep ends when an attempt ends before its allocation fails. An
unexpected result ends it with status 1.
"""

import ctypes
import errno
import fcntl
import glob
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

DEBUG = os.environ["DEBUGFS"]
FAULTS = ("failslab", "fail_page_alloc")
# Seconds of an attempt with its cleanup.
LIMIT = 120
SG_SCSI_RESET, SG_SCSI_RESET_HOST = 0x2284, 3
FINIT_MODULE = 313
libc = ctypes.CDLL(None, use_errno=True)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def read(path):
    with open(path) as f:
        return f.read().strip()


def prepare():
    for fault in FAULTS:
        for name, value in (("verbose", 0), ("ignore-gfp-wait", "N"), ("ignore-gfp-highmem", "N"), ("min-order", 0)):
            path = f"{DEBUG}/{fault}/{name}"
            if os.path.exists(path):
                write(path, str(value))
    # The tracer warns if it cannot allocate memory for the events of a module.
    begin, end = text_of("trace_define_field", "event_define_fields", "trace_module_notify")
    for fault in FAULTS:
        for name, value in (("reject-start", begin), ("reject-end", end), ("stacktrace-depth", 32)):
            write(f"{DEBUG}/{fault}/{name}", hex(value))


def until(seconds, what, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.005)


def watch(what):
    """Ends the program unless it is called again in time."""
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not within {LIMIT} s: {what}"))
    signal.alarm(LIMIT)


def hosts():
    """Returns the SCSI hosts of ib_srp. A host may disappear meanwhile."""
    found = set()
    for name in glob.glob("/sys/class/scsi_host/host*"):
        try:
            if read(f"{name}/proc_name") == "ib_srp":
                found.add(os.path.basename(name))
        except OSError:
            pass
    return found


def loaded():
    return os.path.exists("/sys/module/ib_srp")


class Unusable:
    """The lines of the log that report a port as unusable."""

    def __init__(self):
        self.before = self.count()

    def count(self):
        log = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
        return len(
            re.findall(r"ib_srp: rxe10(?::1: the port cannot be used|: the device is not used): (?:error )?-12", log)
        )

    def said(self):
        now = self.count()
        before, self.before = self.before, now
        return now > before


def insmod(fd):
    return ctypes.get_errno() if libc.syscall(FINIT_MODULE, fd, b"", 0) < 0 else 0


def unload(result, add_target, unusable):
    if result == 0:
        # The core loads a client even if adding its devices fails; then the log must say so.
        if not os.path.exists(add_target) and not unusable.said():
            sys.exit(f"the module is loaded, but {add_target} is not there, and the log does not say why")
        deadline = time.monotonic() + 20
        while libc.delete_module(b"ib_srp", os.O_NONBLOCK) < 0:
            # An open file of the module still holds a reference.
            if time.monotonic() > deadline:
                sys.exit(f"delete_module: {os.strerror(ctypes.get_errno())}")
            time.sleep(0.01)
    if loaded():
        sys.exit("the module is there although it was not loaded")


class Login:
    def __init__(self, add_target, text):
        self.text = text.encode()
        self.fd = os.open(add_target, os.O_WRONLY)

    def do(self):
        try:
            os.write(self.fd, self.text)
        except OSError as e:
            return e.errno
        return 0

    def undo(self, result):
        if result != 0:
            # A login may be refused for a moment after the host of the previous one disappeared.
            time.sleep(0.02 if result == errno.EEXIST else 0)
            if hosts():
                sys.exit(f"a login ended with {os.strerror(result)} and left {hosts()}")
            return
        if len(hosts()) != 1:
            sys.exit(f"hosts after a login: {hosts()}")
        # The disk may be missing: the scan is not part of the login.
        number = hosts().pop().removeprefix("host")
        write(f"/sys/class/srp_remote_ports/port-{number}:1/delete", "1")
        until(20, f"host{number} is gone", lambda: not hosts())


def sweep(step, do, undo):
    """Fails the writer's own allocations, by /proc/self/fail-nth."""
    outcomes = Counter()
    n, since = 1, time.monotonic()
    nth = os.open("/proc/self/fail-nth", os.O_RDWR)
    while True:
        watch(f"the attempt whose allocation {n} fails")
        os.pwrite(nth, b"%d" % n, 0)
        result = do()
        left = int(os.pread(nth, 16, 0).strip(b"\0\n") or 0)
        os.pwrite(nth, b"0", 0)
        undo(result)
        # The previous session still exists: try again.
        if result == errno.EEXIST:
            if time.monotonic() > since + 20:
                sys.exit(f"the last session is there still, before allocation {n}")
            continue
        since = time.monotonic()
        if left > 0:
            if result != 0:
                sys.exit(f"nothing failed, but the result is {os.strerror(result)}")
            return outcomes, n - 1
        outcome = errno.errorcode.get(result, "ok")
        if outcome not in ("ok", "ENOMEM"):
            outcome += f" by allocation {n}"
        outcomes[outcome] += 1
        n += step


def code():
    """Yields the functions of the kernel: address, name, module."""
    with open("/proc/kallsyms") as f:
        for line in f:
            at, kind, name, *module = line.split()
            if kind in "tT":
                yield int(at, 16), name, "".join(module)


def text_of_module():
    """Returns the start and end of the module's code."""
    at = [at for at, _, module in code() if module == "[ib_srp]"]
    return min(at), max(at) + 1


def text_of(*functions):
    """Returns the start of the first of these functions, which are of one file, and the end of the last one."""
    all_of_it = sorted(code())
    at = [at for at, name, module in all_of_it if name in functions and not module]
    return at[0], next(a for a, _, _ in all_of_it if a > at[-1])


class Traced:
    """A kind of fault that fails allocations of any thread in a function of the module, by the call trace."""

    def __init__(self, fault):
        self.base = f"{DEBUG}/{fault}"
        begin, end = text_of_module()
        self.set("require-start", hex(begin))
        self.set("require-end", hex(end))
        self.set("stacktrace-depth", 32)
        self.set("times", 0)
        self.set("probability", 100)
        # The kernel keeps counting across turns, and fails every allocation with a number that is a multiple of
        # the interval. This file has the count of this boot so far.
        self.file = f"/run/passed-{fault}"
        self.passed = int(read(self.file)) if os.path.exists(self.file) else 0

    def set(self, name, value):
        write(f"{self.base}/{name}", str(value))

    def arm(self, n):
        self.set("interval", self.passed + n)
        self.set("times", 1)

    def struck(self, n):
        if read(f"{self.base}/times") != "0":
            return False
        self.passed += n
        write(self.file, str(self.passed))
        return True

    def end(self):
        self.set("times", 0)
        self.set("probability", 0)


def reset(disk):
    fd = os.open(disk, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, SG_SCSI_RESET, bytes([SG_SCSI_RESET_HOST, 0, 0, 0]))
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        os.close(fd)
    return "ok"


def can_read(disk):
    fd = os.open(disk, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 4096)
        return os.preadv(fd, [buffer], 0) == 4096
    finally:
        os.close(fd)


def strike_each(step, what, attempt):
    """Fails one allocation of any thread per attempt. `attempt` returns its outcome after the recovery."""
    outcomes, total = Counter(), 0
    for fault in FAULTS:
        traced = Traced(fault)
        n = 1
        while True:
            watch(f"a {what} in which {fault} {n} strikes")
            traced.arm(n)
            outcome = attempt(f"{fault} {n}")
            if not traced.struck(n):
                break
            outcomes[f"{fault}, {what} {outcome}"] += 1
            n += step
        print(f"{fault}: {n - 1} in a {what}")
        total += n - 1
        # Wait until the fault strikes once more, so that the kernel's count is known.
        until(60, f"{fault} strikes", lambda: attempt("the end") and traced.struck(n))
        traced.end()
    return outcomes, total


def login_and_out(one):
    result = one.do()
    one.undo(result)
    return errno.errorcode.get(result, "ok")


def reset_and_read(host, disk, which):
    state = f"/sys/class/srp_remote_ports/port-{host.removeprefix('host')}:1/state"
    outcome = reset(disk)
    until(30, f"running again, {which}", lambda: read(state) == "running")
    if not can_read(disk):
        sys.exit(f"cannot read, {which}")
    return outcome


def main():
    step = int(os.environ.get("STEP", 1))
    match sys.argv[1:]:
        case ["prepare"]:
            return prepare()
        case ["insmod", path, add_target]:
            fd = os.open(path, os.O_RDONLY)
            unusable = Unusable()
            outcomes, n = sweep(step, lambda: insmod(fd), lambda result: unload(result, add_target, unusable))
        case ["login", path, text]:
            one = Login(path, text)
            outcomes, n = sweep(step, one.do, one.undo)
        case ["others", path, text]:
            one = Login(path, text)
            outcomes, n = strike_each(step, "login", lambda _: login_and_out(one))
        case ["reconnect", host, disk]:
            outcomes, n = strike_each(step, "reset", lambda which: reset_and_read(host, disk, which))
        case _:
            sys.exit(__doc__)
    for what, count in sorted(outcomes.items()):
        print(f"{what}: {count}")
    print(f"allocations: {n}")


main()
