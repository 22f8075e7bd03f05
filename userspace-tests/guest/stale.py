#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""stale.py DEVICE PATTERN WHAT [COUNT]: what a command shows of memory that the target did not write. WHAT is a CDB in
hexadecimal (4 KiB by SG_IO, answered with GOOD), or `fail`: a direct read of the first 4 KiB, answered with a MEDIUM ERROR. Exits with a
text if PATTERN (text) is in the buffer of one of COUNT (40) of them."""
import ctypes, errno, fcntl, mmap, os, sys

SG_IO, SIZE = 0x2285, 4096

class Hdr(ctypes.Structure):
    _fields_ = [("interface_id", ctypes.c_int), ("dxfer_direction", ctypes.c_int), ("cmd_len", ctypes.c_ubyte),
                ("mx_sb_len", ctypes.c_ubyte), ("iovec_count", ctypes.c_ushort), ("dxfer_len", ctypes.c_uint),
                ("dxferp", ctypes.c_void_p), ("cmdp", ctypes.c_void_p), ("sbp", ctypes.c_void_p), ("timeout", ctypes.c_uint),
                ("flags", ctypes.c_uint), ("pack_id", ctypes.c_int), ("usr_ptr", ctypes.c_void_p), ("status", ctypes.c_ubyte),
                ("masked_status", ctypes.c_ubyte), ("msg_status", ctypes.c_ubyte), ("sb_len_wr", ctypes.c_ubyte),
                ("host_status", ctypes.c_ushort), ("driver_status", ctypes.c_ushort), ("resid", ctypes.c_int),
                ("duration", ctypes.c_uint), ("info", ctypes.c_uint)]

def sg(fd, cdb, memory):
    cdb = ctypes.create_string_buffer(cdb, len(cdb))
    sense = ctypes.create_string_buffer(96)
    h = Hdr(interface_id=ord("S"), dxfer_direction=-3, cmd_len=len(cdb), mx_sb_len=96, dxfer_len=SIZE, timeout=20000,
            dxferp=memory, cmdp=ctypes.addressof(cdb), sbp=ctypes.addressof(sense))
    fcntl.ioctl(fd, SG_IO, h)
    if h.status or h.host_status or h.resid:
        sys.exit(f"status {h.status:#x} host {h.host_status:#x} resid {h.resid}")

device, pattern, what = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 40
fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
shown = 0
for _ in range(count):
    # Pages of its own, aligned for the direct read.
    buf = mmap.mmap(-1, SIZE)
    buf.write(b"\xa5" * SIZE)
    if what == "fail":
        try:
            os.preadv(fd, [buf], 0)
            sys.exit("the read did not fail")
        except OSError as e:
            # As the block layer names a MEDIUM ERROR.
            if e.errno != errno.ENODATA:
                raise
    else:
        sg(fd, bytes.fromhex(what), ctypes.addressof(ctypes.c_char.from_buffer(buf)))
        if buf[:8] != bytes(8):
            sys.exit(f"what the target wrote is not there: {buf[:16].hex()}")
    shown += pattern.encode() in buf[:]
if shown:
    sys.exit(f"{shown} of {count} show another user's data")
