# SPDX-License-Identifier: GPL-2.0
import pathlib
import tempfile
import unittest

from lab import headers

GOOD = [
    "deadline: 300 900",
    "takes: 60",
    "runs: rxe kasan fast long",
    "runs: siw rxe+user kasan stock long LONG= memory=4096",
]


class Headers(unittest.TestCase):
    def runs(self, *lines, code="begin\n# runs: vfab kasan fast\n"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "10-some.sh"
            path.write_text("#!/bin/bash\n# note: not a field\n#\n" + "".join(f"# {line}\n" for line in lines) + code)
            return headers.runs(path)

    def refused(self, word, *lines):
        with self.assertRaises(headers.Refused) as e:
            self.runs(*lines)
        self.assertIn("10-some.sh: ", str(e.exception))
        self.assertIn(word, str(e.exception))

    def test_combinations(self):
        found = self.runs(*GOOD)
        keys = [(p.kind, p.kernel, p.set) for p in found]
        self.assertEqual(keys[:2], [("rxe", "kasan", "fast"), ("rxe", "kasan", "long")])
        self.assertEqual(set(keys[2:]), {(k, n, "long") for k in ("siw", "rxe+user") for n in ("kasan", "stock")})
        self.assertEqual(found[0].test, "10-some")
        self.assertEqual(found[2].parameters, (("LONG", ""), ("memory", "4096")))

    def test_deadlines(self):
        fast, long, short = self.runs(*GOOD)[:3]
        self.assertEqual((fast.deadline, fast.takes), (300, 60))
        self.assertEqual((long.deadline, long.takes), (900, 180))
        self.assertEqual((short.deadline, short.takes), (300, 60))

    def test_rounds_concern_the_long_set(self):
        fast, long = self.runs(*GOOD[:2], "runs: rxe kasan fast long LONG=")
        self.assertEqual((fast.parameters, long.parameters), ((), (("LONG", ""),)))

    def test_each_personality(self):
        found = self.runs(*GOOD[:2], "runs: vfab kasan long PERSONALITY=*")
        self.assertEqual([dict(p.parameters)["PERSONALITY"] for p in found], list(headers.PERSONALITIES))

    def test_the_bad_word_is_named(self):
        words = "rxx", "KASAN", "slow", "memory", "memory=", "memory=4G", "COLOUR=red", "CM=rdma", "LONG=1", "swiotlb=64"
        for word in words:
            self.refused(word, *GOOD, f"runs: vfab kasan long {word}")
        self.runs(*GOOD, "runs: vfab kasan long swiotlb=65536,force")

    def test_debians_own_kernel(self):
        found = self.runs(*GOOD, "runs: rxe 6.12 long LONG=")
        newest, own = (headers.of_series(found, series) for series in ("7.3", "6.12"))
        self.assertEqual(newest, found[:-1])
        self.assertEqual([(p.kind, p.kernel, p.set) for p in own], [("rxe", "stock", "long")])

    def test_twice(self):
        self.refused("rxe", *GOOD, "runs: rxe rxe rt long")
        self.refused("memory=2", *GOOD, "runs: rxe rt long memory=1 memory=2")
        self.refused("rxe kasan fast", *GOOD, "runs: rxe kasan fast")

    def test_missing(self):
        self.refused("no kind", *GOOD, "runs: kasan fast")
        self.refused("no kernel", *GOOD, "runs: rxe fast")
        self.refused("no set", *GOOD, "runs: rxe kasan")
        self.refused("runs", *GOOD[:2])
        self.refused("takes", GOOD[0], *GOOD[2:])
        self.refused("deadline", *GOOD[1:])
        self.refused("deadline", GOOD[0], *GOOD)

    def test_fields(self):
        self.refused("run", *GOOD, "run: siw kasan long")
        self.refused("soon", "deadline: soon", *GOOD[1:])
        self.refused("0", "deadline: 0", *GOOD[1:])
        self.refused("deadline", "deadline:", *GOOD[1:])
        self.refused("takes", GOOD[0], "takes: 1 2", *GOOD[2:])

    def test_those_of_the_tree(self):
        found = headers.every()
        self.assertEqual({p.test for p in found}, {f.stem for f in headers.TESTS.glob("[0-9][0-9]-*.sh")})
        self.assertTrue(found)
