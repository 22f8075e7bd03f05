#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turns the output of measure.py and the plugin (NAME.disk and NAME.counts) into a table, results.json, and results.tsv
with a line for each figure; docs/bench/ has such files.

Instructions per I/O are all that the guest's CPUs executed between two marks, fio and the target included, without idle
time. The I/Os are the commands completed by scsi_done() between the marks, or without any, the requests that the disks
completed, times the I/Os of each by the disks' counters."""

import argparse
import json
import os
import statistics
import sys

import counts

TOLERANCE = 1.03
# Waiting for a lock: with several CPUs mostly because the holder's QEMU thread is preempted.
SPIN = "native_queued_spin_lock_slowpath"
# Figures with their spread in the table.
FIGURES = (
    ("insn", "instructions", 1),
    ("iops", "IOPS", 1),
    ("latency", "latency us", 1e3),
    ("p99", "p99 us", 1e3),
    ("mbs", "MB/s", 1),
)
METRICS = ("insn", "all", "module", "iops", "latency", "p99", "mbs", "login", "memory", "own", "ksoftirqd")


class Results:
    def __init__(self):
        self.machine = {}
        self.order = []  # workloads
        self.all = {}  # (workload, variant, round) -> figures and profile of each start or login
        self.runs = {}  # (workload, variant) -> round -> figures
        self.profiles = {}  # (workload, variant) -> counts per I/O of the last round
        self.requests = {}  # (workload, variant) -> requests of the initiator per I/O

    def read(self, name):
        """Reads a file. Its workloads replace those of earlier files."""
        fresh = set()
        for kind, line, profile in counts.figures(name, self.machine):
            if kind == "requests":
                self.requests[line["workload"], line["variant"]] = line["requests"]
                continue
            if line["workload"] not in fresh:
                fresh.add(line["workload"])
                self.forget(line["workload"])
            self.add(kind, line, profile)

    def forget(self, workload):
        for figures in self.all, self.runs, self.profiles, self.requests:
            for key in [key for key in figures if key[0] == workload]:
                del figures[key]

    def add(self, kind, line, profile):
        # The second login of the C driver is only needed for its I/O.
        if kind == "login" and line["variant"] not in ("c", "rust"):
            return
        workload, ios = line["workload"], line.get("ios", 1)
        # With several CPUs many commands complete between a mark and the read of the disks' counters.
        if profile and profile.calls["commands"] and kind == "run":
            ios *= profile.calls["commands"] / line["requests"]
        if kind == "run":
            figures = {m: line[m] for m in ("iops", "latency", "p99", "mbs")}
        else:
            figures = {"login": line["ns"]} if kind == "login" else {kind: line["bytes"]}
        used = None
        if profile:
            figures["insn"] = profile.total / ios
            if kind == "login":
                figures["insn"] -= profile.functions.get(SPIN, 0)
            if profile.parts["ib_srp"]:
                figures["module"] = profile.parts["ib_srp"] / ios
            if kind == "run":
                figures["busy"] = profile.total / line["ns"]
                figures["ksoftirqd"] = profile.calls["ksoftirqd woken"] / ios
            used = {
                "parts": {k: v / ios for k, v in profile.parts.items()},
                "calls": {k: v / ios for k, v in profile.calls.items()},
                # Omit functions with less than one instruction per I/O.
                "functions": {
                    f: n / ios for f, n in sorted(profile.functions.items(), key=lambda f: -f[1]) if n >= ios
                },
            }
        if workload not in self.order:
            self.order.append(workload)
        several = self.all.setdefault((workload, line["variant"], line["round"]), [])
        several.append((figures, used))
        if kind == "run":
            # Compares both drivers in the same rhythm of the work queues: the start with the fewest instructions.
            figures, used = min(several, key=lambda start: start[0].get("insn", 0))
            if len(several) > 1:
                figures = figures | {"all": statistics.fmean(f["insn"] for f, _ in several)}
        else:
            # The minimum is the least disturbed login.
            figures = {m: min(f[m] for f, _ in several if m in f) for one, _ in several for m in one}
        if used:
            self.profiles[workload, line["variant"]] = used
        self.runs.setdefault((workload, line["variant"]), {})[line["round"]] = figures

    def ratios(self, workload, against, metric):
        """Returns ours / theirs in each round."""
        ours, theirs = self.runs.get((workload, "rust"), {}), self.runs.get((workload, against), {})
        return [
            ours[r][metric] / theirs[r][metric]
            for r in sorted(ours.keys() & theirs.keys())
            if metric in ours[r] and metric in theirs[r] and theirs[r][metric]
        ]

    def against(self, workload):
        return [v for w, v in self.runs if w == workload and v != "rust"]

    def channel(self, variant):
        """Returns the bytes that one more channel of a login takes, in the whole guest and in the module's own
        allocations."""
        one, four = (self.runs.get((f"login-{n}", variant), {}).values() for n in ("1-channel", "4-channels"))
        if not one or not four:
            return None
        each = {m: [statistics.median(r[m] for r in those) for those in (one, four)] for m in ("memory", "own")}
        return {m: (four - one) / 3 for m, (one, four) in each.items()}

    def json(self):
        def spread(values):
            return {"min": min(values), "median": statistics.median(values), "max": max(values), "rounds": values}

        out = {
            "machine": self.machine,
            "workloads": {},
            "channel": {v: c for v in ("c", "rust") if (c := self.channel(v))},
        }
        for w in self.order:
            out["workloads"][w] = entry = {"drivers": {}, "ratios": {}}
            for (workload, variant), rounds in self.runs.items():
                if workload == w:
                    figures = {
                        m: spread([r[m] for r in rounds.values()])
                        for m in (*METRICS, "busy")
                        if m in next(iter(rounds.values()))
                    }
                    entry["drivers"][variant] = figures | self.profiles.get((w, variant), {})
                    if asked := self.requests.get((w, variant)):
                        entry["drivers"][variant]["initiator"] = asked
            for variant in self.against(w):
                entry["ratios"][variant] = {m: spread(r) for m in METRICS if (r := self.ratios(w, variant, m))}
        return out


def table(results):
    columns = [
        ("insn", "instructions per I/O", 1), ("all", "mean of all starts", 1), ("module", "in ib_srp", 1),
        ("iops", "IOPS", 1), ("latency", "latency us", 1e3), ("p99", "p99 us", 1e3), ("mbs", "MB/s", 1),
    ]  # fmt: skip
    compare(results, columns, [w for w in results.order if not w.startswith("login")])
    columns = [
        ("insn", "instructions", 1),
        ("module", "in ib_srp", 1),
        ("login", "ms", 1e6),
        ("memory", "KiB, both ends", 1024),
        ("own", "KiB of its own", 1024),
    ]
    print()
    compare(results, columns, [w for w in results.order if w.startswith("login")])
    if (c := results.channel("c")) and (ours := results.channel("rust")):
        print(
            "KiB for one channel more, C / ours: "
            + ", ".join(
                f"{what} {c[m] / 1024:.0f} / {ours[m] / 1024:.0f}"
                for m, what in (("memory", "both ends"), ("own", "its own"))
            )
        )
    spreads(results)
    absolute(results)


def rounded(x):
    return f"{x:.{0 if x >= 1000 else 1}f}"


def absolute(results):
    figures = [
        f for f in FIGURES if any(f[0] in figures for rounds in results.runs.values() for figures in rounds.values())
    ]
    print(
        "\nminimum / median / maximum of the rounds\n" + f"{'':22}" + "".join(f"{title:>36}" for _, title, _ in figures)
    )
    for w, variant in results.runs:
        rounds = results.runs[w, variant].values()
        if w.startswith("login"):
            continue
        row = f"{w + ' ' + variant:22}"
        for metric, _, unit in figures:
            values = [r[metric] / unit for r in rounds if metric in r]
            text = " / ".join(rounded(f(values)) for f in (min, statistics.median, max)) if values else ""
            row += f"{text:>36}"
        print(row)


def compare(results, columns, workloads):
    columns = [c for c in columns if any(results.ratios(w, v, c[0]) for w in workloads for v in results.against(w))]
    print(f"{'':22}" + "".join(f"{title:>30}" for _, title, _ in columns))
    print(f"{'':22}" + "".join(f"{'C':>11}{'ours':>10}{'ratio':>9}" for _ in columns))
    for w in workloads:
        for variant in results.against(w):
            row = f"{w + ('' if variant == 'c' else ' ' + variant):22}"
            for metric, _, unit in columns:
                ratio = results.ratios(w, variant, metric)
                if not ratio:
                    row += " " * 30
                    continue
                value = [
                    statistics.median(r[metric] for r in results.runs[w, v].values()) / unit for v in (variant, "rust")
                ]
                row += f"{rounded(value[0]):>11}{rounded(value[1]):>10}{statistics.median(ratio):9.3f}"
            print(row)


def spreads(results):
    print("\nratios ours / C, minimum and maximum of the rounds")
    for w in results.order:
        for variant in results.against(w):
            row = ""
            for metric in METRICS:
                if ratio := results.ratios(w, variant, metric):
                    row += f"  {metric} {min(ratio):.3f}-{max(ratio):.3f}"
            print(f"{w + ('' if variant == 'c' else ' ' + variant):22}{row}")


def peers(results):
    """Prints a line for each protocol, with the medians and our ratio to them."""
    columns = [
        ("insn", "insn per I/O", 1),
        ("iops", "IOPS", 1),
        ("latency", "mean us", 1e3),
        ("p99", "p99 us", 1e3),
        ("mbs", "MB/s", 1),
    ]
    ratios = [("insn", "insn"), ("iops", "IOPS"), ("latency", "latency")]
    print(
        f"{'':22}"
        + "".join(f"{title:>14}" for _, title, _ in columns)
        + "   ours / this one:"
        + "".join(f"{t:>9}" for _, t in ratios)
    )
    for w in results.order:
        if w.startswith("login"):
            continue
        for v in [v for workload, v in results.runs if workload == w]:
            rounds = results.runs[w, v].values()
            row = f"{w:15}{v:7}" + "".join(
                f"{statistics.median(r[m] for r in rounds) / unit:14,.1f}" for m, _, unit in columns
            )
            if v != "rust":
                row += " " * 19 + "".join(f"{statistics.median(results.ratios(w, v, m)):9.3f}" for m, _ in ratios)
            print(row)


def figures(results):
    """Yields rows of workload, what ours is against, figure, theirs, ours, ratio, its minimum and maximum; medians over
    the rounds."""
    units = {"latency": 1e3, "p99": 1e3, "login": 1e6, "memory": 1024, "own": 1024}
    for w in results.order:
        for variant in results.against(w):
            for metric in METRICS:
                if ratio := results.ratios(w, variant, metric):
                    pair = [
                        statistics.median(r[metric] for r in results.runs[w, v].values()) / units.get(metric, 1)
                        for v in (variant, "rust")
                    ]
                    spread = (f"{f(ratio):.3f}" for f in (statistics.median, min, max))
                    yield w, variant, metric, *map(rounded, pair), *spread
            sources = {"initiator": results.requests} | {
                k: {n: p[k] for n, p in results.profiles.items()} for k in ("calls", "parts")
            }
            for what, each in sources.items():
                if (w, variant) in each and (w, "rust") in each:
                    for name, theirs in each[w, variant].items():
                        yield w, variant, f"{what}: {name}", f"{theirs:.2f}", f"{each[w, 'rust'][name]:.2f}", "", "", ""


def write_figures(results, path):
    with open(path, "w") as f:
        for name, value in results.machine.items():
            print(f"# {name}: {value}", file=f)
        print(
            "# us, ms (login), KiB (memory, own), MB/s (mbs); medians of the rounds, and the ratio's least and most",
            file=f,
        )
        for row in (("workload", "against", "figure", "theirs", "ours", "ratio", "least", "most"), *figures(results)):
            print(*row, sep="\t", file=f)


def details(results, figures, title):
    """Prints a table of C / ours."""
    if not figures:
        return
    names = next(iter(figures.values()))
    print(f"\n{title:22}" + "".join(f"{n:>20}" for n in names))
    for w in results.order:
        for variant in results.against(w):
            if (w, variant) not in figures or (w, "rust") not in figures:
                continue
            pairs = [[figures[w, v][n] for v in (variant, "rust")] for n in names]
            cells = (" / ".join(f"{x:.0f}" if x >= 100 else f"{x:.2f}" for x in pair) for pair in pairs)
            print(f"{w + ('' if variant == 'c' else ' ' + variant):22}" + "".join(f"{c:>20}" for c in cells))


def check(results, path, short, again, lines):
    """Prints a line for each bound of a workload that was run, and writes the results to the file `lines`. The module's
    instructions are the same in each round, and a round has several logins; other figures need several rounds. In the
    short form, a workload with such a figure over its bound goes into `again`, to be run in three rounds."""
    verdicts = []

    def verdict(name, good, text=""):
        verdicts.append({"name": name, "result": "ok" if good else "fail"} | ({"reason": text} if not good else {}))

    more = set()
    with open(path) as f:
        bounds = [line.split() for line in f if line.strip() and not line.startswith("#")]
    print()
    for workload, against, metric, bound, *least in bounds:
        limit = float(bound)
        if against == "-":
            if metric == "own" and results.ratios(workload, "c", metric):
                value, theirs = (
                    statistics.median(r[metric] / 1024 for r in results.runs[workload, v].values())
                    for v in ("rust", "c")
                )
            elif (workload, "rust") in results.requests:
                value, theirs = (results.requests[workload, v][metric.replace("-", " ")] for v in ("rust", "c"))
            else:
                continue
            # The C driver's value must be positive; ours too, unless the bound is 0 or nothing was counted.
            kept = value <= limit and theirs > 0 and (value > 0) == (limit > 0)
            text = f"{workload} {metric}: {value:.3f}, bound {bound}"
            verdict(f"{workload} {metric}", kept, text)
            print(f"{'ok' if kept else 'fail':6} {text}")
            continue
        ratios = results.ratios(workload, against, metric)
        if not ratios:
            continue
        ratio = statistics.median(ratios)
        text = f"{workload} {metric} against {against}: {ratio:.3f}, bound {bound}"
        steady = metric in ("module", "ksoftirqd") or (metric == "insn" and workload.startswith("login"))
        if len(ratios) < 3 and not steady and (not short or least == ["-"]):
            print(f"{'':6} {text}, not judged by {len(ratios)} rounds")
            continue
        known = short and least not in ([], ["-"]) and ratio > limit * TOLERANCE
        if known:
            limit = float(least[0])
            text += f", missed with {least[0]}"
        word = "fail" if ratio > limit * TOLERANCE else "missed" if known else "over" if ratio > limit else "ok"
        if word == "fail" and again and not steady:
            more.add(workload)
            print(f"{'again':6} {text}")
            continue
        verdict(f"{workload} {metric} against {against}", word != "fail", text)
        print(f"{word:6} {text}")
    if again:
        with open(again, "w") as f:
            f.write(",".join(sorted(more)))
    if more:
        return True
    if lines:
        with open(lines, "w") as f:
            f.writelines(json.dumps(v) + "\n" for v in verdicts)
    return bool(verdicts) and all(v["result"] == "ok" for v in verdicts)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bounds")
    p.add_argument(
        "--short", action="store_true", help="where a bound is missed, what bounds.tsv has for the short form counts"
    )
    p.add_argument("--again", help="where to write the workloads that one round does not do for, with commas")
    p.add_argument("--results", help="where to write the results, one line of JSON each (ci/lab/results.py)")
    p.add_argument("--about", action="append", default=[], help="NAME=VALUE, of the machine or the tree")
    p.add_argument("--peers", action="store_true", help="the table with other initiators")
    p.add_argument("--out", required=True)
    p.add_argument("names", nargs="+")
    a = p.parse_args()
    results = Results()
    results.machine = dict(item.split("=", 1) for item in a.about)
    for name in a.names:
        results.read(name)
    with open(a.out, "w") as f:
        json.dump(results.json(), f, indent=1)
    write_figures(results, os.path.splitext(a.out)[0] + ".tsv")
    if a.peers:
        peers(results)
        return
    table(results)
    details(results, results.requests, "by the initiator")
    for what, title in (("calls", "calls by both ends"), ("parts", "instructions")):
        details(results, {k: p[what] for k, p in results.profiles.items()}, title)
    if a.bounds and not check(results, a.bounds, a.short, a.again, a.results):
        sys.exit(1)


main()
