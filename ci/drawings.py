#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""drawings.py TREE make|check: makes the pictures of README, docs/beside-c.svg and docs/who-is-who.svg, or checks that
they are as this script makes them. The figures are those of the table in docs/performance.md."""

import html
import pathlib
import re
import sys

OURS, DRIVER, FRAME, INK, PALE = "#2a78b5", "#8fc1e3", "#888888", "#222222", "#eef4f9"


class Svg:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="13" fill="{INK}">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def rect(self, x, y, width, height, fill, stroke="none", more=""):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{stroke}"{more}/>'
        )

    def line(self, x1, y1, x2, y2, colour=INK, more=""):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"{more}/>')

    def text(self, x, y, text, anchor="start", size=13, more=""):
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{more}>{html.escape(text)}</text>'
        )

    def box(self, x, y, width, height, *lines):
        """Draws a box with lines of text, the first in bold."""
        self.rect(x, y, width, height, PALE, OURS, ' rx="4"')
        top = y + height / 2 - 8 * len(lines) + 12
        for n, line in enumerate(lines):
            self.text(
                x + width / 2, top + 16 * n, line, "middle", 13 if n == 0 else 11, "" if n else ' font-weight="bold"'
            )

    def frame(self, x, y, width, height, title):
        self.rect(x, y, width, height, "none", FRAME, ' rx="8" stroke-dasharray="5 4"')
        self.text(x + 10, y + 19, title, more=' font-weight="bold"')

    def __str__(self):
        return "\n".join([*self.parts, "</svg>", ""])


def table(page):
    """Returns the rows of "Beside the C driver" as (workload, whole system, in the driver)."""
    section = page.split("## Beside the C driver")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    titles = [cell.strip() for cell in re.search(r"^\|(.*)\|$", section, re.M)[1].split("|")]
    if titles[1:3] != ["instructions of the whole system", "in the driver"]:
        sys.exit(f"docs/performance.md: the columns of 'Beside the C driver' are {titles}")
    return [(name, float(whole), float(driver)) for name, whole, driver, *_ in rows[2:]]


def beside_c(page):
    rows = table(page)
    left, scale, top, step, most = 210, 330, 62, 40, 1.2
    bottom = top + step * len(rows)
    svg = Svg(760, bottom + 44, "Instructions of this driver relative to the C driver")
    svg.text(12, 22, "Instructions, this driver / C driver; less is better", size=15, more=' font-weight="bold"')
    for n, (colour, text) in enumerate([(OURS, "whole system"), (DRIVER, "in the driver")]):
        svg.rect(left + 150 * n, 34, 12, 12, colour)
        svg.text(left + 150 * n + 18, 45, text)
    for tick in 0, 0.25, 0.5, 0.75, 1:
        x = left + scale * tick
        svg.line(x, top - 6, x, bottom, INK if tick == 1 else "#dddddd")
        svg.text(x, bottom + 16, "1 = C" if tick == 1 else f"{tick:g}", "middle", 11)
    for n, (name, *values) in enumerate(rows):
        y = top + step * n
        svg.text(left - 10, y + 20, name, "end")
        for bar, (value, colour) in enumerate(zip(values, (OURS, DRIVER))):
            length = scale * min(value, most)
            svg.rect(left, y + 2 + 15 * bar, length, 13, colour)
            cut = " (the bar is cut)" if value > most else ""
            label = f"{value:.2f}{cut}"
            svg.rect(left + length + 3, y + 3 + 15 * bar, 6.5 * len(label), 12, "white")
            svg.text(left + length + 6, y + 13 + 15 * bar, label, size=11)
    svg.text(12, bottom + 36, "soft-RoCE, both ends on one CPU; the table is in docs/performance.md", size=11)
    return str(svg)


def who_is_who():
    svg = Svg(1010, 336, "Who is who: disk, session, channel, port and target")
    svg.frame(8, 8, 610, 290, "initiator: the machine with ib_srp")
    svg.frame(712, 8, 290, 290, "target: id_ext, ioc_guid")
    svg.box(20, 130, 112, 60, "multipath", "mpatha", "optional")
    svg.box(862, 120, 50, 80, "LUN 0")
    svg.box(920, 130, 76, 60, "back end")
    svg.line(912, 160, 920, 160)
    for n, net in enumerate(("192.0.2", "198.51.100")):
        y = 46 + 130 * n
        middle = y + 50
        svg.line(132, 160 - 12 + 24 * n, 152, middle)
        svg.box(152, y + 10, 112, 80, "disk", f"/dev/sd{'ab'[n]}", f"/dev/srp{n}")
        svg.line(264, middle, 280, middle)
        svg.rect(280, y, 196, 100, PALE, OURS, ' rx="4"')
        svg.text(378, y + 18, f"session host{7 + n}", "middle", more=' font-weight="bold"')
        svg.text(378, y + 33, "a SCSI host, a login", "middle", 11)
        svg.box(492, y + 10, 112, 80, "RDMA port", f"mlx5_{n}/1", f"{net}.2")
        svg.box(726, y + 10, 120, 80, "target port", f"{net}.1:5555")
        for channel in range(2):
            at = y + 43 + 27 * channel
            svg.rect(290, at, 176, 22, "white", OURS, ' rx="3"')
            svg.text(378, at + 15, f"channel {channel}: a queue pair", "middle", 11)
            svg.line(466, at + 11, 492, at + 11, OURS)
            svg.line(604, at + 11, 726, at + 11, OURS, ' stroke-width="2"')
        svg.text(665, y + 36, "RoCE, iWARP,", "middle", 11)
        svg.text(665, y + 50, "InfiniBand", "middle", 11)
        svg.line(846, middle, 862, 160 - 12 + 24 * n)
    svg.text(
        12,
        322,
        "srpctl connect makes a session, with a disk for each LUN; srpctl list shows sessions and disks.",
        size=12,
    )
    return str(svg)


def main(tree, what):
    docs = pathlib.Path(tree) / "docs"
    made = {"beside-c.svg": beside_c((docs / "performance.md").read_text()), "who-is-who.svg": who_is_who()}
    bad = 0
    for name, text in made.items():
        file = docs / name
        if what == "make":
            file.write_text(text)
            print(f"docs/{name}")
        elif not file.exists() or file.read_text() != text:
            print(f"docs/{name} is not what ci/drawings.py makes: run `make docs`")
            bad = 1
        if f"(docs/{name})" not in (docs.parent / "README.md").read_text():
            print(f"README.md does not show docs/{name}")
            bad = 1
    if what == "check" and not bad:
        print(f"drawings: {len(made)}, as their sources make them")
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
