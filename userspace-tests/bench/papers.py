#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""papers.py FOLDER LOG...: turns the consoles of ci/papers.sh into FOLDER/papers.json and a plot for each kind of
result. A nanosecond of these guests is an instruction."""

import json
import re
import sys

import matplotlib
from counts import records

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "srp"  # Makes the file reproducible.
import matplotlib.pyplot as plt

folder, *logs = sys.argv[1:]
found = {}
for log in logs:
    seen = set()
    with open(log, errors="replace") as f:
        for line in f:
            if not (m := re.search(r"\[ *([\d.]+)\].*srp_bench: (\w+) ?(.*)", line)) or m[0] in seen:
                continue
            # If the guest fails, its console output is repeated.
            seen.add(m[0])
            if m[2] == "failed":
                sys.exit(m[0])
            fields = dict(word.split("=") for word in m[3].split())
            row = {k: float(v) if re.fullmatch(r"[\d.]+", v) else v for k, v in fields.items()}
            found.setdefault(m[2], []).append(row)
missing = {
    "registration",
    "rdma",
    "latency",
    "transfer",
    "place",
    "reads",
    "phase", "phases", "polled", "far_depth", "far_clients", "far_regions", "wss_phase", "wss_phases", "xor_limited",
    "xor_far", "xor_clock", "xor_instructions", "cost", "cost_code", "cost_bare", "cost_ring", "ipoib",
    "scale", "scale_code", "scale_link",
    "wss_depth", "end",
} - found.keys()
if missing:
    sys.exit(f"no result for {', '.join(sorted(missing))}")
del found["end"]


def by_role(kind):
    """The counts of each process by its code. The kernel is page 0."""
    (counts,) = (log.removesuffix(".log") + ".counts" for log in logs if log.endswith(f"papers-{kind}.log"))
    rows = []
    with open(counts, "rb") as f:
        for r, triples in zip(found[kind], records(f), strict=True):
            roles = {"kernel": [0, 0]}
            mine = [c for c in found[f"{kind}_code"] if c["way"] == r["way"]]
            code = [(int(c["low"], 16), int(c["high"], 16), c["role"]) for c in mine]
            for page, instructions, stored in zip(*(triples[n::3] for n in range(3))):
                role = "kernel" if page == 0 else next((role for low, high, role in code if low <= page < high), None)
                if role:
                    both = roles.setdefault(role, [0, 0])
                    both[0] += instructions
                    both[1] += stored
            about = {k: v for k, v in r.items() if k != "commands"}
            for role, (instructions, stored) in roles.items():
                rows.append({
                    **about, "role": role, "instructions": round(instructions / r["commands"]),
                    "stored": round(stored / r["commands"] / r["bytes"], 3),
                })  # fmt: skip
            whole = sum(instructions for instructions, _ in roles.values())
            rows.append({**about, "role": "all", "instructions": round(whole / r["commands"]), "stored": 0})
    return rows


found["cost_role"] = by_role("cost")
found["scale_role"] = by_role("scale")
links = {tuple(r[k] for k in ("way", "rw", "bytes", "role", "pages")): r["carried"] for r in found["scale_link"]}
for r in found["scale_role"]:
    r["carried"] = links.get(tuple(r[k] for k in ("way", "rw", "bytes", "role", "pages")), 0)
with open(f"{folder}/papers.json", "w") as f:
    json.dump(found, f, indent=1)


def save(figure, name):
    figure.savefig(f"{folder}/{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def curves(name, panels, xlabel, ylabel, log=True):
    """Plots a panel for each (title, {label: [(x, y)]})."""
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axis, (title, lines) in zip(axes[0], panels):
        for label, points in lines.items():
            points = [(x, y) for x, y in points if y]
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
        if log:
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
        axis.set_title(title)
        axis.set_xlabel(xlabel)
        axis.set_ylabel(ylabel)
        axis.legend()
    save(figure, name)


def of(kind, **match):
    return [r for r in found[kind] if all(r[k] == v for k, v in match.items())]


devices = sorted({r["device"] for r in found["registration"]})
curves(
    "registration",
    [(d, {f"{title}, {b} B": [(r["segments"], r[how]) for r in of("registration", device=d, bytes=b)]
          for how, title in (("one", "one handle"), ("each", "a handle each")) for b in (1024, 2048, 4096)})
     for d in devices],
    "segments", "instructions for registration and invalidation",
)  # fmt: skip
curves(
    "rdma",
    [(f"{d} {how}", {f"{title}, {b} B": [(r["segments"], r[what]) for r in of("rdma", device=d, how=how, bytes=b)]
                     for what, title in (("one", "one transfer"), ("each", "a transfer each"))
                     for b in (1024, 2048, 4096)})
     for d in devices for how in ("read", "write")],
    "segments", "instructions",
)  # fmt: skip
curves(
    "place",
    [(d, {"copied from static memory": [(r["bytes"], r["static"]) for r in of("place", device=d)],
          "registered in place": [(r["bytes"], r["dynamic"]) for r in of("place", device=d)]})
     for d in devices],
    "bytes", "instructions",
)  # fmt: skip
curves(
    "reads",
    [
        (
            f"{d}, depth {q:.0f}",
            {
                "copied from static memory": [(r["bytes"], r["static"]) for r in of("reads", device=d, depth=q)],
                "registered in place": [(r["bytes"], r["dynamic"]) for r in of("reads", device=d, depth=q)],
            },
        )
        for d in devices
        for q in (1, 16)
    ],
    "bytes of a read",
    "instructions",
)
figure, axis = plt.subplots(figsize=(6, 4))
rows = found["latency"]
axis.bar(
    range(len(rows)), [r["mean"] for r in rows],
    yerr=[[r["mean"] - r["min"] for r in rows], [r["max"] - r["mean"] for r in rows]], capsize=3,
)  # fmt: skip
axis.set_xticks(range(len(rows)), [f"{r['device']}\n{r['by']}" for r in rows])
axis.set_ylabel("instructions from the call to the callback")
save(figure, "latency")
delays = sorted({r["delay"] for r in found["far_depth"]})
curves(
    "depth",
    [
        (
            f"{rw}s through the page cache, {how}",
            {
                f"{d / 1000:g} ms": [(r["depth"], r["mbs"]) for r in of("far_depth", delay=d, rw=rw, direct=0, ahead=a)]
                for d in delays
            },
        )
        for rw, a, how in (
            ("read", 31, "31 pages ahead"),
            ("read", 255, "255 pages ahead"),
            ("write", 31, "any read-ahead"),
        )
    ],
    "max_cmd_per_lun",
    "MB/s",
)
curves(
    "clients",
    [
        (
            f"{rw}s, {title}",
            {
                f"{d / 1000:g} ms": [(r["clients"], r["mbs"]) for r in of("far_clients", delay=d, rw=rw, direct=direct)]
                for d in delays
            },
        )
        for rw in ("read", "write")
        for title, direct in (("through the page cache", 0), ("direct", 1))
    ],
    "clients",
    "MB/s",
    log=False,
)
ways = {
    "lio": "LIO",
    "target": "srp-target",
    "one": "SE, CE and RS on one host",
    "two": "CE and RS on another",
    "three": "RS on a third",
}
figure, axes = plt.subplots(1, 2, figsize=(14, 5), sharey=True)
for axis, rw in zip(axes, ("read", "write")):
    rows_of = {(w, d): of("wss_phase", rw=rw, way=w, delay=d) for d in delays for w in ways}
    for n, rows in enumerate(rows_of.values()):
        left = 0
        for color, r in enumerate(rows):
            axis.barh(n, r["median"], left=left, color=f"C{color}", label=r["step"] if n == 0 else None)
            left += r["median"]
    axis.set_yticks(range(len(rows_of)), [f"{ways[w]}, {d / 1000:g} ms" for w, d in rows_of])
    axis.invert_yaxis()
    axis.set_title(f"128 KiB {rw}")
    axis.set_xlabel("instructions")
    axis.legend()
save(figure, "wss-phases")
systems = {
    (s, d): f"{of_s}, {of_d}"
    for s, of_s in (("relays", "relays"), ("raid6", "RAID-6"))
    for d, of_d in (("ours", "our driver"), ("c", "C driver"))
}
stripes, random = of("xor_limited", rw="write"), of("xor_limited", rw="randwrite")
# Bytes sent by the client per byte of data.
for r in found["xor_limited"]:
    r["out"] = round(r["sent"] / r["kib"], 3)
curves(
    "xor-limited",
    [
        (
            title,
            {s: [(r["bytes"], r[what]) for r in random if (r["system"], r["driver"]) == k] for k, s in systems.items()},
        )
        for title, what in (
            ("client's link of 16 Mbit/s, random writes", "kibs"),
            ("bytes that leave the client for one of data", "out"),
        )
    ],
    "bytes of a write",
    "KiB/s; bytes",
)
curves(
    "xor-far",
    [
        (
            f"random {rw[4:]}s of {b / 1024:g} KiB",
            {
                f"{s}, depth {q}": [
                    (r["delay"], r["us"]) for r in of("xor_far", system=k[0], driver=k[1], rw=rw, bytes=b, depth=q)
                ]
                for k, s in systems.items()
                for q in (1, 4)
            },
        )
        for rw in ("randread", "randwrite")
        for b in (4096, 65536)
    ],
    "microseconds from host to host",
    "microseconds of one",
    log=False,
)
figure, axis = plt.subplots(figsize=(6, 4))
for n, rw in enumerate(("read", "write")):
    rows_of = of("phase", rw=rw)
    axis.barh(
        [i + 0.4 * n for i in range(len(rows_of))], [r["median"] for r in rows_of], height=0.4, label=f"128 KiB {rw}"
    )
axis.set_yticks([i + 0.2 for i in range(len(rows_of))], [r["step"] for r in rows_of])
axis.invert_yaxis()
axis.set_xscale("log")
axis.set_xlabel("instructions")
axis.legend()
save(figure, "phases")


def table(title, rows, columns):
    print(f"\n{title}")
    print("  ".join(f"{c:>10}" for c in columns))
    for r in rows:
        print("  ".join(f"{r[c]:>10}" if isinstance(r[c], str) else f"{r[c]:>10.10g}" for c in columns))


table("registration and invalidation", found["registration"], ("device", "bytes", "segments", "one", "each"))
table("RDMA", found["rdma"], ("device", "how", "bytes", "segments", "one", "each"))
table("latency", found["latency"], ("device", "by", "mean", "min", "max"))
table("static and dynamic", found["place"], ("device", "bytes", "static", "dynamic"))
table(
    "static and dynamic, in the driver",
    found["reads"],
    ("device", "depth", "bytes", "static", "dynamic", "ratio", "least", "most"),
)
table("depth, a packet takes `delay` us", found["far_depth"], ("delay", "depth", "rw", "direct", "ahead", "mbs"))
table("clients with a session each, likewise", found["far_clients"], ("delay", "clients", "rw", "direct", "mbs"))
table(
    "128 KiB by regions of so many pages, one command for each, likewise",
    found["far_regions"],
    ("delay", "pages", "rw", "us"),
)
table("phases by who answers, likewise", found["wss_phase"], ("delay", "way", "rw", "step", "median"))
table("latency without and with the events, likewise", found["wss_phases"], ("delay", "way", "rw", "untold", "told"))
table(
    "2-D XOR and RAID-6, the client's link limited",
    stripes + random,
    ("driver", "system", "rw", "bytes", "depth", "kibs", "out"),
)
table(
    "likewise, a packet takes `delay` us", found["xor_far"], ("driver", "system", "rw", "bytes", "depth", "delay", "us")
)
table("phases", found["phase"], ("rw", "step", "commands", "median"))
table("latency without and with the events", found["phases"], ("rw", "untold", "told"))
table("a 4 KiB read of the driver by interrupt and polled", found["polled"], ("depth", "interrupt", "polled"))
table("depth through wss, likewise", found["wss_depth"], ("delay", "depth", "rw", "direct", "ahead", "mbs"))
table("a command by role", found["cost_role"], ("way", "rw", "bytes", "role", "instructions", "stored"))
table(
    "a command of wss by role, with numbers of CEs, RSs and initiators", found["scale_role"],
    ("way", "rw", "bytes", "pages", "role", "instructions", "stored", "carried"),
)  # fmt: skip
table("a message each way by bare verbs", found["cost_bare"], ("bytes", "us"))
table("a message by RDMA WRITE with immediate into a ring", found["cost_ring"], ("bytes", "us"))
table("XOR by the clock", found["xor_clock"], ("bytes", "gbs"))
table("XOR in instructions", found["xor_instructions"], ("bytes", "ns_per_kib"))
table("by requests over TCP on IPoIB, and by SRP", found["ipoib"], ("rw", "bytes", "tcp", "srp"))
