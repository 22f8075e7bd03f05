#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Verified I/O by many paths to one disk, each with its own blocks.

many.py FILE DEVICE... writes a block by each path and reads it back, repeatedly, until SIGTERM. FILE has a line for
each 0.1 s: the time in microseconds, the oldest of the paths' last successes, and the number of successes. Prints one
line of name=value words and exits with status 1 if a read returned wrong data.
"""

import mmap
import os
import signal
import struct
import sys
import threading
import time

BLOCK, BLOCKS, PAUSE = 4096, 64, 1


def now():
    return time.time_ns() // 1000


class Path:
    def __init__(self, number, device):
        self.number = number
        self.fd = os.open(device, os.O_RDWR | os.O_DIRECT)
        self.last, self.ios, self.errors, self.wrong, self.turn = 0, 0, 0, 0, 0

    def once(self, buffer):
        self.turn += 1
        at = (self.number * BLOCKS + self.turn % BLOCKS) * BLOCK
        text = struct.pack("<QQ", self.number, self.turn) * (BLOCK // 16)
        try:
            buffer[:] = text
            os.pwritev(self.fd, [buffer], at)
            buffer[:] = bytes(BLOCK)
            os.preadv(self.fd, [buffer], at)
        except OSError:
            self.errors += 1
            return
        self.wrong += buffer[:] != text
        self.last, self.ios = now(), self.ios + 1

    def run(self, stop):
        with mmap.mmap(-1, BLOCK) as buffer:
            # Spread the start.
            stop.wait(PAUSE * (self.number % 16) / 16)
            while not stop.is_set():
                self.once(buffer)
                stop.wait(PAUSE)


def main():
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    paths = [Path(n, device) for n, device in enumerate(sys.argv[2:])]
    threads = [threading.Thread(target=p.run, args=(stop,), daemon=True) for p in paths]
    for t in threads:
        t.start()
    with open(sys.argv[1], "w", buffering=1) as out:
        while not stop.wait(0.1):
            print(now(), min(p.last for p in paths), sum(p.ios for p in paths), file=out)
    end = time.monotonic() + 40
    for t in threads:
        t.join(max(0, end - time.monotonic()))
    stuck = sum(t.is_alive() for t in threads)
    wrong = sum(p.wrong for p in paths)
    print(
        f"ios={sum(p.ios for p in paths)} errors={sum(p.errors for p in paths)} wrong={wrong} stuck={stuck}", flush=True
    )
    os._exit(1 if wrong else 0)


main()
