#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Whether the host let this guest run.

gauge.py run FILE
    Each 100 ms a real-time process on each CPU, four at most, does the same work of about two milliseconds, until it is
    killed. How much that is, it finds first: an emulated CPU needs thirty times as long for it. FILE.CPU has a line for each time: when it was done, in microseconds of the wall clock, how late the
    process woke up, and how long the work took.
gauge.py stolen FILE FROM TO
    prints for how many microseconds of that time the guest did not have the CPU that it lacked most.

The guest's own load keeps a real-time process from its CPU only by interrupts and by what the kernel does without
preemption, and slows it down where two CPUs share a core. So 4 ms more than at best, late or slow, are usual, and only
what is beyond counts. What is lost of the time that the process wants to run is lost of the time between, too. Less
than three tenths are noise.
"""

import gc
import glob
import os
import sys
import time

PERIOD = 100_000_000
WORK = 2_000_000
MOST_CPUS = 4
# In microseconds; number of samples judged together; the share of a second that is noise.
USUAL = 4000
TOGETHER = 10
NOISE = 0.3


def work(n):
    for _ in range(n):
        pass


def loops():
    """For WORK nanoseconds at best."""
    n, best = 3_000, []
    while sum(best) < 10 * WORK:
        begun = time.monotonic_ns()
        work(n)
        best.append(time.monotonic_ns() - begun)
    return n * WORK // min(best)


def run(path):
    gc.disable()
    n = loops()
    cpus = sorted(os.sched_getaffinity(0))[:MOST_CPUS]
    me = next((c for c in cpus[1:] if os.fork() == 0), cpus[0])
    os.sched_setaffinity(0, {me})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    out = os.open(f"{path}.{me}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    due = time.monotonic_ns()
    while True:
        # Missed periods are not made up for.
        due = max(due, time.monotonic_ns() - PERIOD) + PERIOD
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        woke = time.monotonic_ns()
        work(n)
        done = time.monotonic_ns()
        os.write(out, b"%d %d %d\n" % (time.time_ns() // 1000, (woke - due) // 1000, (done - woke) // 1000))


def samples(path, until):
    """The samples of a CPU; the one that `until` is in may still be under way."""
    end = time.monotonic() + 20
    while True:
        with open(path) as f:
            lines = [tuple(map(int, line.split())) for line in f if line.endswith("\n")]
        if lines and lines[-1][0] >= until or time.monotonic() > end:
            return lines
        time.sleep(0.05)


def stolen(lines, since, until):
    best = min(took for _, _, took in lines)
    total = 0.0
    for i in range(1, len(lines), TOGETHER):
        part = lines[i : i + TOGETHER]
        lost = sum(max(0, late + took - best - USUAL) for _, late, took in part)
        share = lost / sum(late + took for _, late, took in part)
        if share >= NOISE:
            total += share * max(0, min(part[-1][0], until) - max(lines[i - 1][0], since))
    return int(total)


def main():
    what, path, *period = sys.argv[1:]
    if what == "run":
        run(path)
    since, until = map(int, period)
    print(max(stolen(lines, since, until) for f in glob.glob(f"{path}.*") if (lines := samples(f, until))))


main()
