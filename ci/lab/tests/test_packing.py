# SPDX-License-Identifier: GPL-2.0
import collections
import random
import unittest

from lab import headers, packing


def a_run(test, takes=100, kind="rxe", kernel="kasan", which="fast", **parameters):
    return headers.Run(test, kind, kernel, which, tuple(sorted(parameters.items())), 300, takes)


class Packing(unittest.TestCase):
    def test_splits_evenly(self):
        self.assertEqual(packing.split([5, 1, 1, 1, 1, 1], 2), [1, 5])
        self.assertEqual(packing.split([1, 2, 3, 4, 5], 3), [3, 1, 1])
        self.assertEqual(packing.split([1, 2], 2), [1, 1])

    def test_bound_order_and_completeness(self):
        choose = random.Random(1)
        for _ in range(100):
            runs = [
                a_run(f"{n:02}-t", choose.randint(1, 500), choose.choice(headers.KINDS), choose.choice(headers.KERNELS))
                for n in range(choose.randint(1, 60))
            ]
            guests = packing.pack(runs, 600)
            self.assertEqual(collections.Counter(p for g in guests for p in g.runs), collections.Counter(runs))
            self.assertEqual([g.takes for g in guests], sorted((g.takes for g in guests), reverse=True))
            for g in guests:
                self.assertTrue(g.takes <= 600 or len(g.runs) == 1)
                self.assertEqual(len({p.guest for p in g.runs}), 1)
                self.assertEqual([p.test for p in g.runs], sorted(p.test for p in g.runs))

    def test_parts_are_equal_and_complete(self):
        runs = [a_run(f"{n:02}-t", 10 + n * 7 % 90, ncpus=str(n)) for n in range(1, 60)]
        found = packing.pack(runs, 600)
        parts = [packing.share(found, f"{i}/8") for i in range(1, 9)]
        self.assertEqual(collections.Counter(g for p in parts for g in p), collections.Counter(found))
        times = [sum(g.takes for g in p) for p in parts]
        self.assertLess(max(times) - min(times), 20)
        for part in parts:
            self.assertEqual(part, [g for g in found if g in part])

    def test_parts_that_are_refused(self):
        found = packing.pack([a_run("01-a"), a_run("02-b")], 10)
        for part in "0/2", "3/2", "1/0", "1", "a/b", "1/3", "-1/2":
            with self.assertRaises(headers.Refused) as e:
                packing.share(found, part)
            self.assertIn(f"PART={part}", str(e.exception))

    def test_a_long_test_is_alone(self):
        guests = packing.pack([a_run("01-a", 10), a_run("02-b", 900), a_run("03-c", 10)], 600)
        self.assertEqual(guests[0].runs[0].test, "02-b")
        self.assertEqual(len(guests[0].runs), 1)

    def test_many_cpus_are_last(self):
        guests = packing.pack([a_run("01-a", 10), a_run("02-b", 500, ncpus="64"), a_run("03-c", 20, ncpus="4")], 600)
        self.assertEqual([g.runs[0].test for g in guests], ["03-c", "01-a", "02-b"])

    def test_parameters(self):
        (guest,) = packing.pack([a_run("01-a", which="long", kernel="stock", memory="9216", ncpus="4", GAPS="2")], 600)
        self.assertEqual((guest.memory, guest.ncpus), (9216, 4))
        self.assertEqual(set(guest.append), {"GAPS=2", "kmemleak=off", "LONG=1"})
        (guest,) = packing.pack([a_run("01-a", which="long", kmemleak="on", LONG="")], 600)
        self.assertEqual((guest.memory, guest.ncpus, guest.append), (3072, 2, []))

    def test_names_differ(self):
        for which in headers.SETS:
            names = [g.name for g in packing.guests(which, [])]
            self.assertEqual(len(names), len(set(names)))
            for name in names:
                self.assertRegex(name, r"^[\w-]+$")


class Selection(unittest.TestCase):
    runs = [
        a_run("46-one"),
        a_run("46-one", kind="siw", kmemleak="on"),
        a_run("47-two", kernel="rt"),
        a_run("48-three", kind="rxe+user"),
        a_run("46-one", which="long"),
    ]

    def selected(self, *words):
        guests = packing.guests("fast", words, runs=self.runs)
        return [(p.test[:2], p.kind, p.kernel) for g in guests for p in g.runs]

    def test_parts(self):
        rxe, siw = ("46", "rxe", "kasan"), ("46", "siw", "kasan")
        rt, user = ("47", "rxe", "rt"), ("48", "rxe+user", "kasan")
        for words, found in (
            ("46-one", [rxe, siw]),
            ("46", [rxe, siw]),
            ("46-one:siw", [siw]),
            ("46-47:rxe", [rxe, rt]),
            (":rxe*", [rxe, rt, user]),
            ("@rt", [rt]),
            ("4*:rxe+user@kasan", [user]),
            ("*e kmemleak=on", [siw]),
            ("kmemleak=on", [siw]),
            ("46-one:siw 47 47", [siw, rt]),
            ("", [rxe, siw, rt, user]),
        ):
            self.assertCountEqual(self.selected(*words.split()), found, words)

    def test_one(self):
        (guest,) = packing.guests("fast", ["46"], one=True, runs=self.runs)
        self.assertEqual([p.kind for p in guest.runs], ["rxe"])

    def test_what_is_not_there_is_refused(self):
        for words in "45", "46:vfab", "46@rt", "COLOUR=red", "GAPS=2", "46:siw GAPS=2", "46:SIW":
            with self.assertRaises(headers.Refused) as e:
                self.selected(*words.split())
            self.assertIn(words.split()[-1 if "46:siw" not in words else 0].partition("=")[0], str(e.exception))
