#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the workloads with one driver after the other, as often as there are rounds.

Writes one JSON line for each login and each run. In a guest whose QEMU has the plugin of counts.c,
each of them is between two marks; `seq` says between which."""

import argparse
import base64
import contextlib
import ctypes
import functools
import glob
import itertools
import json
import mmap
import os
import platform
import random
import re
import subprocess
import sys
import time
import zlib

COLUMNS = ("name", "cpus", "rw", "bs", "qd", "jobs", "luns", "seconds", "options", "also")
UNITS = {"k": 10, "m": 20}
# fio runs for RAMP and some more before the measured seconds.
RAMP = 0.1


def table(path):
    with open(path) as f:
        rows = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def size(text):
    return int(text[:-1]) << UNITS[text[-1]] if text[-1] in UNITS else int(text)


def read(path):
    with open(path) as f:
        return f.read().strip()


def wait(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not (got := condition()):
        if time.monotonic() > end:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return got


class Marks:
    """The instruction of counts.c, in a page of machine code."""

    def __init__(self):
        self.page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        nop, ret = bytes.fromhex("0f1f8400"), b"\xc3"
        self.page.write(nop + b"SRPb" + ret)
        self.page.seek(16)
        self.page.write(nop + b"SRPe" + ret)
        self.begin = ctypes.CFUNCTYPE(None)(at)
        self.finish = ctypes.CFUNCTYPE(None)(at + 16)
        self.seq = 0

    def end(self):
        self.finish()
        self.seq += 1
        return self.seq - 1


class NoMarks:
    def begin(self):
        pass

    def end(self):
        return None


class Bench:
    def __init__(self, args):
        self.args = args
        self.out = open(args.out, "r+b" if os.path.exists(args.out) else "wb", buffering=0)
        self.marks = Marks() if args.counted else NoMarks()
        self.host = None

    def put(self, kind, **fields):
        if fields.get("round") == 0:
            return
        self.out.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        os.fsync(self.out.fileno())

    def symbols(self, ours):
        lines = []
        with open("/proc/kallsyms") as f:
            for line in f:
                if line[17] in "tTwW" and line.endswith("[ib_srp]\n") == ours:
                    lines.append(line)
        self.put("symbols", ib_srp=ours, text=base64.b64encode(zlib.compress("".join(lines).encode(), 1)).decode())

    def load(self, path):
        subprocess.run(["insmod", path], check=True)
        wait("add_target", lambda: os.path.exists(self.args.add_target), 10)

    def unload(self):
        wait("module unused", lambda: read("/sys/module/ib_srp/refcnt") == "0")
        subprocess.run(["rmmod", "ib_srp"], check=True)

    def hosts(self):
        found = set()
        for path in glob.glob("/sys/class/scsi_host/host*"):
            # One that is being removed may go while it is looked at.
            with contextlib.suppress(OSError):
                if read(f"{path}/proc_name") == "ib_srp":
                    found.add(os.path.basename(path))
        return found

    def login(self, rnd, variant, options, luns):
        text = self.args.login + options
        before = self.hosts()
        for attempt in range(20):
            try:
                fd = os.open(self.args.add_target, os.O_WRONLY)
                self.marks.begin()
                began = time.monotonic_ns()
                os.write(fd, text.encode())
                took = time.monotonic_ns() - began
                break
            except FileExistsError:
                # A target that is being removed counts for a moment longer.
                self.marks.end()
                time.sleep(0.3)
            finally:
                os.close(fd)
        else:
            sys.exit("login: still logged in")
        seq = self.marks.end()
        (self.host,) = self.hosts() - before
        self.disks = [wait(f"LUN {n}", lambda n=n: self.disk(n)) for n in range(luns)]
        channels = int(read(f"/sys/class/scsi_host/{self.host}/ch_count"))
        self.put("login", round=rnd, variant=variant, options=options, seq=seq, ns=took, channels=channels)

    def disk(self, lun):
        found = glob.glob(f"/sys/bus/scsi/devices/{self.host[4:]}:0:0:{lun}/block/*")
        return os.path.basename(found[0]) if found and read(f"{found[0]}/size") != "0" else None

    def logout(self):
        with open(f"/sys/class/srp_remote_ports/port-{self.host[4:]}:1/delete", "w") as f:
            f.write("1")
        wait("log-out", lambda: self.host not in self.hosts())

    def sectors(self, disks):
        """Sectors read and written."""
        return sum(int(n) for d in disks for n in itertools.islice(read(f"/sys/block/{d}/stat").split(), 2, 7, 4))

    def fio(self, w, disks, seconds):
        jobs = int(w["jobs"])
        g = {
            "direct": 1, "rw": w["rw"], "bs": w["bs"], "iodepth": w["qd"], "time_based": 1, "norandommap": 1,
            "ramp_time": f"{RAMP * 1000:.0f}ms", "runtime": f"{(seconds + 2 * RAMP) * 1000:.0f}ms",
            "ioengine": "psync" if w["qd"] == "1" else "io_uring", "group_reporting": 1,
            "lat_percentiles": 1, "clocksource": "clock_gettime", "allow_file_create": 0,
        }  # fmt: skip
        if jobs > 1 and int(w["cpus"]) > 1:
            g |= {"cpus_allowed": f"0-{int(w['cpus']) - 1}", "cpus_allowed_policy": "split"}
        lines = ["[global]", *(f"{k}={v}" for k, v in g.items())]
        if len(disks) == 1:
            lines += ["[job]", f"filename=/dev/{disks[0]}", f"numjobs={jobs}"]
        else:
            for n in range(jobs):
                lines += [f"[job{n}]", f"filename=/dev/{disks[n % len(disks)]}"]
        return subprocess.Popen(
            ["fio", "--eta=never", "--output-format=json", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ), "\n".join(lines)  # fmt: skip

    def run(self, rnd, variant, w):
        seconds = self.args.seconds or float(w["seconds"])
        disks = self.disks[: int(w["luns"])]
        wait("idle disks", lambda: all(read(f"/sys/block/{d}/inflight").split() == ["0", "0"] for d in disks))
        # rxe's work queues fall into one of a few rhythms, some with a tenth more instructions for an
        # I/O, and stay in it. So that each round takes its chance, it begins at a moment of its own.
        time.sleep(random.random() * RAMP)
        idle = self.sectors(disks)
        p, text = self.fio(w, disks, seconds)
        p.stdin.write(text)
        p.stdin.close()
        p.stdin = None
        wait(f"I/O of {w['name']}", lambda: self.sectors(disks) > idle or p.poll() is not None)
        time.sleep(RAMP)
        self.marks.begin()
        began, sectors = time.monotonic_ns(), self.sectors(disks)
        time.sleep(seconds)
        ns, sectors = time.monotonic_ns() - began, self.sectors(disks) - sectors
        seq = self.marks.end()
        output = p.communicate()[0]
        jobs = json.loads(output[output.index("{") :])["jobs"] if p.returncode == 0 else []
        if not jobs or any(j["error"] for j in jobs):
            sys.exit(f"fio {w['name']} with {variant} failed:\n{output}")
        j = jobs[0]["write" if "write" in w["rw"] else "read"]
        self.put(
            "run", round=rnd, variant=variant, workload=w["name"], seq=seq, ns=ns, ios=sectors * 512 / size(w["bs"]),
            iops=j["iops"], mbs=j["bw_bytes"] / 1e6, latency=j["lat_ns"]["mean"],
            p99=j["lat_ns"]["percentile"]["99.000000"],
        )  # fmt: skip
        print(f"round {rnd} {variant:5} {w['name']:15} {j['iops']:9.0f} IOPS {j['lat_ns']['mean'] / 1000:9.1f} us", flush=True)

    def driver(self, name, path, rnd, workloads):
        self.load(path)
        if self.args.counted:
            # Of the others once, when all modules are there.
            if not self.marks.seq:
                self.symbols(False)
            self.symbols(True)
        logins = {}
        for w in workloads:
            options = "" if w["options"] == "-" else "," + w["options"]
            logins.setdefault((name, options), []).append(w)
            if name == "c" and w["also"] != "-":
                variant, _, more = w["also"].partition(":")
                logins.setdefault((variant, f"{options},{more}"), []).append(w)
        for (variant, options), those in logins.items():
            self.login(rnd, variant, options, max(int(w["luns"]) for w in those))
            for w in those:
                self.run(rnd, variant, w)
            self.logout()
        self.unload()

    def turns(self):
        """What takes turns, each called with the round and its workloads."""
        return [functools.partial(self.driver, *item.split("=", 1)) for item in self.args.driver]

    def main(self):
        a = self.args
        only = a.only.split(",") if a.only else None
        workloads = [w for w in table(a.workloads) if a.cpus in (None, w["cpus"]) and int(w["luns"]) <= a.luns]
        if only:
            workloads = [w for w in workloads if w["name"] in only]
        self.put(
            "machine", kernel=platform.release(), cpu=next(iter(re.findall("model name.*: (.*)", read("/proc/cpuinfo"))), platform.machine()),
            cpus=os.cpu_count(), fio=subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip(),
        )  # fmt: skip
        # Round 0 does not count. Without it the first driver finds few kernel threads, which saves it
        # a tenth of all instructions: every wake-up of a work queue is a switch to another one.
        for rnd in range(a.rounds + 1):
            for turn in self.turns():
                turn(rnd, workloads if rnd else workloads[:1])
        self.put("end")


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--driver", action="append", required=True, help="NAME=FILE.ko, in the order of their turns")
    p.add_argument("--add-target", required=True)
    p.add_argument("--login", required=True, help="what to write there")
    p.add_argument("--workloads", required=True)
    p.add_argument("--only", default="", help="names, with commas")
    p.add_argument("--cpus", help="only the workloads for so many")
    p.add_argument("--luns", type=int, default=16, help="only those that need no more")
    p.add_argument("--counted", action="store_true", help="note the kernel's symbols for what counts.c counts")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, help="instead of the workload's")
    p.add_argument("--out", required=True, help="file or empty block device")
    return p.parse_args()


if __name__ == "__main__":
    Bench(arguments()).main()
