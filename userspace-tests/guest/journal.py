#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Verified I/O with a journal of acknowledged writes.

journal.py run DEVICE JOURNAL [--rport PORT] [--threads N] [--at MIB] [--mib N] [--pause SECONDS]
    writes and reads the --mib (8) of DEVICE from --at (0) on until SIGTERM, then saves the acknowledged writes in
    JOURNAL, prints one line of name=value words and exits with status 1 if a read returned wrong data. JOURNAL.events
    has a line for each event: `MICROSECONDS WORD ...` with `ok GAP` for a success after more than 200 ms without any,
    `waited TIME` for one that took more than 200 ms, `wrote` for the first write, `count N` successes so far,
    `error ERRNO OPERATION BLOCK`, `wrong TEXT`, and, with --rport, `state STATE` for each state of the remote port and
    `gone` at its end.
journal.py check DEVICE JOURNAL
    compares the target's back end with JOURNAL; prints one line as above.

The disk is divided into one extent per thread, and a block is never written concurrently. A block contains its number
and that of its write. After an acknowledged write, it must contain that write or a later one that failed: a failed
write may take effect or not, but not after a later one succeeded.
"""

import argparse
import json
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time

BLOCK = 4096
HEAD = struct.Struct("<8sQQQ")
# Blocks per request: immediate data, one region, several pages.
RUNS = (1, 1, 1, 4, 16)
SLOTS = 16


def content(block, number):
    return b"".join(HEAD.pack(b"journal\0", block, number, s) * (512 // HEAD.size) for s in range(BLOCK // 512))


def found(data):
    """Returns the (block, write) that a block contains, or None if it is damaged."""
    _, block, number, _ = HEAD.unpack_from(data)
    return (block, number) if data == content(block, number) else None


def now():
    return time.time_ns() // 1000


class Journal:
    def __init__(self, blocks):
        self.acked = [0] * blocks  # last acknowledged write; 0 is none
        self.tried = [0] * blocks  # last write sent

    def judge(self, block, data):
        """Returns None, or what is wrong with `data` as the content of `block`."""
        acked, tried = self.acked[block], self.tried[block]
        if not tried:
            return None
        if not any(data):
            return f"lost: block {block} is empty, write {acked} was acknowledged" if acked else None
        got = found(data)
        if got is None:
            return f"corrupt: block {block} begins {bytes(data[:32]).hex()}"
        if got[0] != block:
            return f"corrupt: block {block} has the content of block {got[0]}"
        if got[1] < acked:
            return f"stale: block {block} has write {got[1]}, {acked} was acknowledged"
        if got[1] > tried:
            return f"corrupt: block {block} has write {got[1]}, the last one was {tried}"
        return None


class Run:
    def __init__(self, a):
        self.a = a
        self.fd = os.open(a.device, os.O_RDWR | os.O_DIRECT)
        self.blocks = a.mib * 256
        self.first = a.at * 256
        self.journal = Journal(self.first + self.blocks)
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.count = dict(writes=0, reads=0, errors=0, wrong=0)
        self.last = now()
        self.longest = 0
        self.pings = 0
        self.out = open(a.journal + ".events", "w", buffering=1)

    def event(self, *words):
        with self.lock:
            print(now(), *words, file=self.out)

    def done(self, what, begun):
        with self.lock:
            t = now()
            gap, self.last = t - self.last, t
            self.longest = max(self.longest, gap)
            self.count[what] += 1
            if what == "writes" and self.count[what] == 1:
                print(t, "wrote", file=self.out)
            if gap > 200000:
                print(t, "ok", gap, file=self.out)
            if t - begun > 200000:
                print(t, "waited", t - begun, file=self.out)

    def failed(self, e, what, block):
        with self.lock:
            self.count["errors"] += 1
            print(now(), "error", e.errno, what, block, file=self.out)
        self.stop.wait(0.1)

    def wrong(self, text):
        self.count["wrong"] += 1
        self.event("wrong", text)

    def write(self, buffer, first, n):
        j = self.journal
        for i in range(n):
            j.tried[first + i] += 1
            buffer[i * BLOCK:(i + 1) * BLOCK] = content(first + i, j.tried[first + i])
        begun = now()
        try:
            with memoryview(buffer) as m:
                if os.pwrite(self.fd, m[: n * BLOCK], first * BLOCK) != n * BLOCK:
                    raise OSError(5, "short write")
        except OSError as e:
            return self.failed(e, "write", first)
        for i in range(n):
            j.acked[first + i] = j.tried[first + i]
        self.done("writes", begun)

    def read(self, buffer, first, n):
        begun = now()
        try:
            with memoryview(buffer) as m:
                if os.preadv(self.fd, [m[: n * BLOCK]], first * BLOCK) != n * BLOCK:
                    raise OSError(5, "short read")
        except OSError as e:
            return self.failed(e, "read", first)
        self.done("reads", begun)
        for i in range(n):
            if why := self.journal.judge(first + i, buffer[i * BLOCK:(i + 1) * BLOCK]):
                self.wrong(why)

    def worker(self, number):
        size = (self.blocks - 1) // self.a.threads
        base = self.first + 1 + number * size
        rng = random.Random(number)
        buffer = mmap.mmap(-1, max(RUNS) * BLOCK)
        while not self.stop.is_set():
            io = self.read if rng.random() < 0.4 else self.write
            n = min(rng.choice(RUNS), size, self.a.longest if io == self.write else size)
            io(buffer, base + rng.randrange(size - n + 1), n)
            self.stop.wait(self.a.pause)

    def ping(self):
        """Reads block 0, which is never written."""
        try:
            with mmap.mmap(-1, BLOCK) as buffer:
                os.preadv(self.fd, [buffer], 0)
        except OSError:
            pass
        with self.lock:
            self.pings -= 1

    def ticker(self):
        """Sends a new command soon after all are stuck, because only a transmission detects a dead connection. At most
        one every 5 s: each restarts rxe's timeout."""
        pinged = 0
        while not self.stop.wait(0.1):
            t = now()
            if t - self.last > 250000 and t - pinged > 5000000 and self.pings < SLOTS:
                pinged = t
                with self.lock:
                    self.pings += 1
                threading.Thread(target=self.ping, daemon=True).start()

    def watcher(self):
        rport = "/sys/class/srp_remote_ports/" + self.a.rport
        state = None
        while not self.stop.is_set():
            try:
                with open(rport + "/state") as f:
                    new = f.read().strip()
            except OSError:
                if not os.path.exists(rport):
                    self.event("gone")
                    return
                new = "none"
            if new != state:
                state = new
                self.event("state", state)
            self.stop.wait(0.02)

    def main(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stop.set())
        threads = [threading.Thread(target=self.worker, args=(t,), daemon=True) for t in range(self.a.threads)]
        others = [threading.Thread(target=self.ticker, daemon=True)]
        if self.a.rport:
            others.append(threading.Thread(target=self.watcher, daemon=True))
        for t in threads + others:
            t.start()
        while not self.stop.wait(0.5):
            self.event("count", self.count["writes"] + self.count["reads"])
        end = time.monotonic() + self.a.grace
        for t in threads:
            t.join(max(0, end - time.monotonic()))
        stuck = sum(t.is_alive() for t in threads)
        with open(self.a.journal, "w") as f:
            json.dump({"acked": self.journal.acked, "tried": self.journal.tried}, f)
        print(*(f"{k}={v}" for k, v in self.count.items()), f"longest={self.longest} stuck={stuck}", flush=True)
        os._exit(1 if self.count["wrong"] else 0)


def check(a):
    with open(a.journal) as f:
        saved = json.load(f)
    j = Journal(len(saved["acked"]))
    j.acked, j.tried = saved["acked"], saved["tried"]
    fd = os.open(a.device, os.O_RDONLY | (os.O_DIRECT if a.device.startswith("/dev/") else 0))
    step = 256
    wrong = dict(lost=0, stale=0, corrupt=0)
    with mmap.mmap(-1, step * BLOCK) as buffer:
        for first in range(0, len(j.acked), step):
            if not any(j.tried[first : first + step]):
                continue
            os.preadv(fd, [buffer], first * BLOCK)
            for i in range(min(step, len(j.acked) - first)):
                if why := j.judge(first + i, buffer[i * BLOCK:(i + 1) * BLOCK]):
                    wrong[why.split(":")[0]] += 1
                    print(why, file=sys.stderr)
    print(f"blocks={sum(map(bool, j.acked))}", *(f"{k}={v}" for k, v in wrong.items()))
    return 1 if any(wrong.values()) else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("run", "check"))
    p.add_argument("device")
    p.add_argument("journal")
    p.add_argument("--rport")
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--at", type=int, default=0)
    p.add_argument("--mib", type=int, default=8)
    p.add_argument("--pause", type=float, default=0.02)
    p.add_argument("--longest", type=int, default=max(RUNS), help="blocks in a write")
    p.add_argument("--grace", type=float, default=40)
    a = p.parse_args()
    if a.what == "check":
        return check(a)
    Run(a).main()


sys.exit(main())
