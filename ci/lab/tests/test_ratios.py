# SPDX-License-Identifier: GPL-2.0
import math
import random
import sys
import unittest

from lab import TOP

sys.path.insert(0, str(TOP / "userspace-tests/bench"))
import ratios


class Ratios(unittest.TestCase):
    def test_quantiles_of_the_tables(self):
        for level, dof, wanted in (
            (0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 4, 2.776), (0.95, 9, 2.262), (0.95, 30, 2.042),
            (0.99, 3, 5.841), (0.99, 4, 4.604), (0.90, 7, 1.895), (0.998, 5, 5.893),
        ):  # fmt: skip
            self.assertAlmostEqual(ratios.quantile(level, dof), wanted, delta=0.001, msg=(level, dof))

    def test_interval(self):
        mean, low, high = ratios.interval([1.1, 1 / 1.1])
        self.assertAlmostEqual(mean, 1)
        self.assertAlmostEqual(math.log(high), 12.706 * math.log(1.1), delta=0.001)
        self.assertAlmostEqual(low * high, 1)
        self.assertEqual(ratios.interval([0.8] * 4), (0.8, 0.8, 0.8))
        self.assertEqual(ratios.interval([2.0]), (2.0, 0.0, math.inf))

    def test_an_interval_covers_as_often_as_it_says(self):
        rng = random.Random(1)
        runs = [[math.exp(rng.gauss(math.log(0.9), 0.05)) for _ in range(5)] for _ in range(2000)]
        hit = sum(low <= 0.9 <= high for _, low, high in map(ratios.interval, runs)) / len(runs)
        self.assertAlmostEqual(hit, 0.95, delta=0.015)

    def test_percentiles(self):
        bins = {n: 1 for n in range(1, 10001)}
        self.assertEqual([ratios.percentile(bins, p) for p in (50, 99, 99.99)], [5000, 9900, 9999])
        self.assertEqual(ratios.percentile({3: 1, 1: 98, 2: 1}, 99), 2)
        # 9,999 I/Os have none beyond their 99.99th percentile.
        del bins[1]
        self.assertIsNone(ratios.percentile(bins, 99.99))
        self.assertIsNone(ratios.percentile({}, 50))


class Noise(unittest.TestCase):
    """A control has the ratios of the same peer to itself."""

    QUIET = [1.01, 0.99, 1.005, 0.995, 1.0]

    def test_quiet(self):
        self.assertEqual(ratios.noise({"a": self.QUIET}), {"a": ""})

    def test_a_wide_interval(self):
        self.assertIn("spans 1.15", ratios.noise({"a": [1.06, 0.94, 1.05, 0.95, 1.0]})["a"])
        wide = {"a": [1.01, 0.98, 1.02, 0.97, 1.0]}
        self.assertEqual(ratios.noise(wide)["a"], "")
        self.assertIn("spans 1.05, more than 1.04", ratios.noise(wide, 1.04)["a"])

    def test_an_interval_without_one(self):
        self.assertIn("is 1.0", ratios.noise({"a": [r * 1.03 for r in self.QUIET]})["a"])
        self.assertIn("is 0.9", ratios.noise({"a": [r / 1.03 for r in self.QUIET]})["a"])

    def test_a_shifted_line_of_many(self):
        for shift in 0.8, 1.25:
            lines = {n: [1.0, 1.01, 0.99] for n in range(25)} | {"a": [r * shift for r in (0.98, 1.0, 1.02)]}
            found = ratios.noise(lines)
            self.assertEqual([key for key, why in found.items() if why], ["a"])

    def test_too_few_rounds(self):
        few = ratios.noise({"a": [1.0, 1.0], "b": []})
        self.assertEqual(few, dict.fromkeys("ab", "too few rounds"))
        self.assertEqual(ratios.noise({"a": [1.0, 1.0, 1.0]}), {"a": ""})

    def test_only_the_noisy_line(self):
        found = ratios.noise({"a": self.QUIET, "b": [1.3, 0.8, 1.1, 0.9, 1.0]})
        self.assertEqual((found["a"], bool(found["b"])), ("", True))

    def test_many_quiet_lines_are_seldom_refused(self):
        rng, refused = random.Random(2), 0
        for _ in range(200):
            lines = {n: [math.exp(rng.gauss(0, 0.01)) for _ in range(5)] for n in range(24)}
            refused += any(ratios.noise(lines).values())
        self.assertLess(refused, 24)
