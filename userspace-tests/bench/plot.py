#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""plot.py FOLDER [peers|scale]: plots FOLDER/results.json into ratios.svg, parts.svg and rates.svg there; or peers.json
into peers.svg; or scale.json into scale.svg."""

import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "srp"  # Makes the file reproducible.
import matplotlib.pyplot as plt

folder, kind = [*sys.argv[1:], "results"][:2]
with open(f"{folder}/{kind}.json") as f:
    results = json.load(f)
workloads = {w: e for w, e in results.get("workloads", {}).items() if not w.startswith("login")}


def save(figure, name):
    figure.savefig(f"{folder}/{name}.svg", bbox_inches="tight", metadata={"Date": None})


def ratios():
    metrics = [("insn", "instructions per I/O"), ("module", "in ib_srp"), ("latency", "mean latency")]
    rows = [(w, v) for w, e in workloads.items() for v in e["ratios"]]
    figure, axes = plt.subplots(1, len(metrics), figsize=(13, 0.28 * len(rows) + 1), sharey=True)
    for axis, (metric, title) in zip(axes, metrics):
        for y, (w, v) in enumerate(rows):
            if r := workloads[w]["ratios"][v].get(metric):
                middle, low, high = r["median"], r["min"], r["max"]
                axis.barh(
                    y,
                    middle,
                    xerr=[[middle - low], [high - middle]],
                    color="tab:green" if middle <= 1 else "tab:red",
                    capsize=2,
                )
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"{title}, ours / C")
    axes[0].set_yticks(range(len(rows)), [w if v == "c" else f"{w} ({v})" for w, v in rows])
    axes[0].invert_yaxis()
    save(figure, "ratios")


def parts():
    rows = [(w, v) for w, e in workloads.items() for v, d in sorted(e["drivers"].items()) if "parts" in d]
    if not rows:
        return
    figure, axis = plt.subplots(figsize=(10, 0.25 * len(rows) + 1))
    left = [0.0] * len(rows)
    total = [sum(workloads[w]["drivers"][v]["parts"].values()) for w, v in rows]
    for part in workloads[rows[0][0]]["drivers"][rows[0][1]]["parts"]:
        # The parts of both drivers, as shares of the C driver's total.
        c = [sum(workloads[w]["drivers"].get("c", workloads[w]["drivers"][v])["parts"].values()) for w, v in rows]
        share = [workloads[w]["drivers"][v]["parts"][part] / n for (w, v), n in zip(rows, c)]
        axis.barh(range(len(rows)), share, left=left, label=part)
        left = [a + b for a, b in zip(left, share)]
    axis.set_yticks(range(len(rows)), [f"{w} {v} ({n:,.0f})" for (w, v), n in zip(rows, total)])
    axis.invert_yaxis()
    axis.set_xlabel("instructions per I/O, C = 1")
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, "parts")


def rates():
    drivers = sorted({v for e in workloads.values() for v in e["drivers"]})
    figure, axes = plt.subplots(1, 3, figsize=(13, 0.4 * len(workloads) + 1), sharey=True)
    for axis, (metric, title, unit) in zip(
        axes, [("iops", "IOPS", 1), ("latency", "mean latency, us", 1e3), ("mbs", "MB/s", 1)]
    ):
        for n, v in enumerate(drivers):
            d = [
                (y, e["drivers"][v][metric]["median"] / unit)
                for y, e in enumerate(workloads.values())
                if v in e["drivers"]
            ]
            axis.barh([y + 0.27 * n for y, _ in d], [x for _, x in d], 0.27, label=v)
        axis.set_xscale("log")
        axis.set_title(title)
    axes[0].set_yticks([y + 0.27 for y in range(len(workloads))], workloads)
    axes[0].invert_yaxis()
    axes[2].legend()
    save(figure, "rates")


def others():
    """Plots each of the other initiators relative to ours."""
    variants = list(dict.fromkeys(v for e in workloads.values() for v in e["ratios"]))
    height = 0.85 / len(variants)
    metrics = [("insn", "instructions per I/O"), ("iops", "IOPS"), ("latency", "mean latency")]
    figure, axes = plt.subplots(1, len(metrics), figsize=(13, 0.12 * len(variants) * len(workloads) + 1), sharey=True)
    for axis, (metric, title) in zip(axes, metrics):
        for n, v in enumerate(variants):
            rows = [(y, e["ratios"][v][metric]) for y, e in enumerate(workloads.values()) if v in e["ratios"]]
            # Inverts the ratios, which are ours relative to theirs.
            axis.barh(
                [y + height * (n + 0.5) for y, _ in rows],
                [1 / r["median"] for _, r in rows],
                height,
                label=v,
                capsize=1,
                xerr=[
                    [1 / r["median"] - 1 / r["max"] for _, r in rows],
                    [1 / r["min"] - 1 / r["median"] for _, r in rows],
                ],
            )
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"{title}, ours = 1")
    axes[0].set_yticks([y + 0.43 for y in range(len(workloads))], workloads)
    axes[0].invert_yaxis()
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, "peers")


def growth():
    """Plots a row for each curve and a picture for each figure, except those in the module."""
    curves = [c for c in results["curves"] if not c["figure"].endswith("in ib_srp")]
    names = list(dict.fromkeys(c["curve"] for c in curves))
    most = max(sum(c["curve"] == name for c in curves) for name in names)
    figure, axes = plt.subplots(len(names), most, figsize=(2.6 * most, 2.4 * len(names)), squeeze=False)
    for row, name in zip(axes, names):
        those = [c for c in curves if c["curve"] == name]
        for axis in row[len(those) :]:
            axis.axis("off")
        for axis, c in zip(row, those):
            points = {int(n): p for n, p in c["points"].items()}
            for variant, label in ("c", "C"), ("rust", "ours"):
                axis.plot(sorted(points), [points[n][variant] for n in sorted(points)], marker=".", label=label)
            axis.set_xscale("log", base=2)
            axis.set_ylim(bottom=0)
            axis.set_title(f"{name}: {c['figure']}", fontsize=7)
            axis.tick_params(labelsize=6)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    save(figure, "scale")


if kind == "peers":
    others()
elif kind == "scale":
    growth()
else:
    ratios()
    parts()
    rates()
