#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""papers-io.py io|reads|far=DELAY|depth=DELAY|phases=WAY,DELAY|cost=WAY,ROLE=PID...|
scale=CES-RSS-INITIATORS,ROLE=PID@LINK... ADD_TARGET LOGIN: repeats the I/O measurements of the papers, and prints each
result on the console.

`io`: the phases of a command (Kernel PM2, figures 3 and 13), from the trace events; reads by interrupt and polled
(figures 4 and 10).
`reads`: static against dynamic memory (Gfarm, figure 5) for the reads of the driver.
`far`: with a one-way delay of DELAY microseconds, depth of the queue and read-ahead (Kernel PM2, figures 12 and
14), the phases, clients with a session each (Gfarm, figures 6 to 9), through the page cache and direct, and a region
for 32 pages against one for each (Kernel PM2, table 3 and figure 12).
`depth`: depth and read-ahead through wss.
`phases`: the phases of a command; WAY names the target.
`cost`: commands between two marks of roles.c, and where the processes of the roles have their code.
`scale`: the same for wss, with a session for each initiator, and the bytes on the links of the roles; with a single
initiator also with a command for each page (Kernel PM2, figure 12).
The guest's clock counts instructions."""

import contextlib
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import time

part, add_target, string = sys.argv[1:]
# MiB per run; a run for a depth transfers three times as much, a client a quarter.
MIB = int(os.environ.get("MIB", 8))
COUNTS = (1, 2, 3, 5, 7, 9)
# The selected parts of `far`.
PARTS = os.environ.get("PARTS", "depth,phases,regions,clients").split(",")
# Number of commands that direct I/O has in flight.
DIRECT = 32


def write(path, text):
    with open(path, "w") as f:
        f.write(str(text))


def wait(condition):
    for _ in range(600):
        if got := condition():
            return got
        time.sleep(0.05)
    sys.exit("waited too long")


def hosts():
    return {os.path.basename(h) for h in glob.glob("/sys/class/srp_host/host*")}


def login(options):
    before = hosts()
    for _ in range(100):
        try:
            write(add_target, string + options)
            break
        # A target that is being removed still exists for a moment; siw breaks one connection in 30.
        except (FileExistsError, ConnectionResetError):
            time.sleep(0.1)
    (host,) = hosts() - before
    disks = wait(lambda: glob.glob(f"/sys/bus/scsi/devices/{host[4:]}:0:0:0/block/*"))
    # After the partition scan the block layer sets the read-ahead once more.
    time.sleep(1)
    return host, os.path.basename(disks[0])


def logout(host):
    write(f"/sys/class/srp_remote_ports/port-{host[4:]}:1/delete", 1)
    wait(lambda: host not in hosts())


def fio(line, text=None):
    """Runs fio and returns the results of its jobs."""
    out = subprocess.run(line, input=text, capture_output=True, text=True, timeout=3600)
    if out.returncode:
        sys.exit(out.stdout + out.stderr)
    return json.loads(out.stdout[out.stdout.index("{") :])["jobs"]


def run(disk, rw, direct, ahead=31, what="far_depth", size=3 * MIB, **more):
    """Reads or writes at full speed and reports the throughput."""
    write(f"/sys/block/{disk}/queue/read_ahead_kb", ahead * 4)
    write("/proc/sys/vm/drop_caches", 3)
    line = [
        "fio", "--output-format=json", "--eta=never", "--allow_file_create=0", f"--filename=/dev/{disk}", "--name=j",
        f"--rw={rw}", "--bs=128k", f"--size={size}m", "--thread", f"--direct={int(direct)}", "--end_fsync=1",
        *(("--ioengine=io_uring", f"--iodepth={DIRECT}") if direct else ("--ioengine=psync",)),
        "--clocksource=clock_gettime",
        # The hint would double the read-ahead.
        "--fadvise_hint=0",
    ]  # fmt: skip
    j = fio(line)[0]
    with open(f"/sys/block/{disk}/queue/read_ahead_kb") as f:
        if int(f.read()) != ahead * 4:
            sys.exit(f"another program has set the read-ahead of {disk}")
    say(what, rw=rw, direct=int(direct), ahead=ahead, **more, mbs=round(j[rw]["bw_bytes"] / 1e6, 2))


def say(what, **fields):
    write("/dev/kmsg", f"srp_bench: {what} " + " ".join(f"{k}={v}" for k, v in fields.items()))


TRACING = "/sys/kernel/tracing"
STEPS = {
    "scsi_dispatch_cmd_start": None, "srp_send": "mapping",
    "srp_response": "target", "srp_invalidate": "response", "srp_done": "invalidation",
    "scsi_dispatch_cmd_done": "midlayer_after",
}  # fmt: skip


def listen(on):
    write(f"{TRACING}/events/ib_srp/enable", on)
    for event in ("start", "done"):
        write(f"{TRACING}/events/scsi/scsi_dispatch_cmd_{event}/enable", on)


def phases(disk, rw, what="", mib=MIB // 2, **more):
    """Reports the median time of each step of a command of 128 KiB, one command at a time."""
    write(f"{TRACING}/trace_clock", "x86-tsc")
    write(f"{TRACING}/buffer_size_kb", 8192)
    untold = one_by_one(disk, rw, mib)
    write(f"{TRACING}/trace", "")
    listen(1)
    told = one_by_one(disk, rw, mib)
    listen(0)
    spans, last = {}, None
    with open(f"{TRACING}/trace") as f:
        for line in f:
            if m := re.search(r"\s(\d+): (\w+): ", line):
                at, event = int(m[1]), m[2]
                if STEPS[event] and last:
                    spans.setdefault(event, []).append(at - last)
                last = at
    counts = {event: len(all) for event, all in spans.items()}
    if set(counts) != {e for e, step in STEPS.items() if step} or len(set(counts.values())) != 1:
        sys.exit(f"phases of {rw}: {counts}")
    for event, all in spans.items():
        say(f"{what}phase", rw=rw, step=STEPS[event], commands=len(all), median=round(statistics.median(all)), **more)
    say(f"{what}phases", rw=rw, untold=untold, told=told, **more)


def one_by_one(disk, rw, mib):
    line = [
        "fio", "--output-format=json", "--eta=never", "--allow_file_create=0", f"--filename=/dev/{disk}", "--name=j",
        f"--rw={rw}", "--bs=128k", f"--size={mib}m", "--ioengine=psync", "--direct=1", "--clocksource=clock_gettime",
    ]  # fmt: skip
    j = fio(line)[0]
    return round(j[rw]["lat_ns"]["mean"])


SIZES = [512 << n for n in range(7)]
COMMANDS = 64


def reads(disk, depth, sizes=SIZES, polled=0):
    """Returns the instructions for a random read of each size."""
    lines = [
        "[global]", f"filename=/dev/{disk}", "rw=randread", "direct=1", "norandommap=1", f"iodepth={depth}",
        "allow_file_create=0", "ioengine=io_uring", f"hipri={polled}", "clocksource=clock_gettime", "stonewall",
    ]  # fmt: skip
    for bytes in sizes:
        lines += [f"[{bytes}]", f"bs={bytes}", f"io_size={bytes * COMMANDS * depth}"]
    jobs = fio(["fio", "--output-format=json", "--eta=never", "-"], "\n".join(lines))
    # With several commands in flight the CPU is never idle, so each command takes its share of the latency.
    return [j["read"]["lat_ns"]["mean"] / depth for j in jobs]


def interrupt_and_polled():
    """Compares reads completed by interrupt with polled ones, in turns."""
    write("/sys/module/ib_srp/parameters/poll_queues", 1)
    host, disk = login("")
    for depth in (1, 16):
        rounds = [[reads(disk, depth, [4096], polled)[0] for polled in (0, 1)] for _ in range(7)][1:]
        interrupt, polled = (round(statistics.median(r)) for r in zip(*rounds))
        say("polled", depth=depth, interrupt=interrupt, polled=polled)
    logout(host)


def static_and_dynamic():
    """Compares reads through memory that stays registered with reads that register, in turns at two sessions. Half of
    the rounds have sessions created in the other order, as two connections are not always equal."""
    rounds = {1: [], 16: []}
    ways = [("static", SIZES[-1]), ("dynamic", 0)]
    for order in ways, ways[::-1]:
        disks, hosts = {}, []
        for port, (name, most) in enumerate(order):
            write("/sys/module/ib_srp/parameters/static_read_max", most)
            host, disks[name] = login(f",initiator_ext={port}")
            hosts.append(host)
        for depth, all in rounds.items():
            # The first round does not count. The order alternates.
            all += [
                {name: reads(disks[name], depth) for name in sorted(disks)[:: 1 if n % 2 else -1]} for n in range(5)
            ][1:]
        for host in hosts:
            logout(host)
    for depth, all in rounds.items():
        for n, bytes in enumerate(SIZES):
            took = {name: round(statistics.median(r[name][n] for r in all)) for name in disks}
            ratios = [r["static"][n] / r["dynamic"][n] for r in all]
            say(
                "reads", device=add_target.split("srp-")[1][:3].capitalize(), depth=depth, bytes=bytes, **took,
                ratio=f"{statistics.median(ratios):.3f}", least=f"{min(ratios):.3f}", most=f"{max(ratios):.3f}",
            )  # fmt: skip


def depths(**more):
    for depth in (1, 2, 4):
        host, disk = login(f",max_cmd_per_lun={depth}")
        run(disk, "read", False, ahead=255, depth=depth, **more)
        for direct in (False, True):
            for rw in ("read", "write"):
                run(disk, rw, direct, depth=depth, **more)
        logout(host)


def clients(**more):
    """Gives each client a session, a part of the disk, and one command in flight."""
    for direct in (True, False):
        sessions = []
        for n in range(1, 10):
            sessions.append(login(f",initiator_ext={n},max_cmd_per_lun=1"))
            if n not in COUNTS:
                continue
            for rw in ("read", "write"):
                write("/proc/sys/vm/drop_caches", 3)
                size = MIB << 18
                lines = [
                    "[global]", f"rw={rw}", "bs=128k", f"size={size}", "ioengine=psync", f"direct={int(direct)}",
                    "end_fsync=1", "group_reporting", "thread", "allow_file_create=0", "clocksource=clock_gettime",
                    "fadvise_hint=0",
                ]  # fmt: skip
                for i, (_, disk) in enumerate(sessions):
                    write(f"/sys/block/{disk}/queue/read_ahead_kb", 31 * 4)
                    lines += [f"[c{i}]", f"filename=/dev/{disk}", f"offset={i * size}"]
                j = fio(["fio", "--output-format=json", "--eta=never", "-"], "\n".join(lines))[0]
                say("far_clients", clients=n, rw=rw, direct=int(direct), mbs=round(j[rw]["bw_bytes"] / 1e6, 2), **more)
        for host, _ in sessions:
            logout(host)


def regions(**more):
    """Compares 128 KiB as one command with a region of 32 pages, and as 32 commands with a region of one page each."""
    write("/sys/module/ib_srp/parameters/static_read_max", 0)
    write("/sys/module/ib_srp/parameters/use_imm_data", "N")
    for pages in (32, 1):
        host, disk = login(f",max_cmd_per_lun=1,max_sect={pages * 8}")
        for rw in ("read", "write"):
            say("far_regions", rw=rw, pages=pages, us=round(one_by_one(disk, rw, MIB // 8) / 1e3, 1), **more)
        logout(host)
    write("/sys/module/ib_srp/parameters/static_read_max", 4096)
    write("/sys/module/ib_srp/parameters/use_imm_data", "Y")


class Counted:
    """Random commands, 16 in flight for each disk, between two marks of roles.c. Each line `kind` belongs to the next
    marks."""

    def __init__(self, kind, way, roles):
        # Only the guests of these parts have the module.
        from measure import Marks

        self.kind, self.way, self.links, self.marks = kind, way, {}, Marks()
        # With a small cache, blocks that it seldom has.
        self.mib = 7 * MIB if way in ("wss-cold", "wss-direct", "wss-set-direct") else 2 * MIB
        for role, pid in (r.split("=") for r in roles if r):
            pid, _, link = pid.partition("@")
            if link:
                self.links.setdefault(role, []).append(link)
            with open(f"/proc/{pid}/maps") as f:
                for low, high in re.findall(r"^(\w+)-(\w+) r-x", f.read(), re.M):
                    say(f"{kind}_code", way=way, role=role, low=f"0x{low}", high=f"0x{high}")

    def log_in(self, options=""):
        host, disk = login(options)
        write(f"/sys/block/{disk}/queue/scheduler", "none")
        return host, disk

    def carried(self):
        """The bytes on the links of each role, both ways."""
        sums = {}
        for role, links in self.links.items():
            names = [f"/sys/class/net/{link}/statistics/{way}_bytes" for link in links for way in ("rx", "tx")]
            sums[role] = sum(int(open(name).read()) for name in names)
        return sums

    def line(self, disk):
        return [
            "fio", "--output-format=json", "--eta=never", "--allow_file_create=0", f"--filename=/dev/{disk}",
            "--name=j", f"--size={self.mib}m", "--ioengine=io_uring", "--direct=1", "--iodepth=16", "--thread",
            "--norandommap=1",
        ]  # fmt: skip

    def run(self, disks, rw, bytes, commands, parts=1, **more):
        """`parts`: number of commands for each I/O of fio."""

        def done():
            sums = 0
            for disk in disks:
                with open(f"/sys/block/{disk}/stat") as f:
                    reads, _, _, _, writes, *_ = map(int, f.read().split())
                sums += reads + writes
            return sums // parts

        began = done()
        options = [f"--rw=rand{rw}", f"--bs={bytes}", "--time_based", "--runtime=100000"]
        with contextlib.ExitStack() as stack:
            for disk in disks:
                p = stack.enter_context(subprocess.Popen([*self.line(disk), *options], stdout=subprocess.DEVNULL))
                stack.callback(p.kill)
            wait(lambda: done() - began > 64)
            before, began_to_count = self.carried(), done()
            self.marks.begin()
            wait(lambda: done() - began_to_count > commands)
            commands = done() - began_to_count
            self.marks.end()
            after = self.carried()
        say(self.kind, way=self.way, rw=rw, bytes=bytes, commands=commands, **more)
        for role, sums in after.items():
            carried = (sums - before[role]) / commands / bytes
            say(f"{self.kind}_link", way=self.way, rw=rw, bytes=bytes, role=role, carried=f"{carried:.3f}", **more)
        for disk in disks:
            wait(lambda disk=disk: open(f"/sys/block/{disk}/inflight").read().split() == ["0", "0"])


SIZED = ((4096, 512), (131072, 96))


def cost(way, *roles):
    counted = Counted("cost", way, roles)
    host, disk = counted.log_in()
    # All blocks are there.
    fio([*counted.line(disk), "--rw=write", "--bs=128k"])
    for rw in ("read", "write"):
        for bytes, commands in SIZED:
            counted.run([disk], rw, bytes, commands)
    logout(host)


def scale(way, *roles):
    counted = Counted("scale", way, roles)
    initiators = int(way.split("-")[2])
    sessions = [counted.log_in(f",initiator_ext={n}" if n else "") for n in range(initiators)]
    disks = [disk for _, disk in sessions]
    fio([*counted.line(disks[0]), "--rw=write", "--bs=128k"])
    for rw in ("read", "write"):
        for bytes, commands in SIZED:
            counted.run(disks, rw, bytes, commands, pages=0)
    for host, _ in sessions:
        logout(host)
    if way != "1-1-1":
        return
    write("/sys/module/ib_srp/parameters/static_read_max", 0)
    write("/sys/module/ib_srp/parameters/use_imm_data", "N")
    for pages in (32, 1):
        host, disk = counted.log_in(f",max_sect={pages * 8}")
        for rw in ("read", "write"):
            counted.run([disk], rw, 131072, 32, 32 // pages, pages=pages)
        logout(host)
    write("/sys/module/ib_srp/parameters/static_read_max", 4096)
    write("/sys/module/ib_srp/parameters/use_imm_data", "Y")


if part.startswith(("cost=", "scale=")):
    what, _, words = part.partition("=")
    {"cost": cost, "scale": scale}[what](*words.split(","))
    sys.exit()
if part == "reads":
    static_and_dynamic()
    sys.exit()
if part.startswith("phases="):
    way, delay = part.removeprefix("phases=").split(",")
    host, disk = login("")
    for rw in ("write", "read"):
        phases(disk, rw, "wss_", way=way, delay=delay)
    logout(host)
    sys.exit()
if part.startswith("depth="):
    # The CE has what is read.
    host, disk = login("")
    one_by_one(disk, "write", MIB)
    logout(host)
    depths(what="wss_depth", size=MIB, delay=part.removeprefix("depth="))
    sys.exit()
if part.startswith("far="):
    delay = part.removeprefix("far=")
    if "depth" in PARTS:
        depths(delay=delay)
    if "phases" in PARTS:
        host, disk = login("")
        for rw in ("write", "read"):
            phases(disk, rw, "wss_", way="lio", delay=delay)
        logout(host)
    if "regions" in PARTS:
        regions(delay=delay)
    if "clients" in PARTS:
        clients(delay=delay)
    sys.exit()
host, disk = login("")
for rw in ("read", "write"):
    phases(disk, rw, mib=2 * MIB)
logout(host)
interrupt_and_polled()
