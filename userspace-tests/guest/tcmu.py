#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""tcmu.py NAME MIB RULE [FILE]: a disk in memory behind LIO's user-space back end NAME. With FILE the memory is a
volatile cache, which SYNCHRONIZE CACHE writes to FILE. The file RULE is polled and governs reads and writes:

    pass        all are answered, held ones too
    hold N      each Nth is held until the rule is `pass`
    busy N      each Nth gets status BUSY
    full N      each Nth gets status TASK SET FULL
    flush N     each Nth SYNCHRONIZE CACHE is held until the rule is `pass`, and no read or write
    all N       each Nth command of any kind is held until the rule is `pass`
    grow        the size doubles, and the first read or write gets a unit attention for it

Prints a line when the rule changes: the old rule and how many commands it hit."""

import glob
import mmap
import os
import select
import struct
import sys

PAD, COMMAND = 0, 1
GOOD, CHECK_CONDITION, BUSY, TASK_SET_FULL = 0x00, 0x02, 0x08, 0x28
MEDIUM = {0x08: 6, 0x0A: 6, 0x28: 10, 0x2A: 10, 0x88: 16, 0x8A: 16}
WRITES = (0x0A, 0x2A, 0x8A)
SYNCHRONIZE_CACHE = (0x35, 0x91)

name, size, rule_file = sys.argv[1], int(sys.argv[2]) << 20, sys.argv[3]
disk = bytearray(size)
stable = open(sys.argv[4], "wb", buffering=0) if len(sys.argv) > 4 else None
# A caching mode page with WCE.
CACHING = bytes([8, 18, 4]) + bytes(17) if stable else b""


def sense(key, asc, ascq=0):
    return struct.pack(">BBBIBIBB", 0x70, 0, key, 0, 10, 0, asc, ascq) + bytes(4)


def inquiry(cdb):
    if not cdb[1] & 1:
        return bytes([0, 0, 6, 2, 31, 0, 0, 2]) + b"SRP-TEST" + b"tcmu".ljust(16) + b"1   "
    if cdb[2] == 0x00:
        return bytes([0, 0, 0, 3, 0x00, 0x80, 0x83])
    if cdb[2] == 0x80:
        serial = f"srp-{name}".encode()
        return bytes([0, 0x80, 0, len(serial)]) + serial
    if cdb[2] == 0x83:
        text = f"SRP-TEST{name}".encode()
        return bytes([0, 0x83, 0, len(text) + 4, 2, 1, 0, len(text)]) + text
    return None


class Command:
    """A copy of one ring entry. Other responses reuse the entry."""

    def __init__(self, shared, at):
        _, self.id = struct.unpack_from("<IH", shared, at)
        count, bidi, _, cdb = struct.unpack_from("<III4xQ", shared, at + 8)
        self.pieces = [struct.unpack_from("<QQ", shared, at + 48 + 16 * n) for n in range(count)]
        self.cdb = bytes(shared[cdb : cdb + 16])
        self.medium = self.cdb[0] in MEDIUM

    def span(self):
        c, n = self.cdb, MEDIUM[self.cdb[0]]
        if n == 6:
            return (c[1] & 0x1F) << 16 | c[2] << 8 | c[3], c[4] or 256
        if n == 10:
            return int.from_bytes(c[2:6], "big"), int.from_bytes(c[7:9], "big")
        return int.from_bytes(c[2:10], "big"), int.from_bytes(c[10:14], "big")

    def put(self, shared, data):
        done = 0
        for at, length in self.pieces:
            part = data[done : done + length]
            shared[at : at + len(part)] = bytes(part)
            done += length

    def run(self, shared):
        """Executes the command; returns (status, sense)."""
        c = self.cdb
        if self.medium:
            block, blocks = self.span()
            start, end = block * 512, (block + blocks) * 512
            if end > size:
                return CHECK_CONDITION, sense(5, 0x21)
            if c[0] in WRITES:
                for at, length in self.pieces:
                    length = min(length, end - start)
                    disk[start : start + length] = shared[at : at + length]
                    start += length
            else:
                self.put(shared, memoryview(disk)[start:end])
            return GOOD, b""
        answer = b""
        if c[0] == 0x12:
            answer = inquiry(c)
        elif c[0] == 0x25:
            answer = struct.pack(">II", size // 512 - 1, 512)
        elif c[0] == 0x9E and c[1] & 0x1F == 0x10:
            answer = struct.pack(">QI20x", size // 512 - 1, 512)
        elif c[0] == 0x1A:
            answer = bytes([3 + len(CACHING), 0, 0, 0]) + CACHING
        elif c[0] == 0x5A:
            answer = bytes([0, 6 + len(CACHING), 0, 0, 0, 0, 0, 0]) + CACHING
        elif c[0] in SYNCHRONIZE_CACHE:
            if stable:
                os.pwrite(stable.fileno(), disk, 0)
        elif c[0] not in (0x00, 0x1B, 0x2F, 0x8F):
            return CHECK_CONDITION, sense(5, 0x20)
        if answer is None:
            return CHECK_CONDITION, sense(5, 0x24)
        self.put(shared, answer)
        return GOOD, b""


class Ring:
    def __init__(self):
        for path in glob.glob("/sys/class/uio/uio*"):
            with open(f"{path}/name") as f:
                if f"/{name}/" in f.read() + "/":
                    break
        else:
            sys.exit(f"no UIO device of back end {name}")
        with open(f"{path}/maps/map0/size") as f:
            length = int(f.read(), 16)
        self.fd = os.open(f"/dev/{os.path.basename(path)}", os.O_RDWR)
        self.shared = mmap.mmap(self.fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        _, flags, self.start, self.length = struct.unpack_from("<HHII", self.shared, 0)
        if not flags & 1:
            sys.exit("this kernel cannot answer out of order")
        self.next = self.tail()

    def head(self):
        return struct.unpack_from("<I", self.shared, 12)[0]

    def tail(self):
        return struct.unpack_from("<I", self.shared, 64)[0]

    def entries(self):
        """Yields the new commands."""
        while self.next != self.head():
            at = self.start + self.next
            word = struct.unpack_from("<I", self.shared, at)[0]
            if word & 7 == COMMAND:
                yield Command(self.shared, at)
            self.next = (self.next + (word & ~7)) % self.length

    def answer(self, command, status, data):
        """Writes the response to the oldest entry, even if that held another command."""
        tail = self.tail()
        while True:
            at = self.start + tail
            word = struct.unpack_from("<I", self.shared, at)[0]
            tail = (tail + (word & ~7)) % self.length
            if word & 7 == COMMAND:
                break
        struct.pack_into("<H", self.shared, at + 4, command.id)
        struct.pack_into("<BBHI96s", self.shared, at + 8, status, 0, 0, 0, data)
        struct.pack_into("<I", self.shared, 64, tail)

    def kick(self):
        os.write(self.fd, bytes(4))

    def wait(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            os.read(self.fd, 4)


def rule():
    try:
        with open(rule_file) as f:
            verb, _, n = f.read().strip().partition(" ")
            return verb or "pass", int(n or 1)
    except (OSError, ValueError):
        return "pass", 1


ring = Ring()
held, hits, seen, current = [], 0, 0, rule()
print("ready", flush=True)
while True:
    new = rule()
    if new != current:
        print(current[0], hits, flush=True)
        current, hits, seen = new, 0, 0
        if new[0] == "grow":
            disk.extend(bytes(size))
            size *= 2
    verb, every = current
    answered = False
    if verb == "pass":
        for c in held:
            ring.answer(c, *c.run(ring.shared))
            answered = True
        held = []
    for c in ring.entries():
        status, data = None, b""
        if verb == "all" or (c.cdb[0] in SYNCHRONIZE_CACHE if verb == "flush" else c.medium):
            seen += 1
            if verb != "pass" and seen % every == 0:
                hits += 1
                if verb in ("hold", "flush", "all"):
                    held.append(c)
                    continue
                if verb in ("busy", "full"):
                    status = BUSY if verb == "busy" else TASK_SET_FULL
                elif hits == 1:
                    status, data = CHECK_CONDITION, sense(6, 0x2A, 9)
        if status is None:
            status, data = c.run(ring.shared)
        ring.answer(c, status, data)
        answered = True
    if answered:
        ring.kick()
    ring.wait(0.02)
