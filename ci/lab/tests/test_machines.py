# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

from lab import TOP, fleet, machines, results, steps

PAGE = """
## Before

    A: no

## Title

Words:

    A, B: first $N
          second \\
              part
    initiator: third

Words:

    C: fourth

## After

    A: no
"""


class Pages(unittest.TestCase):
    def test_blocks(self):
        first = [(["A", "B"], "first $N"), (["A", "B"], "second part"), (["initiator"], "third")]
        self.assertEqual(machines.commands(PAGE, "Title"), [first, [(["C"], "fourth")]])

    def test_a_line_without_a_machine(self):
        for line in "    command", "    A, X: command":
            with self.assertRaises(machines.Failed):
                machines.commands(f"## Title\n\n{line}\n", "Title")

    def test_our_page(self):
        blocks = machines.commands((TOP / "storage/README.md").read_text(), "On several machines")
        self.assertEqual(len(blocks), 4)
        text = "\n".join(command for block in blocks for _, command in block)
        for size in machines.SMALL:
            self.assertIn(size, text)


class Overlay(unittest.TestCase):
    def test_header(self):
        with tempfile.TemporaryDirectory() as folder:
            base, image = f"{folder}/base", f"{folder}/image"
            with open(base, "wb") as f:
                f.truncate((1 << 30) + 512)
            machines.overlay(image, base)
            data = pathlib.Path(image).read_bytes()
        self.assertEqual(data[:8], b"QFI\xfb\0\0\0\2")
        at, length, bits, size, _, entries, table, counts = struct.unpack_from(">QIIQIIQQ", data, 8)
        self.assertEqual(data[at : at + length].decode(), base)
        self.assertEqual((bits, size, entries), (16, (1 << 30) + 512, 3))
        self.assertEqual((table, counts, len(data)), (3 << 16, 1 << 16, 4 << 16))
        self.assertEqual(struct.unpack_from(">Q", data, counts), (2 << 16,))
        self.assertEqual(struct.unpack_from(">5H", data, 2 << 16), (1, 1, 1, 1, 0))


class Tests(unittest.TestCase):
    """Tests that are functions, with one machine."""

    def run_tests(self, *functions):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            machine = mock.Mock(reports=[], why=None, port=None, console="/dev/null")
            machine.name = "A"
            fakes = {f"t{n}": lambda _, f=f: f(machine) for n, f in enumerate(functions)}
            fakes["__init__"] = lambda self, a: vars(self).update(machines={"A": machine}, off=set(), deadline=0)
            for name, value in fakes.items():
                stack.enter_context(mock.patch.object(machines.Fleet, name, value, create=True))
            stack.enter_context(mock.patch.object(machines, "TESTS", {f"t{n}": 60 for n in range(len(functions))}))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            status = machines.main(["--results", f"{folder}/results"])
            found = results.read(f"{folder}/results")
        return status, [(r.result, r.reason) for r in found]

    def test_all_is_well(self):
        self.assertEqual(self.run_tests(lambda m: None, lambda m: None), (0, [("ok", ""), ("ok", "")]))

    def test_the_first_failure_is_the_last_test(self):
        def fails(_):
            raise machines.Failed("A: status 1 of: false\nmuch")

        found = self.run_tests(fails, lambda m: None)
        self.assertEqual(found, (1, [("fail", "A: status 1 of: false"), ("fail", "did not run")]))

    def test_a_report_and_an_end_fail_the_test(self):
        found = self.run_tests(lambda m: m.reports.append("BUG: it"), lambda m: None)
        self.assertEqual(found[1][0], ("fail", "A: kernel report: BUG: it"))
        found = self.run_tests(lambda m: setattr(m, "why", "kernel panic"))
        self.assertEqual(found, (1, [("fail", "A: kernel panic")]))

    def test_each_test_exists(self):
        for name in machines.TESTS:
            self.assertTrue(callable(getattr(machines.Fleet, name)))


class Disk(unittest.TestCase):
    def test_steps_exist(self):
        functions = (steps.TESTS / "node/step").read_text()
        for name, _ in fleet.PLAN.ahead:
            self.assertIn(f"\n{name}() ", functions)
