#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""stale.py DEVICE PATTERN WHAT...: checks 40 times what a command returns in memory that the target did not write.
Exits with a message if PATTERN (text) is in it, or if it differs from what is expected. WHAT is

answer CDB HEX          4 KiB by SG_IO, answered with GOOD: HEX, then zeros
sense CDB HEX           the same, with CHECK CONDITION: the sense is HEX, then zeros
fail                    a direct read of the first 4 KiB, which ends with a MEDIUM ERROR
blocks FILE SENT GOOD   eight direct reads of 512 bytes at 2 MiB, merged into one command: the first SENT return FILE's
                        data, those up to GOOD zeros, and all others a MEDIUM ERROR"""
import ctypes, errno, fcntl, mmap, os, platform, struct, sys

from sgheader import IN, SG_IO, Hdr

SIZE, BLOCK, OFFSET = 4096, 512, 2 << 20
# io_setup, io_submit, io_getevents
CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "aio")
    return result

def address(buf):
    return ctypes.addressof(ctypes.c_char.from_buffer(buf))

def sg(fd, cdb, buf, status):
    """Runs a command by SG_IO and returns the sense data."""
    cdb = ctypes.create_string_buffer(cdb, len(cdb))
    sense = ctypes.create_string_buffer(96)
    h = Hdr(interface_id=ord("S"), dxfer_direction=IN, cmd_len=len(cdb), mx_sb_len=96, dxfer_len=SIZE, timeout=20000,
            dxferp=address(buf), cmdp=ctypes.addressof(cdb), sbp=ctypes.addressof(sense))
    fcntl.ioctl(fd, SG_IO, h)
    if h.status != status or h.host_status or h.resid:
        sys.exit(f"status {h.status:#x} host {h.host_status:#x} resid {h.resid}")
    return sense.raw[:h.sb_len_wr]

def expect(what, got, start):
    """Exits unless `got` is `start` followed by zeros."""
    if got != start + bytes(len(got) - len(start)):
        at = next(i for i in range(len(got)) if got[i] != (start[i] if i < len(start) else 0))
        sys.exit(f"{what}: {bytes(got[at:at + 32])} at {at} of {len(got)} bytes")

def together(fd, buf):
    """Reads the blocks, all submitted before one is sent; returns the result of each."""
    setup, submit, getevents = CALLS[platform.machine()]
    n = SIZE // BLOCK
    context = ctypes.c_ulong()
    syscall(setup, n, ctypes.byref(context))
    iocbs = [
        ctypes.create_string_buffer(
            struct.pack(
                "=QIIHhIQQqQII", i, 0, 0, 0, 0, fd, address(buf) + i * BLOCK, BLOCK, OFFSET + i * BLOCK, 0, 0, 0
            ),
            64,
        )
        for i in range(n)
    ]
    pointers = (ctypes.c_void_p * n)(*map(ctypes.addressof, iocbs))
    syscall(submit, context, ctypes.c_long(n), pointers)
    events = ctypes.create_string_buffer(32 * n)
    syscall(getevents, context, ctypes.c_long(n), ctypes.c_long(n), events, None)
    return [result for _, _, result, _ in sorted(struct.iter_unpack("=QQqq", events.raw))]

device, pattern, what, *args = sys.argv[1:]
fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
shown = 0
for _ in range(40):
    # Separate pages, aligned for the direct read.
    buf = mmap.mmap(-1, SIZE)
    buf.write(b"\xa5" * SIZE)
    wrong = None
    try:
        if what == "answer":
            sg(fd, bytes.fromhex(args[0]), buf, 0)
            expect("the answer", buf[:], bytes.fromhex(args[1]))
        elif what == "sense":
            expect("the sense", sg(fd, bytes.fromhex(args[0]), buf, 2), bytes.fromhex(args[1]))
        elif what == "fail":
            try:
                os.preadv(fd, [buf], 0)
                sys.exit("the read did not fail")
            except OSError as e:
                # The block layer's error for a MEDIUM ERROR.
                if e.errno != errno.ENODATA:
                    raise
        else:
            sent, good = map(int, args[1:])
            results = together(fd, buf)
            expected = [BLOCK if i < good else -errno.ENODATA for i in range(SIZE // BLOCK)]
            if results != expected:
                sys.exit(f"the blocks end with {results}")
            with open(args[0], "rb") as f:
                expect("the blocks", buf[:good * BLOCK], f.read(sent * BLOCK))
    except SystemExit as e:
        wrong = e.code
    if pattern.encode()[:8] in buf[:]:
        shown += 1
    elif wrong:
        sys.exit(wrong)
if shown:
    sys.exit(f"{shown} of 40 show another user's data: {wrong}")
