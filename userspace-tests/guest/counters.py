#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""counters.py HOST FILE...: reads the counters, last_error and these files of a SCSI host repeatedly until the host is
gone. Prints "reading" after the first round, and at the end the number of rounds. No counter may decrease."""

import os
import sys
import time

folder = f"/sys/class/scsi_host/{sys.argv[1]}"
words = [f"{folder}/{name}" for name in (*sys.argv[2:], "last_error")]
counters = [f"{folder}/statistics/{name}" for name in os.listdir(f"{folder}/statistics")]
last = {}
rounds = 0


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


try:
    while True:
        for path in words:
            read(path)
        for path in counters:
            now = [int(number) for number in read(path).split()]
            before = last.get(path, now)
            if len(now) != len(before) or any(a > b for a, b in zip(before, now)):
                sys.exit(f"{path}: {before}, then {now}")
            last[path] = now
        rounds += 1
        if rounds == 1:
            print("reading", flush=True)
        time.sleep(0.005)
except OSError:
    # The files disappear before the host does.
    for _ in range(300):
        if not os.path.exists(folder):
            break
        time.sleep(0.1)
    else:
        raise
    print(rounds)
