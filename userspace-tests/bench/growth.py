#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turns the output of scale.py and the plugin (NAME.disk and NAME.counts) into a table, scale.json and scale.tsv.
Reports figures that grow faster than their cause, and where ours is behind C.

Instructions are all of the guest's kernel, of both ends, except idle time and spinning on locks."""

import argparse
import json
import math
import os
import statistics
import sys

import counts

# Maximum ratio to the C driver's figure, and maximum exponent of growth. They allow for differences between rounds.
TOLERANCE = 1.03
LINEAR = 1.1
# STORM sessions must recover from the loss of the target's port within SHARE of the C driver's time.
STORM, SHARE = 64, 1 / 3
SPIN = "native_queued_spin_lock_slowpath"
UNITS = {"ms": 1e6, "memory": 1024}


class Growth:
    def __init__(self):
        self.machine = {}
        self.points = {}  # (curve, figure) -> n -> variant -> one value per round

    def put(self, curve, figure, n, variant, value):
        unit = UNITS.get(figure.rpartition(", ")[2], 1)
        self.points.setdefault((curve, figure), {}).setdefault(n, {}).setdefault(variant, []).append(value / unit)

    def read(self, name):
        machine = {}
        for _, line, profile in counts.figures(name, machine):
            curve, n, variant, what = (line[k] for k in ("curve", "n", "variant", "what"))
            if "value" in line:
                self.put(curve, what, n, variant, line["value"])
                continue
            insn = profile.total - profile.parts["user"] - profile.functions.get(SPIN, 0)
            if what == "busy":
                self.put(curve, "I/O, instructions", n, variant, insn / line["ios"])
                self.put(curve, "I/O, in ib_srp", n, variant, profile.parts["ib_srp"] / line["ios"])
                continue
            self.put(curve, f"{what}, instructions", n, variant, insn)
            self.put(curve, f"{what}, in ib_srp", n, variant, profile.parts["ib_srp"])
            # Times of several emulated CPUs are meaningless.
            if machine["cpus"] == 1:
                self.put(curve, f"{what}, ms", n, variant, line["ns"])
        self.machine |= {k: v for k, v in machine.items() if k != "cpus"}

    def medians(self):
        return {
            key: {n: {v: statistics.median(values) for v, values in by.items()} for n, by in points.items()}
            for key, points in self.points.items()
        }


def exponent(points, variant):
    """Returns the exponent of the growth in the upper half of a curve: 1 is linear."""
    ns = sorted(points)
    low, high = ns[len(ns) // 2], ns[-1]
    a, b = points[low][variant], points[high][variant]
    return math.log(b / a) / math.log(high / low) if low < high and a > 0 and b > 0 else None


def table(medians):
    for (curve, figure), points in medians.items():
        growth = [exponent(points, v) for v in ("c", "rust")]
        print(
            f"\n{curve}: {figure}"
            + "".join(f"; {v} grows by {g:.2f}" for v, g in zip(("C", "ours"), growth) if g is not None)
        )
        for n in sorted(points):
            c, ours = points[n]["c"], points[n]["rust"]
            print(f"{n:6}{c:16,.1f}{ours:16,.1f}" + (f"{ours / c:8.3f}" if c else ""))


def judge(medians):
    """Yields a sentence for each missed target. The module's own instructions are part of the total."""
    for (curve, figure), points in medians.items():
        if figure.endswith("in ib_srp"):
            continue
        if not figure.startswith("I/O") and (g := exponent(points, "rust")) is not None and g > LINEAR:
            yield f"{curve}: {figure} grows by the power {g:.2f}"
        if behind := [n for n in sorted(points) if points[n]["rust"] > points[n]["c"] * TOLERANCE]:
            worst = max(points[n]["rust"] / points[n]["c"] if points[n]["c"] else math.inf for n in behind)
            yield f"{curve}: {figure} is behind C at {', '.join(map(str, behind))}: {worst:.3f}"
    if storm := medians.get(("sessions", "flap, ms"), {}).get(STORM):
        if (share := storm["rust"] / storm["c"]) > SHARE:
            yield f"sessions: flap, ms, is {share:.3f} of C's with {STORM}, to be {SHARE:.3f}"


def write(growth, medians, path):
    with open(path + ".json", "w") as f:
        curves = [{"curve": c, "figure": fig, "points": points} for (c, fig), points in medians.items()]
        json.dump({"machine": growth.machine, "curves": curves}, f, indent=1)
    with open(path + ".tsv", "w") as f:
        for name, value in growth.machine.items():
            print(f"# {name}: {value}", file=f)
        print("curve", "n", "figure", "C", "ours", sep="\t", file=f)
        for (curve, figure), points in medians.items():
            for n in sorted(points):
                print(curve, n, figure, *(f"{points[n][v]:.1f}" for v in ("c", "rust")), sep="\t", file=f)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--about", action="append", default=[], help="NAME=VALUE, of the machine or the tree")
    p.add_argument("--out", required=True, help="FILE.json; the table goes beside it")
    p.add_argument("names", nargs="+")
    a = p.parse_args()
    growth = Growth()
    growth.machine = dict(item.split("=", 1) for item in a.about)
    for name in a.names:
        growth.read(name)
    medians = growth.medians()
    table(medians)
    write(growth, medians, os.path.splitext(a.out)[0])
    wrong = list(judge(medians))
    print("", *wrong, f"{len(wrong)} out of bounds", sep="\n")
    sys.exit(bool(wrong))


main()
