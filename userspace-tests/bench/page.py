#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turns the output of cores.py into a table, OUT.tsv, and a page that can be mailed, OUT.txt. Its exit status is 3 if
the machine is too noisy: then the table says so, too."""

import argparse
import math
import re
import statistics
import sys

import counts
import ratios

OURS, CONTROL = "ours", "control"
NOISY = 3
PERCENTS = (50, 99, 99.99)
# Those of path-workloads.tsv that are points of cores.py, too.
WORKLOADS = re.compile(r"(4|64)k-(read|write)-qd(1|16)")
COLUMNS = (
    "device", "point", "peer", "rounds", "iops", "p50_us", "p99_us", "p99.99_us", "cpu_us", "own",
    "ours/peer", "low", "high", "noisy",
)  # fmt: skip
NOT_PINNED = """\
apart: fio has one half of the CPUs. The other half has what can be moved: unbound work queues (rxe_wq of soft-RoCE,
nvmet-wq) and the threads of the iSCSI target. What cannot be moved: a softirq runs on the CPU that raises it, which
with soft-RoCE is that of rxe_wq, so the initiator's completions run on the target's half; per-CPU work queues
(ib-comp-wq of ib_core, target_submission and target_completion of LIO) run on the CPU that queues the work. So the
halves are those of fio and its submissions, and of all else; `own` is the share of the busy time on fio's half."""
NO_HALVES = """\
Both ends share all CPUs. On ib_vfab the kernel lets no end have CPUs of its own: the interrupt of a completion runs on
the CPU that posts, and the target's per-CPU work queues on that of the interrupt."""


class Device:
    """The rounds of one device."""

    def __init__(self, names):
        self.machine, self.adapter, self.peers, self.ended, self.refused = {}, {}, {}, True, []
        self.apart = False
        self.runs = {}  # (point, peer) -> {round: line}
        self.patterns = {}  # pattern -> its points
        for number, name in enumerate(names):
            self.ended = False
            for line in counts.lines(f"{name}.disk"):
                self.add(line, number)

    def add(self, line, number):
        kind = line.pop("kind")
        if kind == "run":
            # A guest that replaces a dead one has rounds of its own.
            those = self.runs.setdefault((line["point"], line["peer"]), {})
            those[number, line["round"]] = line
            self.patterns.setdefault(line["pattern"], {})[line["point"]] = None
        elif kind == "peer":
            self.peers[line.pop("name")] = line
        elif kind == "end":
            self.ended, self.refused, self.apart = True, line["refused"], line["apart"]
        else:
            setattr(self, kind, line)

    @property
    def points(self):
        """Returns the points as their patterns have them, by depth."""
        return [
            point
            for pattern in sorted(self.patterns)
            for point in sorted(self.patterns[pattern], key=lambda p: int(p.split("-d")[1].partition("-")[0]))
        ]

    def iops(self, points, peer):
        """Returns the geometric mean of the points' IOPS in each round that has all of them."""
        rounds = [self.runs.get((point, peer), {}) for point in points]
        common = set.intersection(*(set(r) for r in rounds))
        return {n: math.exp(statistics.fmean(math.log(r[n]["iops"]) for r in rounds)) for n in sorted(common)}

    def ratios(self, points, peer):
        """Returns ours / peer in each round that has both."""
        ours, theirs = self.iops(points, OURS), self.iops(points, peer)
        return [ours[n] / theirs[n] for n in ours if n in theirs]

    def lines(self):
        """Returns for each line of the table its name and the points that it is made from."""
        found = {point: [point] for point in self.points}
        for pattern in sorted(self.patterns):
            if len(self.patterns[pattern]) > 1:
                found[f"{pattern}-all"] = list(self.patterns[pattern])
        return found

    def figures(self, point, peer):
        """Returns IOPS, percentiles in ns, CPU per I/O in ns, and the share of fio's half of the CPUs in it."""
        those = list(self.runs[point, peer].values())
        bins = {}
        for line in those:
            for ns, n in line["bins"].items():
                bins[int(ns)] = bins.get(int(ns), 0) + n
        busy, own, done = (sum(line[what] for line in those) for what in ("busy", "initiator", "done"))
        return (
            statistics.median(line["iops"] for line in those),
            *(ratios.percentile(bins, p) for p in PERCENTS),
            busy / done if done else None,
            own / busy if busy and point.endswith("-apart") else None,
        )


def rows(name, device, noisy):
    """Yields the rows of the table; None stands for a figure that does not exist."""
    for line, points in device.lines().items():
        for peer in device.peers:
            those = device.runs.get((points[0], peer), {})
            single = points == [line]
            if not those or (peer == OURS and not single):
                continue
            own = device.figures(line, peer) if single else (None,) * 6
            found = device.ratios(points, peer) if peer != OURS else []
            ratio = ratios.interval(found) if found else (None,) * 3
            times = [ns / 1e3 if ns is not None else None for ns in own[1:5]]
            yield name, line, peer, len(found or those), own[0], *times, own[5], *ratio, noisy[name, line]


def cell(value, digits):
    if value is None or (isinstance(value, float) and math.isinf(value)):
        return "-"
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def tsv(about, table):
    lines = [f"# {name}: {value}" for name, value in about.items()]
    lines.append("\t".join(COLUMNS))
    digits = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 0)
    lines += ["\t".join(cell(v, d) for v, d in zip(row, digits)) for row in table]
    return "\n".join(lines) + "\n"


def heading(name, device):
    m, a = device.machine, device.adapter
    yield f"{name}: {a['device']}/{a['port']}, {' '.join(filter(None, (a['hca_type'], a['board_id'], a['fw_ver'])))}"
    yield (
        f"  {a['link_layer']} {a['rate']}, MTU {a['mtu']}"
        + (f", {a['netdev']} {a['netdev_mtu']}" if a["netdev"] else "")
        + f"; kernel {m['kernel']}; {len(a['cpus'])} CPUs, {m['cpu']}; {m['fio']}"
    )
    for peer, p in device.peers.items():
        if peer != CONTROL:
            yield (
                f"  {peer}: {p['module']} {p['version'] or 'of the kernel'}, scheduler {p['scheduler']}, "
                f"{p['hardware_queues']} hardware queues of {p['nr_requests']}, {p['max_sectors_kb']} KiB, "
                f"{p['max_segments']} segments"
            )


def table_text(table):
    yield (
        f"{'':20}{'':9}{'IOPS':>9}{'p50 us':>9}{'p99 us':>9}{'p99.99':>9}{'CPU us':>8}{'own':>5}   ours/peer, 95 %"
    )
    last = None
    for _, line, peer, rounds, iops, *times, share, ratio, low, high, noisy in table:
        values, digits, widths = (iops, *times, share), (0, 1, 1, 1, 2, 2), (9, 9, 9, 9, 8, 5)
        shown = "".join(f"{cell(v, d):>{w}}" for v, d, w in zip(values, digits, widths))
        text = f"{line if line != last else '':20}{peer:9}{shown}"
        if ratio is not None:
            text += f"   {ratio:.2f}  {cell(low, 2)} to {cell(high, 2)}, {rounds} rounds"
        if noisy and peer == CONTROL:
            text += f"  NOISY: {noisy}"
        elif noisy and peer != OURS:
            text += "  NOISY"
        last = line
        yield text.rstrip()


def verdict(noisy):
    bad = [f"{device} {line}" for (device, line), why in noisy.items() if why]
    if not bad:
        return f"quiet: ours against itself is 1.00 in all {len(noisy)} lines, within {ratios.BOUND:.2f}"
    return f"TOO NOISY: in {len(bad)} of {len(noisy)} lines, ours against itself says that the ratio means nothing"


def layers(path, devices):
    """Yields the instructions of both ends for the patterns of the page, from the table of paths.py."""
    cells, about = {}, ""
    with open(path) as f:
        for line in f:
            if line.startswith("# commit"):
                about = line[2:].strip()
            words = line.rstrip("\n").split("\t")
            here = WORKLOADS.fullmatch(words[0]) and words[1] in devices
            if here and not words[3].startswith("with all below"):
                initiator = {"rust": OURS}.get(words[2], words[2])
                cells.setdefault(tuple(words[:2]), {}).setdefault(words[3], {})[initiator] = float(words[4])
    for (workload, device), rows in cells.items():
        peers = list(dict.fromkeys(peer for those in rows.values() for peer in those))
        yield ""
        yield f"{f'instructions, {device} {workload}':38}" + "".join(f"{peer:>9}" for peer in peers)
        for row, those in rows.items():
            yield f"  {row:36}" + "".join(f"{those.get(peer, 0):9,.0f}" for peer in peers)
    if cells:
        yield f"By make bench-path, one CPU whose clock counts instructions; {about}."
        yield "`initiator` and `target: all` are sums without the device."


def page(about, devices, table, noisy, path=None):
    yield from (f"{name}: {value}" for name, value in about.items())
    yield verdict(noisy)
    yield ""
    both = any(d.adapter["both_ends"] for d in devices.values())
    yield "IOPS: median of the rounds. Percentiles: completion latency, of fio's histograms of all rounds together; -"
    ends = "both ends" if both else "this end"
    yield f"where too few I/Os are for one. CPU us: busy time per I/O on all CPUs, {ends}."
    yield "ours/peer: IOPS of the same round, geometric mean and 95 % confidence interval; above 1 ours has more."
    yield "control: ours again, under the same conditions. -all: all depths of the pattern together. d: depth per CPU."
    if both:
        yield ""
        yield NOT_PINNED if any(d.apart for d in devices.values()) else NO_HALVES
        for refused in sorted({text for d in devices.values() for text in d.refused}):
            yield f"not moved: {refused}"
    for name, device in devices.items():
        yield ""
        yield from heading(name, device)
        if not device.ended:
            yield "  INCOMPLETE: the run has died"
        yield ""
        yield from table_text([row for row in table if row[0] == name])
    if path:
        yield from layers(path, devices)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--about", action="append", default=[], help="NAME=VALUE, of the machine or the tree")
    p.add_argument("--layers", help="the table of paths.py, for the page")
    p.add_argument("--out", required=True, help="without suffix")
    p.add_argument("devices", nargs="+", metavar="DEVICE=LOG,...")
    a = p.parse_args()
    devices = {name: Device(logs.split(",")) for name, _, logs in (d.partition("=") for d in a.devices)}
    controls = {
        (name, line): d.ratios(those, CONTROL) for name, d in devices.items() for line, those in d.lines().items()
    }
    if not controls:
        sys.exit("no run is complete")
    noisy = ratios.noise(controls)
    about = dict(item.split("=", 1) for item in a.about)
    table = [row for name, device in devices.items() for row in rows(name, device, noisy)]
    text = "\n".join(page(about, devices, table, noisy, a.layers)) + "\n"
    with open(f"{a.out}.txt", "w") as f:
        f.write(text)
    with open(f"{a.out}.tsv", "w") as f:
        f.write(tsv({**about, "verdict": verdict(noisy)}, table))
    print(text, end="")
    sys.exit(NOISY if any(noisy.values()) else 0 if all(d.ended for d in devices.values()) else 1)


if __name__ == "__main__":
    main()
