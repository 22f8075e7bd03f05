#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""reader.py DEVICE: reads its first block repeatedly, past the page cache, until a read fails. Prints "reading" after
the first read, and at the end the time of the failure in seconds of the wall clock."""

import mmap
import os
import sys
import time

os.nice(-20)
block = mmap.mmap(-1, 4096)
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
os.preadv(fd, [block], 0)
print("reading", flush=True)
try:
    while True:
        os.preadv(fd, [block], 0)
        time.sleep(0.05)
except OSError:
    print(f"{time.time():.3f}")
