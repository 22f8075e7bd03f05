# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import os
import tempfile
import unittest
from unittest import mock

from lab import libtest, results

GOOD = """\
   Compiling srp-host v0.0.0
     Running unittests src/lib.rs (/host/target/debug/deps/srp_host-46930fb561a3a0f7)

running 1 test
test times::first ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/golden.rs (/host/target/debug/deps/golden-3687e690e517200a)

running 2 tests
test second - should panic ... ok
test third ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s

   Doc-tests srp_host

running 1 test
test src/lib.rs - (line 4) - compile fail ... ok

"""
FAILURES = """
failures:

---- third stdout ----
test fourth ... ok
running 9 tests

thread 'third' (7) panicked at tests/golden.rs:3:50:
one is not two
stack backtrace:
   0: __rustc::rust_begin_unwind

failures:
    third

"""
BROKEN = GOOD.replace("test third ... ok\n", "test third ... FAILED\n" + FAILURES)
NAMES = ["h/srp_host/times::first", "h/golden/second", "h/golden/third", "h/srp_host/src/lib.rs - (line 4)"]


class Output(unittest.TestCase):
    def sum(self, text, status=0):
        return str(results.Sum(libtest.judged("h", "5", status, text)))

    def reasons(self, text, status=0):
        return [r.reason for r in libtest.judged("h", "5", status, text) if r.result == "fail"]

    def test_each_test_has_a_name(self):
        found = libtest.verdicts("h", GOOD)
        self.assertEqual([(r.name, r.result) for r in found], [(name, "ok") for name in NAMES])

    def test_a_failure_has_its_reason(self):
        self.assertEqual([r.name for r in libtest.verdicts("h", BROKEN)], NAMES)
        (reason,) = self.reasons(BROKEN, 101)
        self.assertIn("panicked at tests/golden.rs:3:50: one is not two", reason)
        self.assertNotIn("rust_begin_unwind", reason)

    def test_the_output_of_a_test_is_no_verdict(self):
        self.assertEqual(self.sum(BROKEN, 101), "3 passed, 1 failed")
        self.assertEqual(self.sum(GOOD + FAILURES.replace("failures", "successes")), "4 passed, 0 failed")

    def test_a_program_that_dies(self):
        died = GOOD.replace("test third ... ok\n", "error: test failed, to rerun pass `--test golden`\n")
        found = libtest.judged("h", "5", 101, died)
        self.assertEqual(str(results.Sum(found)), "3 passed, 1 failed")
        self.assertEqual([r.name for r in found if r.result == "fail"], ["h/golden"])

    def test_two_programs_of_one_name(self):
        self.assertEqual(self.sum(GOOD + GOOD), "8 passed, 0 failed")

    def test_ignored(self):
        text = GOOD.replace("third ... ok", "third ... ignored, slow")
        self.assertEqual(self.sum(text), "3 passed, 0 failed, 1 skipped")

    def test_one_program_without_cargo(self):
        found = libtest.verdicts("h", "running 1 test\ntest a::b ... ok\n")
        self.assertEqual([r.name for r in found], ["h/a::b"])

    def test_how_it_ends(self):
        self.assertEqual(self.reasons("error: could not compile", 101), ["status 101"])
        self.assertEqual(self.reasons(GOOD, 101), ["status 101"])
        self.assertEqual(self.reasons("", 0), ["no test ran"])
        self.assertEqual(self.reasons("running 0 tests\n", 0), ["no test ran"])
        hung = GOOD.partition("test third")[0]
        self.assertEqual(self.reasons(hung, 124)[-1], "the tests do not end: not within 5 s")


class Running(unittest.TestCase):
    def run_it(self, seconds, *command):
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
            words, record = ["libtest", "h", seconds, f"{folder}/log", *command], f"{folder}/results"
            with mock.patch.dict(os.environ, RESULTS=record), mock.patch("sys.argv", words):
                status = libtest.main()
            return status, str(results.Sum(results.read(record))), out.getvalue()

    def test_good(self):
        self.assertEqual(self.run_it("9", "printf", "%s", GOOD), (0, "4 passed, 0 failed", ""))

    def test_a_failure_is_shown(self):
        status, total, out = self.run_it("9", "printf", "%s", BROKEN)
        self.assertEqual((status, total), (1, "3 passed, 1 failed"))
        self.assertIn("rust_begin_unwind", out)
        self.assertIn("fail h/golden/third: ", out)

    def test_a_hang_ends(self):
        status, total, _ = self.run_it("0.2", "sleep", "60")
        self.assertEqual((status, total), (1, "0 passed, 1 failed"))
