#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""peers.py with the marks of paths.c instead of those of counts.c."""

import array
import ctypes
import re
import time

import measure
import peers

# Seconds between the mark with the table and the start of counting: every function must have been seen on its stack
# once. With several CPUs the guest uses the host's clock, so less happens per second.
KNOWN, KNOWN_SMP = 0.03, 1
# Bits that are cleared in the table (see paths.c). TREE is cleared for functions that start an interrupt.
TREE, CHANGE = 1 << 63, 1 << 62
INTERRUPT = re.compile(r"asm_(sysvec_|common_interrupt$|exc_)")


class Marks(measure.Marks):
    """Marks that also pass the start addresses of the kernel's functions."""

    def __init__(self):
        super().__init__()
        at = ctypes.cast(self.begin, ctypes.c_void_p).value
        self.mark = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(at)
        self.begin = self.begin_known
        self.known = KNOWN
        self.note()

    def note(self):
        starts = {}
        with open("/proc/kallsyms") as f:
            for line in f:
                if line[17] in "tTwW":
                    name = line[19:].split()[0]
                    flags = TREE if INTERRUPT.match(name) else CHANGE if name == "__switch_to" else 0
                    starts[int(line[:16], 16)] = flags | starts.get(int(line[:16], 16), 0)
        self.table = array.array("Q", (start & ~flags for start, flags in sorted(starts.items())))

    def begin_known(self):
        address, n = self.table.buffer_info()
        self.mark(address, n)
        time.sleep(self.known)
        self.mark(None, 0)


class Path(peers.Peers):
    def __init__(self, args):
        super().__init__(args)
        self.marks = Marks()
        # Most of the guest's activity is outside of the counted time.
        measure.RAMP = 2 * KNOWN
        if args.cpus != "1":
            self.marks.known = measure.RAMP = KNOWN_SMP

    def note_symbols(self):
        super().note_symbols()
        self.marks.note()

    def run(self, rnd, variant, w):
        """Runs a workload named `...-none` without the I/O scheduler, which a disk with one hardware queue has by
        default."""
        scheduler = f"{peers.queue(self.disks[0])}/scheduler"
        before = re.search(r"\[(.*)\]", measure.read(scheduler))[1]
        if w["name"].endswith("-none"):
            measure.write(scheduler, "none")
        super().run(rnd, variant, w)
        measure.write(scheduler, before)


if __name__ == "__main__":
    # iSCSI over TCP does no RDMA.
    del peers.PEERS["iscsi"]
    Path(measure.arguments()).main()
