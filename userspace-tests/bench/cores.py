#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measures ours, C and the kernel's other initiators on all CPUs, by the clock. fio does the I/O.

In a round each peer connects, runs all points, and disconnects; ours does so twice, the second time as its own control.
The order of the peers and that of the points are drawn for each round, from a fixed seed. Writes one JSON line for each
run, with fio's histogram."""

import contextlib
import dataclasses
import fnmatch
import functools
import glob
import json
import os
import random
import re
import subprocess
import sys
import time

import measure
import peers
import ratios
from measure import read, wait, write

SEED = 43
CONTROL = "control"
SIZES, DIRECTIONS, DEPTHS = ("4k", "64k"), ("read", "write"), (1, 2, 4, 8, 16, 32)
# fio runs for so many seconds before those that it reports, and after those in which the CPUs are measured.
RAMP = 0.15
# Work queues and threads of a target whose CPUs can be chosen.
UNBOUND = "/sys/devices/virtual/workqueue"
THREADS = re.compile(r"(iscsi|isert|nvmet|rnbd|rtrs|srpt|LIO)")


@dataclasses.dataclass(frozen=True)
class Point:
    bs: str
    rw: str
    depth: int
    apart: bool = False

    @property
    def pattern(self):
        return f"{self.bs}-{self.rw}" + ("-apart" if self.apart else "")

    @property
    def name(self):
        return f"{self.bs}-{self.rw}-d{self.depth}" + ("-apart" if self.apart else "")


def points(patterns, apart):
    """Returns the points whose names match one of the patterns, which commas separate."""
    all_of_them = [
        Point(bs, rw, depth, own)
        for own in ((False, True) if apart else (False,))
        for bs in SIZES
        for rw in DIRECTIONS
        for depth in DEPTHS
    ]
    found = [p for p in all_of_them if any(fnmatch.fnmatchcase(p.name, one) for one in patterns.split(","))]
    if not found:
        names = f"{all_of_them[0].name} to {all_of_them[-1].name}"
        sys.exit(f"ONLY={patterns} matches no point: they are {names}, * stands for anything")
    return found


def mask(cpus):
    """Returns a set of CPUs as the kernel reads it: words of 32 bits, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    words = [f"{bits >> shift & 0xFFFFFFFF:x}" for shift in range(0, max(bits.bit_length(), 1), 32)]
    return ",".join(reversed(words))


def idle(text):
    """Returns the ticks that each CPU has been idle, from /proc/stat."""
    found = re.findall(r"^cpu(\d+) +(?:\d+ +){3}(\d+) (\d+)", text, re.MULTILINE)
    return {int(cpu): int(a) + int(b) for cpu, a, b in found}


def optional(path):
    with contextlib.suppress(OSError):
        return read(path)
    return ""


class NoMarks:
    """Nothing counts instructions here."""

    def begin(self):
        pass

    def end(self):
        return None


class Cores(peers.Peers):
    MARKS = NoMarks

    def __init__(self, args):
        super().__init__(args)
        self.cpus = sorted(os.sched_getaffinity(0))
        # Both ends on CPUs of their own: only where both are in one kernel, and where the device has work that can be
        # placed. ib_vfab delivers in an interrupt of the CPU that posts.
        self.apart = args.both_ends and len(self.cpus) > 1 and "vfab" not in args.add_target
        self.points = points(args.only, self.apart)
        drivers = dict(d.split("=", 1) for d in args.driver)
        drivers = {"ours": drivers["rust"], CONTROL: drivers["rust"], "c": drivers["c"]}
        self.ways = {name: (functools.partial(self.log_in, path), self.log_out) for name, path in drivers.items()}
        for name, options in args.peers.items():
            peer = peers.KINDS[name](options)
            self.ways[name] = tuple(functools.partial(way, name, peer) for way in (self.attach, self.detach))
        self.placed, self.refused = False, set()

    def log_in(self, path):
        self.load(path)
        self.login_for("", 1)

    def log_out(self):
        self.logout(self.host)
        self.unload()

    def machine(self):
        super().machine()
        device, _, port = os.path.basename(os.path.dirname(self.args.add_target)).removeprefix("srp-").rpartition("-")
        at = f"/sys/class/infiniband/{device}"
        netdev = optional(f"{at}/ports/{port}/gid_attrs/ndevs/0")
        said = ""
        with contextlib.suppress(FileNotFoundError):
            said = subprocess.run(["ibv_devinfo", "-d", device, "-i", port], capture_output=True, text=True).stdout
        active = re.search(r"active_mtu:\s+(\d+)", said)
        self.put(
            "adapter", device=device, port=port, cpus=self.cpus, both_ends=self.args.both_ends,
            **{name: optional(f"{at}/{name}") for name in ("hca_type", "board_id", "fw_ver")},
            **{name: optional(f"{at}/ports/{port}/{name}") for name in ("link_layer", "rate")},
            netdev=netdev, mtu=active[1] if active else "unknown", netdev_mtu=optional(f"/sys/class/net/{netdev}/mtu"),
        )  # fmt: skip

    def about(self, name):
        """Notes the driver and the disk of a connected peer."""
        (disk,) = self.disks
        queue, files = peers.queue(disk), ("nr_requests", "max_sectors_kb", "max_segments")
        module = {"nvme": "nvme_rdma", "rnbd": "rnbd_client", "iser": "ib_iser"}.get(name, "ib_srp")
        version = [optional(f"/sys/module/{module}/{file}") for file in ("version", "srcversion")]
        chosen = re.search(r"\[(.*)\]", optional(f"{queue}/scheduler"))
        self.put(
            "peer", name=name, disk=disk, module=module, version=" ".join(filter(None, version)),
            scheduler=chosen[1] if chosen else "none", hardware_queues=len(glob.glob(f"{queue}/../mq/*")),
            **{file: optional(f"{queue}/{file}") for file in files},
        )  # fmt: skip

    def place(self, point):
        """Returns the CPUs of the initiator, after moving what the kernel lets move."""
        half = self.cpus[: len(self.cpus) // 2]
        if point.apart:
            others = set(self.cpus) - set(half)
            self.move(others)
            self.placed = True
            return half
        if self.placed:
            self.move(set(self.cpus))
            self.placed = False
        return self.cpus

    def move(self, cpus):
        """Moves unbound work queues, and the target's threads."""
        for path in [f"{UNBOUND}/cpumask", *glob.glob(f"{UNBOUND}/*/cpumask")]:
            try:
                write(path, mask(cpus))
            except OSError as e:
                self.refused.add(f"{path}: {e.strerror}")
        for path in glob.glob("/proc/[0-9]*/comm"):
            # A process may end during this.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name = read(path)
                if THREADS.match(name):
                    try:
                        os.sched_setaffinity(int(path.split("/")[2]), cpus)
                    except OSError as e:
                        self.refused.add(f"{name}: {e.strerror}")

    def job(self, point, disk, cpus):
        settings = {
            "filename": f"/dev/{disk}", "rw": f"rand{point.rw}", "bs": point.bs, "iodepth": point.depth,
            "ioengine": "io_uring", "direct": 1, "norandommap": 1, "allow_file_create": 0, "thread": 1,
            "numjobs": len(cpus), "cpus_allowed": ",".join(map(str, cpus)), "cpus_allowed_policy": "split",
            "group_reporting": 1, "clocksource": "clock_gettime", "time_based": 1, "ramp_time": f"{RAMP * 1e3:.0f}ms",
            "runtime": f"{(self.args.seconds + RAMP) * 1e3:.0f}ms",
        }  # fmt: skip
        return "[job]\n" + "".join(f"{name}={value}\n" for name, value in settings.items())

    def run(self, rnd, name, point):
        (disk,) = self.disks
        cpus = self.place(point)
        wait("an idle disk", lambda: read(f"/sys/block/{disk}/inflight").split() == ["0", "0"])
        before = self.sectors([disk])
        p = subprocess.Popen(
            ["fio", "--eta=never", "--output-format=json+", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        p.stdin.write(self.job(point, disk, cpus))
        p.stdin.close()
        p.stdin = None
        wait(f"I/O of {point.name}", lambda: self.sectors([disk]) > before or p.poll() is not None, each=0.01)
        time.sleep(RAMP)
        began, ticks, sectors = time.monotonic_ns(), idle(read("/proc/stat")), self.sectors([disk])
        time.sleep(self.args.seconds)
        ns, later, sectors = time.monotonic_ns() - began, idle(read("/proc/stat")), self.sectors([disk]) - sectors
        output = measure.output_of(p, f"fio {point.name}")
        jobs = json.loads(output[output.index("{") :])["jobs"] if p.returncode == 0 else []
        if not jobs or any(j["error"] for j in jobs):
            sys.exit(f"fio {point.name} with {name} failed:\n{output}")
        j, tick = jobs[0][point.rw], 1e9 / os.sysconf("SC_CLK_TCK")
        busy = {cpu: max(ns - (later[cpu] - ticks[cpu]) * tick, 0) for cpu in self.cpus}
        self.put(
            "run", round=rnd, peer=name, point=point.name, pattern=point.pattern, iops=j["iops"], ios=j["total_ios"],
            bins=j["clat_ns"]["bins"], busy=sum(busy.values()), initiator=sum(busy[cpu] for cpu in cpus),
            done=sectors * 512 / measure.size(point.bs),
        )  # fmt: skip
        p50 = j["clat_ns"]["percentile"]["50.000000"]
        print(f"round {rnd} {name:8}{point.name:16}{j['iops']:9.0f} IOPS, p50 {p50 / 1e3:9.1f} us", flush=True)

    def round(self, rnd, names, these):
        for name in names:
            attach, detach = self.ways[name]
            attach()
            if not rnd:
                self.about(name)
            for point in these:
                self.run(rnd, name, point)
            detach()

    def main(self):
        a, order, began, longest, rnd = self.args, random.Random(SEED), time.monotonic(), 0, 0
        self.machine()
        # Round 0 does not count: work queues have few threads then.
        self.round(0, self.ways, self.points[:1])
        while rnd < (a.rounds or sys.maxsize):
            now = time.monotonic()
            if not a.rounds and rnd >= ratios.LEAST and now - began + longest > a.minutes * 60:
                break
            rnd += 1
            names, these = (order.sample(list(all_of), len(all_of)) for all_of in (self.ways, self.points))
            self.round(rnd, names, these)
            longest = max(longest, time.monotonic() - now)
        if self.placed:
            self.move(set(self.cpus))
        self.put("end", rounds=rnd, refused=sorted(self.refused), apart=self.apart)


def parser():
    p = measure.parser()
    # iSCSI over TCP does no RDMA.
    p.set_defaults(rounds=0, peers={name: peers.GUEST[name] for name in ("nvme", "rnbd", "iser")})
    p.add_argument("--seconds", type=float, required=True, help="of a run")
    p.add_argument("--minutes", type=float, default=0, help="of all rounds, if --rounds does not say how many")
    p.add_argument("--both-ends", action="store_true", help="the target is in this kernel")
    return p


if __name__ == "__main__":
    Cores(parser().parse_args()).main()
