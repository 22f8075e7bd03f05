#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""login-loop.py SECONDS CYCLES DEVICE STRING [DEVICE STRING]...: logs in from each DEVICE with its STRING and out
again, on all devices concurrently, until SECONDS have passed or CYCLES are done in all. Every tenth time the first
sector of the disk must be as in the first cycle. Prints cycles, seconds, slowest login and slowest logout in ms."""

import errno
import glob
import os
import sys
import threading
import time

seconds, cycles = float(sys.argv[1]), int(sys.argv[2])
pairs = list(zip(sys.argv[3::2], sys.argv[4::2]))
began = time.monotonic()
lock = threading.Lock()
done = 0
slowest = {"in": 0.0, "out": 0.0}
faults = []


def text(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return None


def host_of(device):
    for path in glob.glob("/sys/class/scsi_host/host*"):
        if text(f"{path}/local_ib_device") == device:
            return path.rsplit("host", 1)[1]
    return None


def note(what, since):
    slowest[what] = max(slowest[what], time.monotonic() - since)


def log_in(device, string):
    while True:
        since = time.monotonic()
        try:
            fd = os.open(f"/sys/class/infiniband_srp/srp-{device}-1/add_target", os.O_WRONLY)
            try:
                os.write(fd, string.encode())
            finally:
                os.close(fd)
            note("in", since)
            return
        except OSError as e:
            # The previous session exists for a moment after its host disappeared.
            if e.errno != errno.EEXIST or time.monotonic() - since > 20:
                raise
            time.sleep(0.02)


def sector(host):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for path in glob.glob(f"/sys/bus/scsi/devices/{host}:0:0:0/block/*"):
            try:
                fd = os.open(f"/dev/{os.path.basename(path)}", os.O_RDONLY)
                try:
                    if data := os.read(fd, 512):
                        return data
                finally:
                    os.close(fd)
            except OSError as e:
                # The device node does not exist yet, or still belongs to a removed disk.
                if e.errno not in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
                    raise
        time.sleep(0.02)
    raise RuntimeError(f"no disk of host{host} within 20 s")


def log_out(host):
    since = time.monotonic()
    with open(f"/sys/class/srp_remote_ports/port-{host}:1/delete", "w") as f:
        f.write("1")
    while os.path.exists(f"/sys/class/scsi_host/host{host}"):
        if time.monotonic() - since > 20:
            raise RuntimeError(f"host{host} is still there 20 s after its logout")
        time.sleep(0.005)
    note("out", since)


def loop(device, string):
    global done
    data, n = None, 0
    try:
        while not faults and done < cycles and time.monotonic() - began < seconds:
            log_in(device, string)
            host = host_of(device)
            if host is None:
                raise RuntimeError(f"the login from {device} made no host")
            if n % 10 == 0:
                got = sector(host)
                if data is None:
                    data = got
                elif got != data:
                    raise RuntimeError(f"what {device} reads is wrong after {n} cycles")
            log_out(host)
            n += 1
            with lock:
                done += 1
    except Exception as e:  # noqa: BLE001: the test must report any exception
        faults.append(f"{device}, cycle {n}: {e}")


threads = [threading.Thread(target=loop, args=p) for p in pairs]
for t in threads:
    t.start()
for t in threads:
    t.join()
for f in faults:
    print(f)
if faults:
    sys.exit(1)
print(done, round(time.monotonic() - began), *(round(slowest[w] * 1000) for w in ("in", "out")))
