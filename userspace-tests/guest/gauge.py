#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures whether the host let this guest run.

gauge.py run FILE
    Every 100 ms until it is killed, a real-time process on each CPU, four at most, does the same work of about two
    milliseconds. It first measures how much that is: an emulated CPU is thirty times slower. FILE.CPU has a line for
    each time: when the work was done, in microseconds of the wall clock, how late the process woke up, and how long
    the work took.
gauge.py stolen FILE FROM TO
    prints for how many microseconds between FROM and TO the guest lacked its most starved CPU.

The guest's own load delays a real-time process only by interrupts and non-preemptible kernel code, and slows it down
where two CPUs share a core. So being up to 4 ms late or slow is normal, and only the excess counts. The share that the
process loses of its running time is assumed to be lost of the time between, too. Less than three tenths are noise.
"""

import gc
import glob
import os
import sys
import time

PERIOD = 100_000_000
WORK = 2_000_000
MOST_CPUS = 4
# USUAL: the usual delay of a sample, in microseconds. TOGETHER samples are judged together, and a share of lost time
# below NOISE is noise.
USUAL = 4000
TOGETHER = 10
NOISE = 0.3


def work(n):
    for _ in range(n):
        pass


def loops():
    """Returns the number of loops that take WORK nanoseconds at best."""
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
    """Returns the samples of a CPU. Waits up to 20 s for the one that covers `until`."""
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
