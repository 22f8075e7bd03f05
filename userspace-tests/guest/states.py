#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""states.py RPORT: prints "BEFORE AT STATE" for each change of a remote port's state in sysfs, and "BEFORE AT gone"
when the port is gone. The state changed between the two times, in seconds of the wall clock: the reads before and
after."""

import os
import sys
import time

path = f"/sys/class/srp_remote_ports/{sys.argv[1]}/state"
os.nice(-20)
last = None
before = time.time()
while last != "gone":
    began = time.time()
    try:
        with open(path) as f:
            state = f.read().strip()
    except OSError:  # ENODEV from an attribute under removal
        state = "gone"
    if state != last:
        print(f"{before:.3f} {time.time():.3f} {state}", flush=True)
        last = state
    before = began
    time.sleep(0.005)
