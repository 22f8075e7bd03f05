#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""peers.py with the marks of paths.c instead of those of counts.c."""

import array
import ctypes
import os
import re
import time

import measure
import peers

# Seconds between the mark with the table and the start of counting: every function must have been seen on its stack
# once. With several CPUs the guest uses the host's clock, so less happens per second.
KNOWN, KNOWN_SMP = 0.03, 1
POLLS = "/sys/module/ib_srp/parameters/poll_queues"
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
            self.marks.known = measure.RAMP = KNOWN_SMP * int(args.cpus) / 4
        self.polls = "-polled" in args.only
        if self.polls:
            peers.PEERS["nvme"].options += ",nr_poll_queues=1"

    def load(self, path):
        super().load(path)
        if self.polls and os.path.exists(POLLS):
            measure.write(POLLS, "1")

    def turns(self):
        wanted = os.environ.get("INITIATORS")
        return [turn for turn in super().turns() if not wanted or turn.args[0] in wanted.split(",")]

    def note_symbols(self):
        super().note_symbols()
        self.marks.note()

    def run(self, rnd, variant, w):
        """Runs a workload. With `none` in its name there is no I/O scheduler, which a disk with one hardware queue has
        by default; `polled` needs a queue without interrupts."""
        if "polled" in w["name"].split("-") and variant not in ("rust", "nvme"):
            return
        scheduler = f"{peers.queue(self.disks[0])}/scheduler"
        before = re.search(r"\[(.*)\]", measure.read(scheduler))[1]
        if "none" in w["name"].split("-"):
            measure.write(scheduler, "none")
        super().run(rnd, variant, w)
        measure.write(scheduler, before)

    def fio(self, w, disks, more):
        """With `uring` or `polled` in the name of a workload it is io_uring at any depth, with `fixed` it has
        registered buffers. All I/O beside a polled one is by idle tasks, which give way to both ends at once."""
        words, more = w["name"].split("-"), dict(more)
        if "uring" in words or "polled" in words:
            more["ioengine"] = "io_uring"
        if "polled" in words:
            more["hipri"] = 1
        if "fixed" in words:
            more |= {"ioengine": "io_uring", "fixedbufs": 1}
        p, text = super().fio(w, disks, more)
        if self.polls:
            os.sched_setscheduler(p.pid, os.SCHED_IDLE, os.sched_param(0))
        return p, text


if __name__ == "__main__":
    # iSCSI over TCP does no RDMA.
    del peers.PEERS["iscsi"]
    Path(measure.arguments()).main()
