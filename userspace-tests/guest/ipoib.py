#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Exchanges packets between two hosts.

ping ADDRESS BYTES        waits for the reply to an ICMP echo request of BYTES bytes
echo ADDRESS PORT         accepts one TCP connection and sends back what it receives
talk ADDRESS PORT BYTES   sends BYTES bytes there and compares what comes back
hear GROUP ADDRESS PORT   prints the first datagram to a multicast group on the interface with ADDRESS
tell GROUP ADDRESS PORT TEXT   sends TEXT to the group from that interface until it is killed"""

import os
import socket
import struct
import sys
import threading
import time


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ping(address, size):
    v6 = ":" in address
    echo, reply = (128, 129) if v6 else (8, 0)
    data = os.urandom(int(size) // 2 * 2)
    body = struct.pack("!HH", os.getpid() & 0xFFFF, 1) + data
    family, proto = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if v6 else (socket.AF_INET, socket.IPPROTO_ICMP)
    with socket.socket(family, socket.SOCK_RAW, proto) as s:
        s.settimeout(1)
        packet = struct.pack("!BBH", echo, 0, checksum(struct.pack("!BBH", echo, 0, 0) + body)) + body
        for _ in range(20):
            try:
                s.sendto(packet, (address, 0))
                while True:
                    got = s.recv(65536)
                    got = got if v6 else got[(got[0] & 15) * 4 :]
                    if got[0] == reply and got[4:] == body:
                        return
            except OSError as e:
                # No reply or no route yet.
                why = e
                time.sleep(0.1)
    sys.exit(f"ping {address}: {why}")


def echo(address, port):
    with socket.create_server((address, int(port))) as s:
        print("listens", flush=True)
        c, _ = s.accept()
        with c:
            while got := c.recv(1 << 16):
                c.sendall(got)


def talk(address, port, size):
    data = os.urandom(int(size))
    with socket.create_connection((address, int(port)), timeout=60) as c:

        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        back = bytearray()
        while got := c.recv(1 << 16):
            back += got
        sender.join()
    if back != data:
        sys.exit(f"{len(data)} bytes went, {len(back)} other ones came back")


def hear(group, address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((group, int(port)))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(address))
        s.settimeout(60)
        print(s.recv(1500).decode())


def tell(group, address, port, text):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        while True:
            s.sendto(text.encode(), (group, int(port)))
            time.sleep(0.2)


{"ping": ping, "echo": echo, "talk": talk, "hear": hear, "tell": tell}[sys.argv[1]](*sys.argv[2:])
