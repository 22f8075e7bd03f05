# SPDX-License-Identifier: GPL-2.0
"""Ratios of one figure of two peers in the same rounds, their confidence intervals, and whether the machine is too
noisy for them."""

import math
import statistics

LEVEL = 0.95
# The control's interval may span this factor, and needs so many rounds.
BOUND, LEAST = 1.10, 3


def probability(angle, dof):
    """Returns P(|T| <= sqrt(dof) * tan(angle)) for Student's t with `dof` degrees of freedom, by its finite series."""
    sine, cosine = math.sin(angle), math.cos(angle)
    power = dof % 2
    term, total = cosine**power, 0.0
    while power <= dof - 2:
        total += term
        term *= (power + 1) / (power + 2) * cosine * cosine
        power += 2
    return 2 / math.pi * (angle + sine * total) if dof % 2 else sine * total


def quantile(level, dof):
    """Returns the t with P(|T| <= t) = level."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle, dof) < level else (low, middle)
    return math.sqrt(dof) * math.tan(low)


def interval(ratios, level=LEVEL):
    """Returns the geometric mean of the ratios, one for each round, and its confidence interval. One round has no
    finite interval."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    half = quantile(level, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def noise(controls, bound=BOUND):
    """Returns why each of the controls is too noisy, or "". A control has the ratios of a peer to itself. All of them
    together are wrongly refused with the probability 1 - LEVEL, because each has its share of it."""
    level = 1 - (1 - LEVEL) / max(len(controls), 1)
    found = {}
    for key, ratios in controls.items():
        if len(ratios) < LEAST:
            found[key] = "too few rounds"
            continue
        _, low, high = interval(ratios)
        _, least, most = interval(ratios, level)
        if high > low * bound:
            found[key] = f"the control spans {high / low:.2f}, more than {bound:.2f}"
        elif not least <= 1 <= most or low * bound < 1 or high > bound:
            found[key] = f"the control is {low:.3f} to {high:.3f}"
        else:
            found[key] = ""
    return found


def percentile(bins, percent):
    """Returns a percentile of fio's bins, {ns: I/Os}, or None if they have too few I/Os above it to tell."""
    total = sum(bins.values())
    if total * (100 - percent) < 100 * (1 - 1e-9):
        return None
    seen = 0
    for ns in sorted(bins):
        seen += bins[ns]
        if seen * 100 >= total * percent:
            return ns
    return None
