#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures how ours and C scale with sessions, logical units, channels and targets, one at a time, in turns.

guest.sh creates the targets. Their curve is on ib_vfab: a session with each target through either port of one adapter.
Each point begins and ends without the module, and ends by rmmod with everything logged in. Writes one JSON line for
each figure, as measure.py does."""

import contextlib
import glob
import mmap
import os
import re
import subprocess
import threading
import time

import measure
from measure import gid_of, read, wait, write

# The curves and their points.
CURVES = {
    "sessions": (1, 2, 4, 8, 16, 32, 64),
    "luns": (1, 4, 16, 64, 256, 1024),
    "targets": (1, 2, 4, 8),
    "channels": (1, 2, 4, 8, 16),
}
# Initiator extensions: UNITS + N is granted N logical units, SESSIONS + N is session N, and N is the one with target N.
UNITS, SESSIONS = 0x10000, 0x20000
# Seconds that the target's ports are off, and that I/O is counted.
OFF, BUSY = 2, 0.5
PATIENCE = 600
TARGETS = "/sys/kernel/config/target/srpt/0x*/0x*"


class Scale(measure.Bench):
    def prepare(self):
        """Creates the initiator ports for the curves, and logical units that all map the target's first one."""
        curves = self.args.only.split(",")
        self.enables = [path for path in glob.glob(f"{TARGETS}/enable") if read(path) == "1"]
        if "targets" in curves:
            self.two_ports()
            return
        units = CURVES["luns"] if "luns" in curves else ()
        sessions = max(CURVES["sessions"]) if "sessions" in curves else 0
        ports = [(SESSIONS + n, 1) for n in range(1, sessions + 1)]
        (target,) = glob.glob(TARGETS)
        measure.grant(target, [*ports, *((UNITS + n, n) for n in units)], gid_of("rxe0", 1))

    def two_ports(self):
        """Lets each target accept one session from either port of the last adapter."""
        self.gids = [gid_of(f"vfab{n // 2}", n % 2 + 1) for n in range(max(CURVES["targets"]))]
        for n, gid in enumerate(self.gids):
            (folder,) = glob.glob(f"{TARGETS.rpartition('/')[0]}/0x{gid}")
            for port in 1, 2:
                acl = f"{folder}/acls/{n:#018x}{gid_of('vfab4', port)[16:]}"
                with contextlib.suppress(FileExistsError):
                    os.makedirs(f"{acl}/lun_0")
                    os.symlink(f"{folder}/lun/lun_0", f"{acl}/lun_0/unit")

    def logins(self, curve, n):
        """Returns for each login the numbers of target and port, or None if there is only one, and the options."""
        if curve == "sessions":
            return [(None, f"initiator_ext={SESSIONS + i:x},ch_count=1") for i in range(1, n + 1)]
        if curve == "targets":
            return [((i, port), f"initiator_ext={i:x},ch_count=1") for i in range(n) for port in (1, 2)]
        return [(None, f"initiator_ext={UNITS + n:x},ch_count=1" if curve == "luns" else f"ch_count={n}")]

    def log_in(self, ports, options):
        file, text = self.args.add_target, self.args.login
        if ports:
            file = file.replace("vfab4-1", f"vfab4-{ports[1]}")
            text = text.replace(self.gids[0], self.gids[ports[0]])
        for _ in range(20):
            try:
                return write(file, f"{text},{options}")
            except FileExistsError:
                # The target still has the previous session.
                time.sleep(0.3)
        raise SystemExit(f"{options}: still logged in")

    def one_by_one(self, logins, disks):
        for l in logins:
            self.log_in(*l)
        self.wait_disks(disks)

    def at_once(self, logins, disks):
        failed = []

        def log_in(*l):
            try:
                self.log_in(*l)
            except (OSError, SystemExit) as e:
                failed.append(f"{l}: {e}")

        threads = [threading.Thread(target=log_in, args=l) for l in logins]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise SystemExit("\n".join(failed))
        self.wait_disks(disks)

    def wait_disks(self, n):
        def there():
            found = os.listdir("/sys/class/scsi_disk")
            return len(found) == n and all(
                self.disk(f"host{at.partition(':')[0]}", at.rpartition(":")[2]) for at in found
            )

        wait(f"{n} disks", there, PATIENCE, min(n / 2000, 0.005))

    def disk_names(self):
        return [
            self.disk(f"host{at.partition(':')[0]}", at.rpartition(":")[2]) for at in os.listdir("/sys/class/scsi_disk")
        ]

    def log_out_all(self):
        for path in glob.glob("/sys/class/srp_remote_ports/*/delete"):
            write(path, "1")
        wait("no host", lambda: not self.hosts(), PATIENCE, 0.005)

    def running(self):
        # No remote ports are added or removed while this runs.
        return all(read(path) == "running" for path in glob.glob("/sys/class/srp_remote_ports/*/state"))

    def first_reads(self, disks):
        """Reads a block of each disk, past the page cache."""
        with mmap.mmap(-1, 4096) as block:
            for disk in disks:
                fd = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
                os.preadv(fd, [block], 0)
                os.close(fd)

    def enable(self, on):
        for path in self.enables:
            write(path, on)

    def timed(self, key, what, action, *arguments):
        self.marks.begin()
        began = time.monotonic_ns()
        action(*arguments)
        ns = time.monotonic_ns() - began
        self.put("scale", **key, what=what, ns=ns, seq=self.marks.end())

    def value(self, key, what, value):
        self.put("scale", **key, what=what, value=value, seq=None)

    def flap(self, key, disks):
        """Measures from the return of the ports to the first read of the last disk, and counts the lines in the log."""
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(log, 0, os.SEEK_END)
        self.enable("0")
        time.sleep(OFF)
        if self.running():
            raise SystemExit("no session has lost its connection")

        def back():
            self.enable("1")
            wait("all sessions to run", self.running, PATIENCE, 0.02)
            self.first_reads(disks)

        self.timed(key, "flap", back)
        self.value(key, "log lines", self.lines_of(log))
        os.close(log)

    def lines_of(self, log):
        """Counts the lines of the driver and of the transport class from the position of `log` on."""
        n = 0
        # End of the log (EAGAIN).
        with contextlib.suppress(BlockingIOError):
            while True:
                n += bool(re.search(rb"\bib_srp\b|scsi host|rport-", os.read(log, 8192)))
        return n

    def queue_pairs(self):
        """Returns the number of queue pairs of both ends."""
        said = subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True, check=True).stdout
        return sum(map(int, re.findall(r" qp (\d+)", said)))

    def settle(self):
        """Waits until the target, too, has torn down the last sessions."""
        wait("the target to forget them", lambda: self.queue_pairs() == self.idle, PATIENCE)

    def kernel_threads(self):
        n = 0
        for path in glob.glob("/proc/[0-9]*/stat"):
            # A process may end during this.
            with contextlib.suppress(OSError):
                n += read(path).rpartition(")")[2].split()[1] == "2"
        return n

    def busy(self, key, disks):
        """Measures 4 KiB reads of all disks at the same time."""
        w = {
            "cpus": self.args.cpus,
            "rw": "randread",
            "bs": "4k",
            "qd": "4",
            "jobs": str(max(len(disks), int(self.args.cpus))),
        }
        idle = self.sectors(disks)
        p, text = self.fio(
            w, disks, {"thread": 1, "time_based": 1, "runtime": f"{(BUSY + 3 * measure.RAMP) * 1000:.0f}ms"}
        )
        p.stdin.write(text)
        p.stdin.close()
        p.stdin = None
        wait("I/O", lambda: self.sectors(disks) > idle or p.poll() is not None)
        time.sleep(measure.RAMP)
        self.marks.begin()
        began, before = time.monotonic_ns(), self.done(disks)
        time.sleep(BUSY)
        ns, after = time.monotonic_ns() - began, self.done(disks)
        self.put("scale", **key, what="busy", ns=ns, seq=self.marks.end(), ios=after[0] - before[0])
        output = measure.output_of(p, "fio")
        if p.returncode:
            raise SystemExit(f"fio failed:\n{output}")

    def point(self, rnd, variant, path, curve, n):
        key = {"round": rnd, "variant": variant, "curve": curve, "n": n}
        logins = self.logins(curve, n)
        disks = n if curve == "luns" else len(logins)
        self.settle()
        self.load(path)
        self.note_symbols()
        if curve in ("sessions", "targets"):
            self.timed(key, "logins at once", self.at_once, logins, disks)
            self.timed(key, "logout", self.log_out_all)
        self.settle()
        free, threads = measure.free_memory(), self.kernel_threads()
        self.timed(key, "logins", self.one_by_one, logins, disks)
        self.value(key, "memory", free - measure.free_memory())
        self.value(key, "threads", self.kernel_threads() - threads)
        names = self.disk_names()
        if curve != "luns":
            self.busy(key, names)
        self.flap(key, names)
        self.timed(key, "rmmod", self.unload)
        wait("no host", lambda: not self.hosts())
        print(f"round {rnd} {variant:5} {curve} {n}", flush=True)

    def driver(self, name, path, rnd, points):
        for curve, n in points:
            self.point(rnd, name, path, curve, n)

    def main(self):
        a = self.args
        points = [(c, n) for c in a.only.split(",") for n in CURVES[c]]
        self.machine()
        self.prepare()
        self.idle = self.queue_pairs()
        # Round 0 does not count: it starts with few kernel threads.
        for rnd in range(a.rounds + 1):
            for turn in self.turns()[:: 1 if rnd % 2 else -1]:
                turn(rnd, points if rnd else points[:1])
        self.put("end")


Scale(measure.arguments()).main()
