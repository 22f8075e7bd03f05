#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""sgio.py DEVICE LARGEST: SCSI commands through SG_IO with odd lengths, no data, residuals, scattered and unaligned
user buffers, and errors with sense data. LARGEST is the largest transfer in bytes that fits the queue limits for any
buffer. Exits with a message at the first failure."""
import ctypes, fcntl, os, struct, sys

from sgheader import IN, NONE, OUT, SG_IO, Hdr

class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

largest = int(sys.argv[2])
fd = os.open(sys.argv[1], os.O_RDWR)
checks = 0

def sg(cdb, direction=NONE, length=0, buf=None, offset=0, iov=None):
    h = Hdr(
        interface_id=ord("S"),
        dxfer_direction=direction,
        cmd_len=len(cdb),
        mx_sb_len=96,
        dxfer_len=length,
        timeout=20000,
    )
    c = ctypes.create_string_buffer(bytes(cdb), len(cdb))
    sense = ctypes.create_string_buffer(96)
    h.cmdp, h.sbp = ctypes.addressof(c), ctypes.addressof(sense)
    if iov is not None:
        v = (Iovec * len(iov))(*[Iovec(ctypes.addressof(buf) + o, n) for o, n in iov])
        h.iovec_count, h.dxferp = len(iov), ctypes.addressof(v)
    elif buf is not None:
        h.dxferp = ctypes.addressof(buf) + offset
    fcntl.ioctl(fd, SG_IO, h)
    h.sense = bytes(sense.raw[:h.sb_len_wr])
    return h

def check(ok, what, h=None):
    global checks
    checks += 1
    if not ok:
        status = ""
        if h:
            status = f": status {h.status:#x} host {h.host_status:#x} driver {h.driver_status:#x} resid {h.resid}"
            status += f" sense {h.sense.hex()}"
        sys.exit(f"{what}{status}")

def good(h, what):
    check(h.status == 0 and h.host_status == 0 and h.driver_status == 0, what, h)

def rw10(op, lba, blocks):
    return struct.pack(">BBIBHB", op, 0, lba, 0, blocks, 0)

buf = ctypes.create_string_buffer(4 << 20)

def inquiry(alloc):
    return bytes([0x12, 0, 0, alloc >> 8, alloc & 255, 0])

# No data at all.
good(sg(bytes(6)), "TEST UNIT READY")
good(sg(inquiry(0)), "INQUIRY of 0 bytes")
good(sg(rw10(0x28, 0, 0)), "READ of 0 blocks")
good(sg(rw10(0x2a, 0, 0)), "WRITE of 0 blocks")
h = sg(bytes([0x35] + [0] * 9))
check(h.status in (0, 2) and h.host_status == 0, "SYNCHRONIZE CACHE", h)

# Odd lengths at odd addresses. Nothing is written beyond them.
ctypes.memset(buf, 0xa5, 4096)
h = sg(inquiry(255), IN, 255, buf)
good(h, "INQUIRY of 255 bytes")
size = 255 - h.resid
full = buf.raw[:size]
check(36 <= size <= 255, "INQUIRY length", h)
check(full[8:16].rstrip(b" \0") in (b"LIO-ORG", b"SRP-RS"), f"INQUIRY vendor {full[8:16]}")
for n in (1, 3, 5, 7, 35, 36):
    for off in (0, 1, 2, 3, 513, 4095):
        ctypes.memset(buf, 0xa5, 8192)
        h = sg(inquiry(n), IN, n, buf, off)
        good(h, f"INQUIRY of {n} bytes to offset {off}")
        check(h.resid == 0, f"residual of INQUIRY of {n} bytes", h)
        check(buf.raw[off:off + n] == full[:n], f"data of INQUIRY of {n} bytes to offset {off}")
        check(buf.raw[off + n:off + n + 64] == b"\xa5" * 64, f"INQUIRY of {n} bytes wrote beyond its buffer")
        check(buf.raw[:off] == b"\xa5" * off, f"INQUIRY of {n} bytes wrote before its buffer")

# A short response: the residual must be set.
ctypes.memset(buf, 0xa5, 8192)
h = sg(inquiry(4096), IN, 4096, buf)
good(h, "INQUIRY into 4096 bytes")
check(h.resid == 4096 - size, f"residual of INQUIRY into 4096 bytes, wanted {4096 - size}", h)

# A block with a buffer larger than the transfer.
h = sg(rw10(0x28, 0, 1), IN, 4096, buf)
check(h.host_status == 0 and (h.status != 0 or h.resid == 3584), "READ of one block into 4096 bytes", h)

# Blocks to and from scattered, unaligned pieces of memory.
for blocks, cuts in (
    (1, [1, 7, 511]),
    (8, [3, 100, 512, 513, 4095]),
    (64, [4, 4096, 8193, 20000]),
    (127, list(range(500, 65000, 600))),
):
    n = blocks * 512
    if n > largest:
        continue
    edges = [0] + [c for c in cuts if c < n] + [n]
    iov, at = [], 5
    for a, b in zip(edges, edges[1:]):
        iov.append((at, b - a))
        at += b - a + 9
    data = os.urandom(n)
    pos = 0
    for o, k in iov:
        ctypes.memmove(ctypes.addressof(buf) + o, data[pos:pos + k], k)
        pos += k
    good(sg(rw10(0x2a, 1000, blocks), OUT, n, buf, iov=iov), f"WRITE of {blocks} blocks from {len(iov)} pieces")
    ctypes.memset(buf, 0x5a, at + 4096)
    good(sg(rw10(0x28, 1000, blocks), IN, n, buf, iov=iov), f"READ of {blocks} blocks into {len(iov)} pieces")
    check(b"".join(buf.raw[o:o + k] for o, k in iov) == data, f"data of {blocks} blocks in {len(iov)} pieces")
    for o, k in iov:
        check(buf.raw[o + k:o + k + 9] == b"\x5a" * 9, f"READ of {blocks} blocks wrote between its pieces")

# Sizes around the limit of immediate data, one piece at an odd address.
for blocks in (1, 2, 15, 16, 17, 24, 33, 128):
    n = blocks * 512
    if n > largest:
        continue
    for off in (0, 4, 512, 2048, 4092, 1):
        data = os.urandom(n)
        ctypes.memmove(ctypes.addressof(buf) + off, data, n)
        good(sg(rw10(0x2a, 3000, blocks), OUT, n, buf, off), f"WRITE of {blocks} blocks from offset {off}")
        ctypes.memset(buf, 0, off + n + 64)
        good(sg(rw10(0x28, 3000, blocks), IN, n, buf, off), f"READ of {blocks} blocks to offset {off}")
        check(buf.raw[off:off + n] == data, f"data of {blocks} blocks at offset {off}")

# Errors have sense data, and the next command works.
def key(h):
    s = h.sense
    return (s[1] & 15, s[2], s[3]) if s and s[0] & 0x7e == 0x72 else (s[2] & 15, s[12], s[13]) if len(s) > 13 else None
h = sg(rw10(0x28, 0xfffffff0, 1), IN, 512, buf)
check(h.status == 2 and key(h) == (5, 0x21, 0), f"READ beyond the end: sense {key(h)}", h)
h = sg(bytes([0xff] + [0] * 9))
check(h.status == 2 and key(h) is not None and key(h)[0] == 5, f"unknown opcode: sense {key(h)}", h)
h = sg(bytes([0x12, 1, 0xee, 0, 255, 0]), IN, 255, buf)
check(h.status == 2 and key(h)[:2] == (5, 0x24), f"INQUIRY of an unknown page: sense {key(h)}", h)
good(sg(bytes(6)), "TEST UNIT READY after errors")

# 16-byte CDBs.
h = sg(struct.pack(">BBQIBB", 0x9e, 0x10, 0, 32, 0, 0), IN, 32, buf)
good(h, "READ CAPACITY (16)")
blocks = struct.unpack(">QI", buf.raw[:12])
check(blocks[1] == 512, f"block length {blocks[1]}")
h = sg(struct.pack(">BBQIBB", 0x88, 0, blocks[0], 1, 0, 0), IN, 512, buf)
good(h, "READ (16) of the last block")
print(f"{checks} checks")
