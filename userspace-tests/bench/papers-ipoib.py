#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""papers-ipoib.py serve ADDRESS FILE | measure ADDRESS DISK: the time of a read and of a write of a file in memory, one
at a time, by requests over TCP, and of a disk by SRP (Gfarm, figure 5). The guest's clock counts instructions. `serve`
ends with the connection."""

import mmap
import os
import socket
import struct
import sys
import time

PORT = 5001
SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
TIMES = 16
# Whether it is a write, and the length. An answer to a write is a copy of the request.
REQUEST = struct.Struct("!QQ")


def receive(connection, into):
    """Fills the buffer. Returns whether the peer has sent that much."""
    while into:
        n = connection.recv_into(into)
        if n == 0:
            return False
        into = into[n:]
    return True


def serve(address, path):
    memory, request = memoryview(bytearray(SIZES[-1])), memoryview(bytearray(REQUEST.size))
    file = os.open(path, os.O_RDWR)
    with socket.create_server((address, PORT)) as listener:
        print("listens", flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while receive(connection, request):
        is_write, length = REQUEST.unpack(request)
        part = memory[:length]
        if is_write:
            receive(connection, part)
            os.pwritev(file, [part], 0)
            connection.sendall(request)
        else:
            os.preadv(file, [part], 0)
            connection.sendall(part)


def mean(work):
    """Returns the instructions of one call."""
    work()
    began = time.monotonic_ns()
    for _ in range(TIMES):
        work()
    return (time.monotonic_ns() - began) // TIMES


def measure(address, disk):
    # Direct I/O needs whole pages.
    memory, answer = memoryview(mmap.mmap(-1, SIZES[-1])), memoryview(bytearray(REQUEST.size))
    disk = os.open(disk, os.O_RDWR | os.O_DIRECT)
    connection = socket.create_connection((address, PORT))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for is_write in (1, 0):
        for length in SIZES:
            part = memory[:length]
            request = REQUEST.pack(is_write, length)

            def tcp(is_write=is_write, part=part, request=request):
                connection.sendall(request)
                if is_write:
                    connection.sendall(part)
                assert receive(connection, answer if is_write else part)

            def srp(is_write=is_write, part=part, length=length):
                assert (os.pwritev if is_write else os.preadv)(disk, [part], 0) == length

            with open("/dev/kmsg", "w") as f:
                rw = "write" if is_write else "read"
                f.write(f"srp_bench: ipoib rw={rw} bytes={length} tcp={mean(tcp)} srp={mean(srp)}")


{"serve": serve, "measure": measure}[sys.argv[1]](*sys.argv[2:])
