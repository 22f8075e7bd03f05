#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turns the output of path.py and the plugin paths.c (NAME.disk and NAME.counts) into a table of the instructions that
either side alone executes per I/O, by the layers of layers.tsv. Those of the target's side begin with `target: `."""

import argparse
import functools
import os
import re
import statistics
import sys

import counts

HERE = os.path.dirname(os.path.abspath(__file__))
RULES, SUBTREES = os.path.join(HERE, "layers.tsv"), os.path.join(HERE, "subtrees.tsv")
# A copy of data takes at least LARGE instructions; smaller ones count for the layer that does them.
COPIES, LARGE = re.compile(r"(memcpy_orig|(__|__pi_)?mem(cpy|move)|copy_page\w*) "), 64
# Layers in the order of the table. The first two are the purpose of an initiator's driver.
LAYERS = (
    "driver", "ib_core", "target's driver", "copy", "SCSI, sd", "target", "block", "back end", "io_uring, VFS",
    "interrupt", "scheduler", "device", "copy by the device",
)  # fmt: skip
COPY = {"driver": "copy", "device": "copy by the device"}
DEVICE = ("device", COPY["device"])
OWN = ("driver", "ib_core")
SIDES = ("initiator", "target")
# Fields of the plugin: parent, function, calls, instructions, stores to lines last written by another CPU.
WIDTH = 5
# Functions that wait for a lock.
CONTENDED = re.compile(r"\w*queued_(spin|read|write)_lock_slowpath |__mutex_lock\S* |rwsem_down_\w+_slowpath ")
# Calls that the table has for each side, and one that has none.
CALLS = {"__queue_work ": "works queued", "try_to_wake_up ": "wake-ups"}
CALLS |= {f"ib_cq_completion_{context} ib_core": "completion interrupts" for context in ("softirq", "workqueue")}
SWITCH = "__switch_to"
# Functions that complete a request. A tree has those of one initiator.
COMPLETED = ("scsi_done", "nvme_rdma_complete_rq")
TOP = 40
# With --curves: the names of the points, the rows that are not about the initiator, and the initiator's figures whose
# ratios are printed.
POINT = re.compile(r"([a-z]+)-(read|write)-(\d+)")
ELSEWHERE = re.compile(r"(target|both|with all below): ")
LINES = "lines of another CPU"
RATIOS = ("initiator", "driver + ib_core", LINES, "latency in us")
OURS = "rust"


def lines(path):
    with open(path) as f:
        return [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]


class Rules:
    def __init__(self, path, subtrees):
        rows = lines(path)
        self.subtrees = [
            (name, re.compile(begins), re.compile(ends[0] if ends else "$")) for name, begins, *ends in lines(subtrees)
        ]
        self.rules = {kind: [(name, re.compile(p)) for k, name, p in rows if k == kind] for kind in ("side", "layer")}
        self.known = {}

    def __getitem__(self, function):
        """Returns the function's side and layer; None stands for its caller's."""
        if function not in self.known:
            self.known[function] = tuple(
                next((n for n, p in those if p.match(function)), None) for those in self.rules.values()
            )
        return self.known[function]


class Tree:
    """Instructions by side, layer and function between two marks."""

    def __init__(self, rules, tree, names):
        self.parts = {}  # (side, layer, function) -> instructions
        self.calls = {}
        self.subtrees = {}  # subtree -> instructions of the initiator, including callees
        self.user = tree[WIDTH + 3]
        self.shared = {}  # (side, contended locks or lines of another CPU) -> count
        self.called = dict.fromkeys(((s, what) for s in SIDES for what in CALLS.values()), 0)
        n = len(tree) // WIDTH
        parents, calls, insns, lines = tree[0::WIDTH], tree[2::WIDTH], tree[3::WIDTH], tree[4::WIDTH]
        functions, sides, layers = [""] * n, [None] * n, ["other"] * n
        for i in range(2, n):
            (_, name, module), _ = names[tree[WIDTH * i + 1]]
            functions[i] = f"{name} {module}"
            side, layer = rules[functions[i]]
            sides[i] = None if side == "shared" else side or sides[parents[i]]
            layers[i] = layer or layers[parents[i]]
            if COPIES.match(functions[i]) and insns[i] > LARGE * calls[i] and layers[i] in COPY:
                layers[i] = COPY[layers[i]]
            self.calls[name] = self.calls.get(name, 0) + calls[i]
        # For functions without a side: the number of their calls for each side. A call of another function without a
        # side is one call, however many calls it makes.
        callees = [{} for _ in range(n)]
        for i in range(n - 1, 1, -1):
            those = {sides[i]: 1} if sides[i] else callees[i]
            if not sides[parents[i]] and (whole := sum(those.values())):
                for side, weight in those.items():
                    callees[parents[i]][side] = callees[parents[i]].get(side, 0) + calls[i] * weight / whole
        shares = [{"other": 1}] * n
        below = [0] * n
        for i in range(2, n):
            if sides[i]:
                shares[i] = {sides[i]: 1}
            elif whole := sum(callees[i].values()):
                shares[i] = {side: weight / whole for side, weight in callees[i].items()}
            elif parents[i]:
                shares[i] = shares[parents[i]]
            for side, weight in shares[i].items() if insns[i] else ():
                key = side, layers[i], functions[i]
                self.parts[key] = self.parts.get(key, 0) + insns[i] * weight
                for what, times in (
                    (LINES, lines[i]),
                    (f"{LINES}: {layers[i]}", lines[i]),
                    ("contended locks", calls[i] * bool(CONTENDED.match(functions[i]))),
                ):
                    self.shared[side, what] = self.shared.get((side, what), 0) + times * weight
            for side in SIDES if functions[i] in CALLS else ():
                self.called[side, CALLS[functions[i]]] += calls[i] * shares[i].get(side, 0)
            if layers[i] not in DEVICE:
                below[i] = insns[i] * shares[i].get("initiator", 0)
        for i in range(n - 1, 1, -1):
            below[parents[i]] += below[i]
        for name, begins, ends in rules.subtrees:
            inside, found = [False] * n, 0
            for i in range(2, n):
                within = inside[parents[i]]
                inside[i] = not ends.match(functions[i]) if within else bool(begins.match(functions[i]))
                found += below[i] * (inside[i] - within)
            self.subtrees[name] = found
        if abs(sum(self.parts.values()) + self.user - sum(insns)) > 1:
            sys.exit("the layers are not all that ran")


class Runs:
    def __init__(self):
        self.machine = {}
        # (device, workload, variant) -> a list of (layers, functions, sides, shared, subtrees, target, called), per I/O
        self.runs = {}

    def read(self, name, rules):
        device = os.path.basename(name).rpartition("-")[2]
        for kind, line, tree in counts.figures(name, self.machine, WIDTH, functools.partial(Tree, rules)):
            if kind != "run":
                continue
            ios = line["ios"]
            # Some I/Os complete between a mark and the read of the disk's counters.
            if done := sum(tree.calls.get(name, 0) for name in COMPLETED):
                ios *= done / line["requests"]
            layers, functions, sides, target = {}, {}, {"user": tree.user / ios}, {}
            for (side, layer, function), insns in tree.parts.items():
                sides[side] = sides.get(side, 0) + insns / ios
                if side == "initiator":
                    layers[layer] = layers.get(layer, 0) + insns / ios
                    key = layer, function
                    functions[key] = functions.get(key, 0) + insns / ios
                elif side == "target":
                    target[layer] = target.get(layer, 0) + insns / ios
            shared = {what: times / ios for (side, what), times in tree.shared.items() if side == "initiator"}
            called = {f"{side}: {what}": n / ios for (side, what), n in tree.called.items()}
            called["both: context switches"] = tree.calls.get(SWITCH, 0) / ios
            # With several CPUs the guest's clock is that of this machine. QEMU's counts each step of a string
            # instruction.
            if self.machine["cpus"] == 1 and "+fsrm" not in device:
                called["latency in us"] = line["latency"] / 1000
                called["IOPS"] = line["iops"]
            subtrees = {what: n / ios for what, n in tree.subtrees.items()}
            self.runs.setdefault((device, line["workload"], line["variant"]), []).append(
                (layers, functions, sides, shared, subtrees, target, called)
            )

    @staticmethod
    def medians(runs):
        """Returns the median of each layer, in the order of the table, and their sum without the device."""
        names = dict.fromkeys(k for layers in runs for k in layers)
        names = sorted(names, key=lambda k: LAYERS.index(k) if k in LAYERS else len(LAYERS))
        layers = {k: statistics.median(l.get(k, 0) for l in runs) for k in names}
        return layers, sum(n for k, n in layers.items() if k not in DEVICE)

    def rows(self):
        """Yields workload, device, initiator, layer, instructions: medians of the rounds."""
        for (device, workload, variant), those in self.runs.items():
            layers, whole = self.medians([l for l, *_ in those])
            own = sum(layers.get(k, 0) for k in OWN)
            for layer, n in layers.items():
                yield workload, device, variant, layer, n
            yield workload, device, variant, "driver + ib_core", own
            yield workload, device, variant, "initiator", whole
            layers, whole = self.medians([t for *_, t, _ in those])
            for layer, n in layers.items():
                yield workload, device, variant, f"target: {layer}", n
            yield workload, device, variant, "target: all", whole
            for what in dict.fromkeys(what for run in those for what in run[3]) if any(those[0][3].values()) else ():
                yield workload, device, variant, what, statistics.median(run[3].get(what, 0) for run in those)
            for what in those[0][6]:
                yield workload, device, variant, what, statistics.median(run[6][what] for run in those)
            for what in those[0][4]:
                below = statistics.median(run[4][what] for run in those)
                yield workload, device, variant, f"with all below: {what}", below


def figure(n):
    return f"{n:,.0f}" if n >= 100 or n == int(n) else f"{n:.2f}"


def show(title, variants, cells):
    """Prints a line for each row, with a column for each initiator. `cells` has the numbers by row and initiator."""
    print(f"\n{title:56}" + "".join(f"{v:>10}" for v in variants))
    for row, those in cells.items():
        print(f"{row:56}" + "".join(f"{figure(those.get(v, 0)):>10}" for v in variants))


def table(rows):
    """Prints a line for each layer of a workload."""
    cells = {}
    for workload, device, variant, layer, n in rows:
        cells.setdefault((workload, device), {}).setdefault(layer, {})[variant] = n
    for (workload, device), layers in cells.items():
        show(f"{workload} {device}", list(dict.fromkeys(v for those in layers.values() for v in those)), layers)


def top(runs):
    """Prints the instructions of each side, and the functions of the initiator's side that take most."""
    found = {}
    for (device, workload, variant), those in runs.runs.items():
        _, functions, sides, *_ = those[-1]
        cells, totals = found.setdefault((workload, device), ({}, {}))
        for side, n in sides.items():
            totals.setdefault(side, {})[variant] = n
        for (layer, function), n in functions.items():
            if layer not in DEVICE:
                cells.setdefault(f"    {layer:16}{function}", {})[variant] = n
    for (workload, device), (cells, totals) in found.items():
        variants = list(dict.fromkeys(v for those in totals.values() for v in those))
        most = sorted(cells.items(), key=lambda item: -max(item[1].values()))[:TOP]
        show(f"{workload} {device}", variants, totals | dict(most))


def points(rows):
    """Returns {(curve, number, direction, device): {figure: {initiator: number}}} of the initiator's side."""
    found = {}
    for workload, device, variant, what, n in rows:
        if (name := POINT.fullmatch(workload)) and not ELSEWHERE.match(what):
            key = name[1], int(name[3]), name[2], device
            found.setdefault(key, {}).setdefault(what, {})[variant] = n
    return dict(sorted(found.items()))


def ratios(found):
    """Yields a line for each curve, figure and peer: the ratios ours / theirs at its points."""
    lines = {}
    for (curve, n, direction, device), figures in found.items():
        for what in RATIOS:
            those = figures.get(what, {})
            for peer, theirs in those.items():
                if peer != OURS and OURS in those and theirs:
                    key = f"{curve} {direction} {device}: {what}, ours / {peer}"
                    lines.setdefault(key, []).append(f"{n}: {those[OURS] / theirs:.2f}")
    for key, cells in lines.items():
        yield f"{key:64} {', '.join(cells)}"


def write_points(f, found):
    variants = list(dict.fromkeys(v for figures in found.values() for those in figures.values() for v in those))
    f.write("\t".join(("curve", "n", "direction", "device", "figure", *variants)) + "\n")
    for (curve, n, *names), figures in found.items():
        for what, those in figures.items():
            # What an initiator never executes has no row of its own, but a point that is not measured has no number.
            cells = (
                figure(those.get(v, 0)).replace(",", "") if v in figures["initiator"] else "" for v in variants
            )
            f.write("\t".join((curve, str(n), *names, what, *cells)) + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--about", action="append", default=[], help="NAME=VALUE, of the machine or the tree")
    p.add_argument("--out", required=True)
    p.add_argument("--curves", action="store_true", help="a line for each figure of a point, with all initiators")
    p.add_argument("names", nargs="+")
    a = p.parse_args()
    runs, rules = Runs(), Rules(RULES, SUBTREES)
    status, cpus = 0, set()
    for name in a.names:
        try:
            runs.read(name, rules)
        except SystemExit as why:
            print(why, file=sys.stderr)
            status = 1
        # Also of a guest that has died.
        cpus.update(n for what, n in runs.machine.items() if what == "cpus")
    runs.machine["cpus"] = ", ".join(map(str, sorted(cpus)))
    runs.machine.update(item.split("=", 1) for item in a.about)
    rows = list(runs.rows())
    with open(a.out, "w") as f:
        for what, value in runs.machine.items():
            f.write(f"# {what}: {value}\n")
        if a.curves:
            write_points(f, points(rows))
        else:
            f.write("workload\tdevice\tinitiator\tlayer\tinsn\n")
            for *names, n in rows:
                f.write("\t".join(names) + f"\t{figure(n).replace(',', '')}\n")
    table(rows)
    top(runs)
    for line in ratios(points(rows)):
        print(line)
    return status


if __name__ == "__main__":
    sys.exit(main())
