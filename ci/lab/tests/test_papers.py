# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import os
import pathlib
import tempfile
import types
import unittest
from unittest import mock

from lab import papers


class Papers(unittest.TestCase):
    """All scripts and guests are functions of this class. `bad` are the logs of guests that fail."""

    def setUp(self):
        self.ran, self.bad = [], []
        for name, value in (
            ("TOP", pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))),
            ("built", lambda: pathlib.Path("/built")),
            ("script", lambda name, *_: f"/{name.removesuffix('.sh')}"),
            ("build", lambda *words: self.ran.append(" ".join(map(str, words)))),
            ("in_root", lambda root, binds, *words: ["root", *words]),
            ("subprocess", types.SimpleNamespace(run=self.run_words, DEVNULL=-3, PIPE=-1)),
        ):
            self.enterContext(mock.patch.object(papers, name, value))
        self.enterContext(mock.patch.object(papers.boot, "command", lambda *words: ["guest", *map(str, words)]))

    def run_words(self, words, **_):
        self.ran.append([str(w) for w in words])
        log = words[words.index("--log") + 1] if words[0] == "guest" else ""
        return types.SimpleNamespace(returncode=int(log in self.bad), stdout="srp_bench: a\nsrp_bench: b\n")

    def papers(self, **environment):
        with mock.patch.dict(os.environ, {"GUESTS": "1", **environment}):
            for name in {"FAR", "MIB", "PARTS", "ONLY"} - environment.keys():
                os.environ.pop(name, None)
            with contextlib.redirect_stderr(io.StringIO()):
                return papers.main()

    def guests(self):
        return {words[words.index("--log") + 1]: words for words in self.ran if words[0] == "guest"}

    def test_all(self):
        self.assertEqual(self.papers(FAR="0,7", MIB="16"), 0)
        names = "xor-ours xor-c far-0 far-7 wss cost scale ipoib io reads-rxe reads-siw micro"
        logs = [f"papers-{name}" for name in names.split()]
        found = self.guests()
        self.assertEqual(list(found), logs)
        for name, far, last in (
            ("xor-c", "0,7", "rxe xor"), ("far-7", "7", "rxe far"), ("reads-siw", "0", "siw reads")
        ):  # fmt: skip
            words = found[f"papers-{name}"]
            self.assertEqual(words[words.index("--append") + 1], f"FAR={far} MIB=16")
            self.assertTrue(" ".join(words).endswith(f"-- bash /srp/papers-guest.sh {last}"), words)
        self.assertNotIn("--module", found["papers-xor-c"])
        self.assertIn("/built/papers/rust/ib_srp.ko", found["papers-micro"])
        words = ["papers.py", "/out", "/out/papers-clock.log", *(f"/log/{log}.log" for log in logs)]
        self.assertEqual(self.ran[-1][1:], words)
        self.assertIn(["root", "/tools/xor", "clock"], self.ran)
        clock = (papers.TOP / "build/bench/papers-clock.log").read_text()
        self.assertEqual(clock, "[0] srp_bench: a\n[0] srp_bench: b\n")
        self.assertIn("--qemu=/cache/plugin/plugin.so,out=/log/papers-cost.counts", found["papers-cost"])

    def test_some_with_the_previous_results_of_the_others(self):
        self.assertEqual(self.papers(ONLY="io far-500"), 0)
        self.assertEqual(list(self.guests()), ["papers-far-500", "papers-io"])
        self.assertEqual(len(self.ran[-1]), 4 + 14)

    def test_a_guest_fails(self):
        self.bad = ["papers-wss", "papers-io"]
        with self.assertRaises(SystemExit) as e:
            self.papers()
        self.assertEqual(str(e.exception), "papers.sh: failed: papers-wss papers-io")
        # The others have run, and there are no plots.
        self.assertEqual((len(self.guests()), self.ran[-1][0]), (14, "guest"))
