# SPDX-License-Identifier: GPL-2.0
"""Packs the guest tests into guests."""

import collections
import dataclasses
import fnmatch
import math
import os
import re

from . import headers

# Maximum total time of the tests of a guest, if there are several. The guests of the fast set are small, as the last of
# them run beside idle CPUs.
BOUND = {"fast": 600, "long": 1800}
# With this many CPUs, a guest slows down the others.
MANY = 5
SELECTION = re.compile(r"([^:@=]*)(?::([a-z+*?]+))?(?:@([a-z0-9*?-]+))?")


@dataclasses.dataclass(frozen=True)
class Guest:
    """The tests of one guest, in the order in which they run."""

    runs: tuple

    @property
    def kernel(self):
        return self.runs[0].kernel

    @property
    def kind(self):
        return self.runs[0].kind

    @property
    def parameters(self):
        return dict(self.runs[0].parameters)

    @property
    def memory(self):
        return int(self.parameters.get("memory", 3072))

    @property
    def ncpus(self):
        return int(self.parameters.get("ncpus", 2))

    @property
    def takes(self):
        return sum(p.takes for p in self.runs)

    @property
    def append(self):
        """The kernel parameters."""
        special = ("memory", "ncpus", "kmemleak", "LONG")
        words = [f"{name}={value}" for name, value in self.parameters.items() if name not in special]
        if "kmemleak" not in self.parameters:
            words.append("kmemleak=off")
        if self.runs[0].set == "long" and "LONG" not in self.parameters:
            words.append("LONG=1")
        return words

    @property
    def name(self):
        words = [self.kernel, self.kind.replace("+", "-")]
        for name, value in self.parameters.items():
            match name:
                case "PERSONALITY":
                    words.append(value)
                case "kmemleak":
                    words.append("kmemleak")
                case "LONG":
                    words.append("short")
                case _:
                    words.append(name.lower() + value.replace(",", "-"))
        numbers = [p.test[:2] for p in self.runs]
        words.append(numbers[0])
        if len(numbers) > 1:
            words.append(numbers[-1])
        return "-".join(words)


def split(times, pieces):
    """Splits a sequence into `pieces` parts whose longest is as short as possible; returns their lengths."""
    sums = [0]
    for time in times:
        sums.append(sums[-1] + time)
    # The best split of the first n times: the time of the longest part, and the lengths.
    best = {0: (0, [])}
    for _ in range(pieces):
        following = {}
        for end in range(1, len(sums)):
            options = [
                (max(longest, sums[end] - sums[begin]), lengths + [end - begin])
                for begin, (longest, lengths) in best.items()
                if begin < end
            ]
            if options:
                following[end] = min(options)
        best = following
    return best[len(times)][1]


def parts(runs, bound):
    """Splits the runs of equal guests into guests that take at most `bound` seconds, or have only one test."""
    times = [p.takes for p in runs]
    pieces = max(1, math.ceil(sum(times) / bound))
    while True:
        cut, found = 0, []
        for length in split(times, min(pieces, len(times))):
            found.append(Guest(tuple(runs[cut : cut + length])))
            cut += length
        if all(g.takes <= bound or len(g.runs) == 1 for g in found):
            return found
        pieces += 1


def pack(runs, bound):
    """Returns the guests for these runs, in the order in which they start. A guest's tests are in the order of their
    numbers. The longest guests come first, so that the last ones end at about the same time; those with many CPUs are
    last."""
    alike = collections.defaultdict(list)
    for run in runs:
        alike[run.guest].append(run)
    guests = [g for group in alike.values() for g in parts(group, bound)]
    return sorted(guests, key=lambda g: (g.ncpus >= MANY, -g.takes, g.name))


def is_test(pattern, test):
    """Returns whether a pattern matches this test: its name, its number, or a range of numbers."""
    if m := re.fullmatch(r"(\d\d)-(\d\d)", pattern):
        return m[1] <= test[:2] <= m[2]
    return not pattern or fnmatch.fnmatch(test, pattern) or pattern == test[:2]


def select(runs, words):
    """Returns the runs that are selected. NAME=VALUE restricts the others, which are TEST[:KIND][@KERNEL]."""
    for word in words:
        if "=" in word:
            name, _, value = word.partition("=")
            if name not in headers.PARAMETERS:
                raise headers.Refused(f"no parameter {name} of a guest; there are {' '.join(headers.PARAMETERS)}")
            runs = [p for p in runs if dict(p.parameters).get(name) == value]
    wanted = [word for word in words if "=" not in word]
    found = dict.fromkeys([] if wanted else runs)
    for word in wanted:
        m = SELECTION.fullmatch(word)
        if not m:
            raise headers.Refused(f"'{word}' is not TEST[:KIND][@KERNEL] or PARAMETER=VALUE")
        matches = [
            p
            for p in runs
            if is_test(m[1], p.test) and fnmatch.fnmatch(p.kind, m[2] or "*") and fnmatch.fnmatch(p.kernel, m[3] or "*")
        ]
        if not matches:
            others = sorted({f"{p.kind}@{p.kernel}" for p in runs if is_test(m[1], p.test)})
            where = f"; it runs on {', '.join(others)}" if others else ""
            raise headers.Refused(f"no test of this set is {word}{where}")
        found.update(dict.fromkeys(matches))
    if not found:
        raise headers.Refused(f"no test of this set has {' '.join(words)}")
    return [p for p in runs if p in found]


def share(found, part):
    """Returns the guests of one of several parts that take about the same time, in their order. `part` is I/N."""
    number, parts = read_part(part)
    if parts > len(found):
        raise headers.Refused(f"PART={part}: {len(found)} guests have no {parts} parts")
    times, chosen = [0] * parts, []
    for g in sorted(found, key=lambda g: (-g.takes, g.name)):
        least = times.index(min(times))
        times[least] += g.takes
        if least == number - 1:
            chosen.append(g)
    return [g for g in found if g in chosen]


def read_part(part):
    """Returns I and N of I/N."""
    m = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not m or int(m[1]) > int(m[2]):
        raise headers.Refused(f"PART={part}: not I/N with 1 <= I <= N")
    return int(m[1]), int(m[2])


def guests(which, words, one=False, runs=None):
    """Returns the guests of a set, or those that a selection needs; with `one` only for its first run."""
    if runs is None:
        runs = headers.of_series(headers.every(), os.environ.get("SERIES"))
    runs = [p for p in runs if p.set == which]
    chosen = select(runs, words)
    return pack(chosen[:1] if one else chosen, BOUND[which])
