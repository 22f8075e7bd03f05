#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the workloads with one driver after the other, in each round.

Writes one JSON line for each login and each run. Each of them is between two marks of counts.c, which `seq`
numbers."""

import argparse
import base64
import contextlib
import ctypes
import functools
import glob
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

TRACING = "/sys/kernel/tracing"
KEEP_ALIVE = "/sys/module/ib_srp/parameters/keep_alive"
# Number of concurrent sessions, each from its own initiator port.
LOGINS = 3
# Limits of the trace in I/Os and bytes, because each packet takes locks, and the maximum number of work requests per
# doorbell that it can show.
TRACED = 128
TRACED_BYTES = 16 << 20
CHAIN = 3
# Functions that take a kernel lock; Rust code calls them through a helper of the kernel.
LOCKS = ("_raw_spin_lock", "_raw_spin_lock_irq", "_raw_spin_lock_irqsave", "_raw_spin_lock_bh", "mutex_lock")
HELPER = "rust_helper_"
HELPERS = (f"{HELPER}spin_lock", f"{HELPER}mutex_lock")
COLUMNS = ("name", "cpus", "rw", "bs", "qd", "jobs", "luns", "seconds", "starts", "options", "also")
UNITS = {"k": 10, "m": 20}
# By the machine: the marks of plugin.h and a return as machine code, the register of a function's second argument, and
# where its caller is at its beginning.
ARCHITECTURES = {
    "x86_64": ("0f1f840053525062 c3", "0f1f840053525065 c3", "%si", "+0($stack)"),
    "aarch64": ("1f6a8ad2 c0035fd6", "3f6a8ad2 c0035fd6", "%x1", "%lr"),
}
# fio runs for RAMP and a little longer before the measured seconds.
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


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def gid_of(device, port):
    return read(f"/sys/class/infiniband/{device}/ports/{port}/gids/0").replace(":", "")


def grant(target, ports, gid):
    """Makes initiator ports of a target's folder, with the lower half of a GID, from (extension, number of logical
    units). All units map the target's first one."""
    (first,) = glob.glob(f"{target}/lun/lun_0/*/udev_path")
    store = os.path.realpath(os.path.dirname(first))
    for n in range(1, max((many for _, many in ports), default=0)):
        os.mkdir(f"{target}/lun/lun_{n}")
        os.symlink(store, f"{target}/lun/lun_{n}/unit")
    for extension, many in ports:
        acl = f"{target}/acls/{extension:#018x}{gid[16:]}"
        os.mkdir(acl)
        for n in range(many):
            os.mkdir(f"{acl}/lun_{n}")
            os.symlink(f"{target}/lun/lun_{n}", f"{acl}/lun_{n}/unit")


def wait(what, condition, seconds=60, each=0.05):
    end = time.monotonic() + seconds
    while not (got := condition()):
        if time.monotonic() > end:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(each)
    return got


def output_of(p, what, text=None, seconds=600):
    """Returns the output of this process, which must end."""
    try:
        return p.communicate(text, timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        sys.exit(f"not within {seconds} s: the end of {what}")


def free_memory():
    """Returns the free memory in bytes, once it is stable to within a few pages for each CPU."""
    last, few = None, 4 * os.cpu_count()
    for _ in range(50):
        write("/proc/sys/vm/drop_caches", "3")
        # Each write runs on all CPUs. With many emulated CPUs this takes minutes.
        for cache in glob.glob("/sys/kernel/slab/*/shrink") if os.cpu_count() <= 4 else ():
            # Some caches refuse, and one may disappear.
            with contextlib.suppress(OSError):
                write(cache, "1")
        zones = read("/proc/zoneinfo")
        # `count` is the length of a per-CPU page list.
        pages = sum(map(int, re.findall(r"(?:nr_free_pages|^ +count:) +(\d+)", zones, re.MULTILINE)))
        if last is not None and abs(pages - last) < few:
            return pages * mmap.PAGESIZE
        last = pages
        time.sleep(0.2)
    sys.exit("free memory does not settle")


class Marks:
    """Executes the marker instructions of counts.c, in a page of machine code."""

    def __init__(self):
        self.page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        begin, end, *_ = ARCHITECTURES[platform.machine()]
        self.page.write(bytes.fromhex(begin))
        self.page.seek(16)
        self.page.write(bytes.fromhex(end))
        self.begin = ctypes.CFUNCTYPE(None)(at)
        self.finish = ctypes.CFUNCTYPE(None)(at + 16)
        self.seq = 0

    def end(self):
        self.finish()
        self.seq += 1
        return self.seq - 1


class Bench:
    MARKS = Marks

    def __init__(self, args):
        self.args = args
        self.out = open(args.out, "r+b" if os.path.exists(args.out) else "wb", buffering=0)
        self.marks = self.MARKS()
        self.host = None
        self.noted = False

    def put(self, kind, **fields):
        if fields.get("round") == 0:
            return
        self.out.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        os.fsync(self.out.fileno())

    def symbols(self, ours):
        lines = []
        with open("/proc/kallsyms") as f:
            for line in f:
                # On arm64 `$x` marks the begin of code.
                if line[17] in "tTwW" and line[19] != "$" and line.endswith("[ib_srp]\n") == ours:
                    lines.append(line)
        self.put("symbols", ib_srp=ours, text=base64.b64encode(zlib.compress("".join(lines).encode(), 1)).decode())

    def note_symbols(self):
        # Record the symbols of the other modules once, when all are loaded.
        if not self.noted:
            self.symbols(False)
            self.noted = True
        self.symbols(True)

    def load(self, path):
        subprocess.run(["insmod", path], check=True)
        wait("add_target", lambda: os.path.exists(self.args.add_target), 10)

    def unload(self):
        wait("module unused", lambda: read("/sys/module/ib_srp/refcnt") == "0")
        subprocess.run(["rmmod", "ib_srp"], check=True)

    def hosts(self):
        found = set()
        for path in glob.glob("/sys/class/scsi_host/host*"):
            # A host may disappear during this.
            with contextlib.suppress(OSError):
                if read(f"{path}/proc_name") == "ib_srp":
                    found.add(os.path.basename(path))
        return found

    def login(self, options):
        """Returns the host of a new login, the number of its marks, and the time in nanoseconds."""
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
                # A target that is being removed still exists for a moment.
                self.marks.end()
                time.sleep(0.3)
            finally:
                os.close(fd)
        else:
            sys.exit("login: still logged in")
        seq = self.marks.end()
        (host,) = self.hosts() - before
        return host, seq, took

    def login_for(self, options, luns):
        self.host, _, _ = self.login(options)
        self.disks = [wait(f"LUN {n}", lambda n=n: self.disk(self.host, n)) for n in range(luns)]

    def logins(self, rnd, variant, w):
        """Measures the cost of logins that see one LUN, with several sessions at the same time."""
        hosts, free = [], free_memory()
        for port in range(1, LOGINS + 1):
            host, seq, took = self.login(f",{w['options']},initiator_ext={port}")
            hosts.append(host)
            wait("LUN 0", lambda host=host: self.disk(host, 0))
            # When a disk appears the kernel calls modprobe, which must not count for the next login.
            time.sleep(0.5)
            channels, wanted = read(f"/sys/class/scsi_host/{host}/ch_count"), w["options"].partition("ch_count=")[2]
            if channels != wanted:
                sys.exit(f"{variant}: {channels} channels instead of {wanted}")
            self.put("login", round=rnd, variant=variant, workload=w["name"], seq=seq, ns=took)
        self.put("memory", round=rnd, variant=variant, workload=w["name"], bytes=(free - free_memory()) / LOGINS)
        print(f"round {rnd} {variant:5} {w['name']:15}", flush=True)
        for host in hosts:
            self.logout(host)
        self.put("own", round=rnd, variant=variant, workload=w["name"], bytes=self.own(w))

    def own(self, w):
        """Returns the bytes that the module allocates in a login and still has when it is done."""
        write(f"{TRACING}/buffer_size_kb", "16384")
        write(f"{TRACING}/trace", "")
        for on in "1", "0":
            for event in "kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free":
                write(f"{TRACING}/events/kmem/{event}/enable", on)
            if on == "1":
                host, _, _ = self.login("," + w["options"])
        self.all_told()
        mine = {}
        for what, site, at, text in re.findall(
            r": (kmalloc|kmem_cache_alloc|kfree|kmem_cache_free): call_site=(.*?) ptr=(\w+)(.*)",
            read(f"{TRACING}/trace"),
        ):
            mine.pop(at, None)
            if what in ("kmalloc", "kmem_cache_alloc") and ("[ib_srp]" in site or site.startswith(HELPER)):
                mine[at] = int(re.search(r"bytes_alloc=(\d+)", text)[1])
        write(f"{TRACING}/trace", "")
        write(f"{TRACING}/buffer_size_kb", "1")
        self.logout(host)
        return sum(mine.values())

    def disk(self, host, lun):
        for path in glob.glob(f"/sys/bus/scsi/devices/{host[4:]}:0:0:{lun}/block/*"):
            # The directory exists before its files, of which size is not the last one, and the files before the device
            # node. A node of that name may still belong to the previous disk.
            with contextlib.suppress(OSError):
                if os.path.exists(f"{path}/inflight") and read(f"{path}/size") != "0":
                    os.close(os.open(f"/dev/{os.path.basename(path)}", os.O_RDONLY))
                    return os.path.basename(path)
        return None

    def logout(self, host):
        write(f"/sys/class/srp_remote_ports/port-{host[4:]}:1/delete", "1")
        wait("logout", lambda: host not in self.hosts())

    def done(self, disks):
        """Returns the numbers of completed requests and of their sectors."""
        stats = [[int(n) for n in read(f"/sys/block/{d}/stat").split()] for d in disks]
        return [sum(stat[i] + stat[i + 4] for stat in stats) for i in (0, 2)]

    def sectors(self, disks):
        return self.done(disks)[1]

    def fio(self, w, disks, more):
        jobs = int(w["jobs"])
        g = {
            "direct": 1, "rw": w["rw"], "bs": w["bs"], "iodepth": w["qd"], "norandommap": 1,
            "ioengine": "psync" if w["qd"] == "1" else "io_uring", "group_reporting": 1,
            "lat_percentiles": 1, "clocksource": "clock_gettime", "allow_file_create": 0,
        } | more  # fmt: skip
        if jobs > 1 and int(w["cpus"]) > 1:
            g |= {"cpus_allowed": f"0-{int(w['cpus']) - 1}", "cpus_allowed_policy": "split"}
        lines = ["[global]", *(f"{k}={v}" for k, v in g.items())]
        if len(disks) == 1:
            lines += ["[job]", f"filename=/dev/{disks[0]}", f"numjobs={jobs}"]
        else:
            for n in range(jobs):
                mine = ":".join(f"/dev/{d}" for d in disks[n % len(disks) :: jobs])
                lines += [f"[job{n}]", f"filename={mine}"]
        return subprocess.Popen(
            ["fio", "--eta=never", "--output-format=json", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ), "\n".join(lines)  # fmt: skip

    def run(self, rnd, variant, w):
        seconds = float(w["seconds"]) * self.args.share
        disks = self.disks[: int(w["luns"])]
        wait("idle disks", lambda: all(read(f"/sys/block/{d}/inflight").split() == ["0", "0"] for d in disks))
        # rxe's work queues settle into one of a few rhythms, some of them with a tenth more instructions per I/O. A
        # random start time gives each start its own chance.
        time.sleep(random.random() * RAMP)
        idle = self.sectors(disks)
        p, text = self.fio(w, disks, {
            "time_based": 1, "ramp_time": f"{RAMP * 1000:.0f}ms", "runtime": f"{(seconds + 2 * RAMP) * 1000:.0f}ms",
        })  # fmt: skip
        p.stdin.write(text)
        p.stdin.close()
        p.stdin = None
        wait(f"I/O of {w['name']}", lambda: self.sectors(disks) > idle or p.poll() is not None)
        time.sleep(RAMP)
        self.marks.begin()
        began, before = time.monotonic_ns(), self.done(disks)
        time.sleep(seconds)
        ns, after = time.monotonic_ns() - began, self.done(disks)
        requests, sectors = (a - b for a, b in zip(after, before))
        seq = self.marks.end()
        output = output_of(p, f"fio {w['name']}")
        jobs = json.loads(output[output.index("{") :])["jobs"] if p.returncode == 0 else []
        if not jobs or any(j["error"] for j in jobs):
            sys.exit(f"fio {w['name']} with {variant} failed:\n{output}")
        j = jobs[0]["write" if "write" in w["rw"] else "read"]
        ios = sectors * 512 / size(w["bs"])
        if not ios:
            sys.exit(f"{w['name']} with {variant}: no I/O while it was counted")
        # fio's figures cover slightly more than the counted time.
        iops, mbs = ios / ns * 1e9, sectors * 512 / ns * 1e3
        self.put(
            "run", round=rnd, variant=variant, workload=w["name"], seq=seq, ns=ns, ios=ios, requests=requests,
            iops=iops, mbs=mbs, latency=j["lat_ns"]["mean"], p99=j["lat_ns"]["percentile"]["99.000000"],
        )  # fmt: skip
        print(
            f"round {rnd} {variant:5} {w['name']:15} {iops:9.0f} IOPS {j['lat_ns']['mean'] / 1000:9.1f} us", flush=True
        )

    def requests(self, rnd, variant, w):
        """Counts the driver's requests to the device per I/O, by probes in the device's driver. The `done` of its
        `ib_cqe` tells which driver a request or completion belongs to."""
        disks, jobs = self.disks[: int(w["luns"])], int(w["jobs"])
        each = min(TRACED, TRACED_BYTES // size(w["bs"])) // jobs
        self.probes(True)
        before = self.sectors(disks)
        p, text = self.fio(w, disks, {"io_size": each * size(w["bs"])})
        output_of(p, f"fio {w['name']}", text)
        if p.returncode:
            sys.exit(f"fio {w['name']} with {variant} failed while it was traced")
        ios = (self.sectors(disks) - before) * 512 / size(w["bs"])
        events = self.probes(False)
        if ios != each * jobs:
            sys.exit(f"{w['name']} with {variant}: {ios} I/Os while it was traced")
        n = dict.fromkeys(
            (
                "work requests",
                "send doorbells",
                "receive doorbells",
                "send completions",
                "receive completions",
                "locks",
            ),
            0,
        )
        for event, fields in events:
            if event == "lock":
                n["locks"] += 1
                continue
            # A field that cannot be read keeps its previous value in the event.
            if "cqe=0x0 " in fields or "[ib_srp]" not in fields.partition("done=")[2]:
                continue
            if event == "send":
                chain = [int(f, 16) for f in re.findall(r"next\d=0x(\w+)", fields)]
                if all(chain):
                    sys.exit(f"more than {CHAIN} work requests for a doorbell")
                # The memory after the last work request is not readable, so these fields are stale.
                n["work requests"] += 1 + chain.index(0)
                n["send doorbells"] += 1
            elif event == "recv":
                n["receive doorbells"] += 1
            else:
                # IB_WC_RECV
                received = int(re.search(r"opcode=(\d+)", fields)[1]) & 128
                n["receive completions" if received else "send completions"] += 1
        self.put(
            "requests", round=rnd, variant=variant, workload=w["name"], requests={k: v / ios for k, v in n.items()}
        )

    def called_by_initiator(self):
        """Returns a filter for `caller`: the module, and the kernel's lock helpers for Rust, which only the module
        uses."""
        module, ranges = [], []
        with open("/proc/kallsyms") as f:
            for line in f:
                address, kind, name, *of = line.split()
                if of == ["[ib_srp]"] and kind in "tT":
                    module.append(int(address, 16))
                elif name in HELPERS:
                    ranges.append((int(address, 16), int(address, 16) + 64))
        ranges.append((min(module), max(module) + mmap.PAGESIZE))
        return " || ".join(f"(caller >= {low:#x} && caller < {high:#x})" for low, high in ranges)

    def probes(self, on):
        """Starts the probes, or stops them and returns their events."""
        if on:
            # `wr_cqe` and `next` of a work request, `wr_cqe` and `opcode` of a completion.
            *_, wr, caller = ARCHITECTURES[platform.machine()]
            following = " ".join(f"next{n}={'+0(' * n}{wr}{')' * n}:x64" for n in range(1, CHAIN + 1))
            write(
                f"{TRACING}/kprobe_events",
                f"p:bench/send rxe_post_send cqe=+8({wr}):x64 done=+0(+8({wr})):symbol {following}\n"
                f"p:bench/recv rxe_post_recv cqe=+8({wr}):x64 done=+0(+8({wr})):symbol\n"
                f"p:bench/complete rxe_cq_post cqe=+0({wr}):x64 done=+0(+0({wr})):symbol opcode=+12({wr}):u32\n"
                + "".join(f"p:bench/lock{n} {name} caller={caller}:symbol\n" for n, name in enumerate(LOCKS)),
            )
            for n in range(len(LOCKS)):
                write(f"{TRACING}/events/bench/lock{n}/filter", self.called_by_initiator())
            write(f"{TRACING}/buffer_size_kb", "8192")
            write(f"{TRACING}/trace", "")
            write(f"{TRACING}/events/bench/enable", "1")
            return None
        write(f"{TRACING}/events/bench/enable", "0")
        self.all_told()
        events = re.findall(r": (send|recv|complete|lock)\d?: (.*)", read(f"{TRACING}/trace"))
        write(f"{TRACING}/trace", "")
        write(f"{TRACING}/buffer_size_kb", "1")
        write(f"{TRACING}/kprobe_events", "")
        return events

    def all_told(self):
        for path in glob.glob(f"{TRACING}/per_cpu/cpu*/stats"):
            if not re.search(r"^overrun: 0$", read(path), re.MULTILINE):
                sys.exit("the trace buffer is too small")

    def driver(self, name, path, rnd, workloads):
        self.load(path)
        # A keep-alive during the start of fio would be counted as I/O.
        if os.path.exists(KEEP_ALIVE):
            write(KEEP_ALIVE, "0")
        self.note_symbols()
        logins = {}
        for w in workloads:
            if w["rw"] == "login":
                self.logins(rnd, name, w)
                continue
            options = "" if w["options"] == "-" else "," + w["options"]
            logins.setdefault((name, options), []).append(w)
            if name == "c" and w["also"] != "-":
                variant, _, more = w["also"].partition(":")
                logins.setdefault((variant, f"{options},{more}"), []).append(w)
        for (variant, options), those in logins.items():
            self.login_for(options, max(int(w["luns"]) for w in those))
            for w in those:
                for _ in range(1 if self.args.share < 1 else int(w["starts"])):
                    self.run(rnd, variant, w)
                if rnd == self.args.rounds:
                    self.requests(rnd, variant, w)
            self.logout(self.host)
        self.unload()

    def turns(self):
        """Returns the functions that take turns, each called with the round and its workloads."""
        return [functools.partial(self.driver, *item.split("=", 1)) for item in self.args.driver]

    def machine(self):
        self.put(
            "machine",
            kernel=platform.release(),
            cpu=next(iter(re.findall("model name.*: (.*)", read("/proc/cpuinfo"))), platform.machine()),
            cpus=os.cpu_count(),
            fio=subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip(),
        )

    def main(self):
        a = self.args
        only = a.only.split(",") if a.only else None
        workloads = [w for w in table(a.workloads) if w["cpus"] == a.cpus]
        if only:
            workloads = [w for w in workloads if w["name"] in only]
        if not os.path.exists(f"{TRACING}/kprobe_events"):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
        self.machine()
        # Round 0 does not count. Without it the first driver runs with few kernel threads, which saves it a tenth of
        # all instructions: every wake-up of a work queue is a switch to another one.
        for rnd in range(a.rounds + 1):
            # The second driver is affected by what the first one left, so the order alternates.
            for turn in self.turns()[:: 1 if rnd % 2 else -1]:
                turn(rnd, [w for w in workloads if rnd or w is workloads[0] or w["rw"] == "login"])
        self.put("end")


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--driver", action="append", required=True, help="NAME=FILE.ko, in the order of their turns")
    p.add_argument("--add-target", required=True)
    p.add_argument("--login", required=True, help="what to write there")
    p.add_argument("--only", default="", help="names, with commas")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", required=True, help="file or empty block device")
    return p


def arguments():
    p = parser()
    p.add_argument("--workloads", required=True)
    p.add_argument("--cpus", required=True, help="only the workloads for so many")
    p.add_argument("--share", type=float, default=1, help="of the workload's seconds, and one start of each")
    return p.parse_args()


if __name__ == "__main__":
    Bench(arguments()).main()
