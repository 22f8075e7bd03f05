# SPDX-License-Identifier: GPL-2.0
import contextlib
import dataclasses
import io
import pathlib
import re
import tempfile
import unittest
from unittest import mock

from lab import results, stages
from lab.results import Sum

TABLE = """
quick    tools   -      -           true
fails    qemu    quiet  -           false
kernel   idle    -      stock,rt    true SERIES
demo     demos   -      stock       ci/demo.sh
last     last    -      -           echo
"""


class Looking(unittest.TestCase):
    def look(self, name):
        return stages.look(name, "7.3", TABLE)

    def test_series_and_kernels(self):
        s = self.look("kernel")
        self.assertEqual((s.series, s.kernel, s.kernels, s.command), ("7.3", "stock", ("stock", "rt"), ("true", "7.3")))
        s = self.look("kernel@7.2")
        self.assertEqual((s.name, s.series, s.command), ("kernel@7.2", "7.2", ("true", "7.2")))
        s = self.look("demo@rt")
        self.assertEqual((s.series, s.kernel, s.kernels), ("7.3", "rt", ("rt",)))

    def test_unknown_ones_are_refused(self):
        for name in "nothing", "nothing@7.2", "kernel@rt":
            with self.assertRaises(stages.Refused) as e:
                self.look(name)
            self.assertIn(name, str(e.exception))
        with self.assertRaises(stages.Refused):
            stages.look("node@rt", "7.3")

    def test_builds_ahead(self):
        on_own = stages.ahead([stages.look("node@6.12", "7.3")], "7.3")
        for name in "guest.sh", "node-base.sh":
            self.assertIn((0, "7.3", name, ""), on_own)
        on_arm64 = stages.look("node@arm64", "7.3")
        self.assertEqual((on_arm64.series, on_arm64.kernel, on_arm64.kernels), ("7.3", "arm64", ()))
        self.assertIn((0, "7.3", "node-base.sh", "arm64"), stages.ahead([on_arm64], "7.3"))
        found = stages.ahead([self.look("kernel"), self.look("demo@7.2")], "7.3")
        wanted = [(0, "7.3", "guest.sh", ""), (1, "7.3", "kernel.sh", "rt"), (1, "7.3", "kernel.sh", "stock")]
        self.assertEqual(found, wanted + [(2, "7.2", "kernel.sh", "stock")])

    def test_parts_are_complete(self):
        names = ["a", "guests", "b", "c", "guests@7.2", "d", "e"]
        parts = [stages.share(names, f"{i}/3") for i in (1, 2, 3)]
        self.assertEqual(parts, [[*own, "guests", "guests@7.2"] for own in ("ad", "be", "c")])
        parts = [stages.share(["a", "guests", "guests@6.12"], f"{i}/2") for i in (1, 2)]
        self.assertEqual(parts, [["a", "guests"], ["guests@6.12", "guests"]])

    def test_guests_of_debians_own_kernel(self):
        s = stages.look("guests@6.12", "7.3")
        self.assertEqual((s.series, s.kernels, s.command), ("6.12", ("stock",), ("env", "-u", "PART", "ci/guests.sh")))
        with mock.patch.multiple(stages, LONG=True, script=lambda *_: "7.3 a b\n7.2 c d\n"):
            self.assertLessEqual({"guests@6.12", "demo@arm64-16k", "node@arm64"}, set(stages.default("7.3")))
        with mock.patch.multiple(stages, LONG=False, script=lambda *_: "7.3 a b\n7.2 c d\n"):
            self.assertNotIn("guests@6.12", stages.default("7.3"))

    def test_the_table(self):
        for line in stages.TABLE.strip().split("\n"):
            stages.look(line.split()[0], "7.3")


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.object(stages, "LOGS", pathlib.Path(folder.name))
        patch.start()
        self.addCleanup(patch.stop)

    def run_stages(self, **commands):
        """Runs stages with these commands; a name begins with its lane."""
        found = [
            stages.Stage(name, name.partition("_")[0], False, (), ("bash", "-c", command), "7.3", "stock")
            for name, command in commands.items()
        ]
        runner = stages.Runner(found, stages.LOGS / "part.results")
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            runner.run()
        return runner, out.buffer.getvalue().decode()

    def test_results(self):
        line = """echo '{"name": "%s", "result": "%s", "reason": "it broke"}' >>$RESULTS"""
        runner, out = self.run_stages(
            tools_a=f"{line % ('x', 'ok')}; {line % ('y', 'fail')}; exit 1", tools_b="true", qemu_c="echo why; exit 2",
            demos_d="echo $SERIES $KERNEL", last_e=line % ("z", "skip"), idle_f="echo 7 passed, 7 failed",
        )  # fmt: skip
        sums = {name: str(total) for name, total in runner.done.items()}
        self.assertEqual(
            sums,
            {
                "tools_a": "1 passed, 1 failed", "tools_b": "1 passed, 0 failed", "qemu_c": "0 passed, 1 failed",
                "demos_d": "1 passed, 0 failed", "last_e": "0 passed, 0 failed, 1 skipped",
                "idle_f": "1 passed, 0 failed",
            },
        )  # fmt: skip
        self.assertIn("7.3 stock", out)
        self.assertIn("tools_a: y: it broke", runner.failures)
        self.assertIn("    | why", runner.failures)
        total = Sum()
        for one in runner.done.values():
            total.update(one)
        self.assertEqual(str(total), "4 passed, 2 failed, 1 skipped")
        recorded = results.read(stages.LOGS / "part.results")
        self.assertEqual(str(Sum(recorded)), str(total))
        self.assertEqual({r.stage for r in recorded if r.result == "fail"}, {"tools_a", "qemu_c"})

    def test_old_results_do_not_count(self):
        (stages.LOGS / "stage-tools_a.results").write_text('{"name": "x", "result": "fail"}\n')
        runner, _ = self.run_stages(tools_a="true")
        self.assertEqual(str(runner.done["tools_a"]), "1 passed, 0 failed")

    def test_order(self):
        with tempfile.NamedTemporaryFile("r") as log:
            self.run_stages(
                last_a=f"echo last >>{log.name}", demos_b=f"sleep 0.2; echo demo >>{log.name}",
                tools_c=f"sleep 0.3; echo c >>{log.name}", tools_d=f"echo d >>{log.name}",
            )  # fmt: skip
            self.assertEqual(log.read().split(), ["c", "d", "demo", "last"])

    def test_beside_the_qemu_lane(self):
        """A demo and the last lane run beside the qemu lane, and see when it has ended."""
        with tempfile.NamedTemporaryFile("r") as log:
            busy = f"if flock -ns $BESIDE true; then echo free; else echo busy; fi >>{log.name}"
            self.run_stages(
                qemu_a=f"until grep -q last {log.name}; do sleep 0.01; done; echo ends >>{log.name}", tools_b="true",
                demos_c=busy, demos_d=busy, last_e=f"{busy}; echo last >>{log.name}; flock -s $BESIDE true; {busy}",
            )  # fmt: skip
            self.assertEqual(log.read().split(), ["busy", "busy", "busy", "last", "ends", "free"])

    def test_when(self):
        _, out = self.run_stages(tools_a="sleep 1.2", last_b="true")
        (first,), (last,) = (re.findall(rf"stage {s}: .* began at (\d+) s\)", out) for s in ("tools_a", "last_b"))
        self.assertEqual(first, "0")
        self.assertGreaterEqual(int(last), 1)

    def test_quiet(self):
        runner = stages.Runner([stages.Stage("a", "tools", True, (), ("echo", "word"), "7.3", "stock")])
        for command, shown in ("echo word", False), ("echo word; false", True):
            stage = dataclasses.replace(runner.stages[0], command=("bash", "-c", command))
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                runner.stage(stage)
            self.assertEqual("word" in out.getvalue(), shown)

    def test_a_lane_that_dies(self):
        with mock.patch("threading.excepthook"):
            runner, _ = self.run_stages(tools_a="true", qemu_b="true")
            self.assertEqual(len(runner.done), 2)
            found = runner.stages[0]
            bad = stages.Runner([dataclasses.replace(found, command=("/nonexistent/program",)), found])
            bad.run()
        self.assertEqual(bad.done, {})
