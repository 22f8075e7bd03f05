# SPDX-License-Identifier: GPL-2.0
"""The plugin's counts, by function and by part of the kernel."""

import array
import base64
import bisect
import json
import os
import re
import struct
import sys
import zlib

# Parts, each with a pattern for `function module`. The first match counts.
PARTS = (
    # Functions of the kernel's Rust code that the driver calls count as the driver's.
    ("ib_srp", r".* ib_srp$|(rust_|_R)\S* $"),
    # Loaded only by `make bench-peers`.
    ("peer", r".* (nvme_\w+|rnbd_client|rtrs_client|rtrs_core|ib_iser|iscsi_tcp|libiscsi\w*|scsi_transport_iscsi)$"),
    ("scsi, sd, blk", r".* (scsi_\w+|sd_mod)$|(__)?(blk|bio|blkdev|sbitmap|submit_bio|disk|dd|elv|bdev|scsi)_\S* "),
    ("ib_core", r".* (ib_core|rdma_cm|ib_cm)$"),
    ("rxe", r".* rdma_rxe$"),
    ("target", r".* (ib_srpt|target_core\w+|null_blk|nvmet\w*|rnbd_server|rtrs_server|ib_isert|iscsi_target_mod)$"),
    ("user", r"user $"),
    ("other kernel", r""),
)
PARTS = tuple((name, re.compile(pattern)) for name, pattern in PARTS)

# Name of each call counter, and the functions that it counts, of initiator and target together.
CALLS = {
    "send doorbells": ("rxe_post_send",),
    "receive doorbells": ("rxe_post_recv",),
    "registrations": ("rxe_reg_fast_mr",),
    "invalidations": ("rxe_invalidate_mr",),
    "completions": ("rxe_cq_post",),
    "spinlocks": ("_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_lock_irq", "_raw_spin_lock_bh"),
    "device interrupts": ("common_interrupt",),
    "commands": ("scsi_done",),
    "ksoftirqd woken": ("ksoftirqd_should_run",),
}


def symbols(encoded):
    """Returns (address, name, module) for each line of kallsyms."""
    out = []
    for line in zlib.decompress(base64.b64decode(encoded)).decode().splitlines():
        address, _, name, *module = line.split()
        out.append((int(address, 16), name, module[0].strip("[]") if module else ""))
    return out


class Names:
    """Maps addresses to functions while one build of ib_srp is loaded."""

    def __init__(self, others, own):
        end = max(a for a, *_ in own) | 0xFFF
        # Sections freed after init still have symbols, at addresses that a module may use later.
        page = {a >> 12 for a, *_ in own}
        table = [s for s in others if s[0] >> 12 not in page] + own + [(end + 1, "?", "")]
        table.sort(key=lambda s: s[0])
        self.starts = [s[0] for s in table]
        self.table = table
        self.known = {0: ((0, "user", ""), "user")}

    def __getitem__(self, address):
        if (found := self.known.get(address)) is None:
            i = bisect.bisect_right(self.starts, address) - 1
            symbol = self.table[i] if i >= 0 else (0, "?", "")
            key = f"{symbol[1]} {symbol[2]}"
            part = next(name for name, pattern in PARTS if pattern.match(key))
            found = self.known[address] = symbol, part
        return found


class Profile:
    """Instructions by part and function, and calls, between two marks."""

    def __init__(self, triples, names):
        self.total = 0
        self.parts = dict.fromkeys((p for p, _ in PARTS), 0)
        self.functions = {}
        entries = {}
        for at in range(0, len(triples), 3):
            address, insns, executions = triples[at : at + 3]
            n = insns * executions
            (start, name, module), part = names[address]
            self.total += n
            self.parts[part] += n
            key = f"{name} [{module}]" if module else name
            self.functions[key] = self.functions.get(key, 0) + n
            # A call executes the first block of the function.
            if address == start:
                entries[name] = entries.get(name, 0) + executions
        if not self.parts["peer"]:
            del self.parts["peer"]
        self.calls = {what: sum(entries.get(f, 0) for f in those) for what, those in CALLS.items()}


def records(f, width=3):
    """Yields the tuples between each pair of marks, in order, as one flat array."""
    while head := f.read(8):
        (n,) = struct.unpack("=Q", head)
        tuples = array.array("Q")
        tuples.frombytes(f.read(8 * width * n))
        yield tuples


def lines(path):
    with open(path, "rb") as f:
        for line in f:
            if line.startswith(b"\0"):
                return
            yield json.loads(line)


def figures(name, machine, width=3, make=Profile):
    """Yields, for each line of NAME.disk, its kind, its fields and the profile between its marks, or None without
    counts. `make` builds the profile from the `width`-tuples of NAME.counts. `machine` gets the guest's description of
    itself. Exits if NAME.disk is incomplete."""
    profiles = records(open(f"{name}.counts", "rb"), width) if os.path.exists(f"{name}.counts") else None
    others, names, sequence = [], None, -1
    for line in lines(f"{name}.disk"):
        kind = line.pop("kind")
        if kind == "machine":
            machine.update(line)
        elif kind == "symbols" and not line["ib_srp"]:
            others = symbols(line["text"])
        elif kind == "symbols":
            names = Names(others, symbols(line["text"]))
        elif kind == "end":
            return
        else:
            triples = None
            while profiles and line.get("seq") is not None and sequence < line["seq"]:
                triples = next(profiles)
                sequence += 1
            yield kind, line, make(triples, names) if triples is not None else None
    sys.exit(f"{name}.disk is not complete")
