# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from lab import guests, headers, kunit, packing, results, vm
from lab.results import Result


class Files(unittest.TestCase):
    def test_round_trip(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/results"
            self.assertEqual(results.read(path), [])
            first, second = Result("01-a", "ok", 3, kind="rxe"), Result('"b"\n', "fail", reason="a\nb", count=2)
            results.add(first, path)
            results.add(second, path)
            # Its writer was killed.
            with open(path, "a") as f:
                f.write('{"name": "c"')
            self.assertEqual(results.read(path), [first, second])

    def test_a_result_is_known(self):
        with self.assertRaises(ValueError):
            Result("a", "passed")

    def test_sum(self):
        found = [Result("a", "ok", count=3), Result("b", "fail"), Result("c", "skip"), Result("d", "slow")]
        self.assertEqual(str(results.Sum(found)), "3 passed, 1 failed, 2 skipped")
        self.assertEqual(str(results.Sum(found[:1])), "3 passed, 0 failed")
        self.assertEqual([results.Sum(f).good for f in ([], found, found[:1], found[2:])], [False, False, True, False])

    def test_commands(self):
        ok, bad = Result("a", "ok"), Result("a", "fail")
        for status, found, wanted in (
            (0, [], "1 passed, 0 failed"),
            (1, [], "0 passed, 1 failed"),
            (0, [ok], "1 passed, 0 failed"),
            (1, [ok], "1 passed, 1 failed"),
            (1, [ok, bad], "1 passed, 1 failed"),
        ):
            self.assertEqual(str(results.Sum(results.of_command("x", status, found))), wanted)

    def test_the_last_line_of_a_command(self):
        for script, wanted, status in (
            ('echo \'{"name": "a", "result": "ok"}\' >>$RESULTS', "1 passed, 0 failed\n", 0),
            ('echo \'{"name": "a", "result": "fail"}\' >>$RESULTS', "0 passed, 1 failed\n", 1),
            ("exit 3", "0 passed, 1 failed\n", 1),
            ("true", "1 passed, 0 failed\n", 0),
        ):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(results.run(["bash", "-c", script]), status)
            self.assertEqual(out.getvalue(), wanted)


class Console(unittest.TestCase):
    """A guest with three tests."""

    def setUp(self):
        self.told = []
        self.verdicts = vm.Verdicts("g", ["01-a:rxe", "02-b:rxe", "03-c:rxe"], lambda *r: self.told.append(r))
        self.out = io.StringIO()
        redirect = contextlib.redirect_stdout(self.out)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)

    def one(self, test, verdict, *lines):
        self.verdicts.begin(test)
        for line in lines:
            self.verdicts.line(line)
        self.verdicts.end(test, verdict, 5, 1)

    def results(self):
        return [(name, verdict) for name, verdict, _, _ in self.told]

    def test_all_is_well(self):
        for test in "01-a:rxe", "02-b:rxe", "03-c:rxe":
            self.one(test, "ok")
        self.verdicts.ended("end", False)
        self.assertEqual(self.results(), [(f"0{n}-{t}:rxe", "ok") for n, t in ((1, "a"), (2, "b"), (3, "c"))])
        self.assertTrue(self.verdicts.good)

    def test_it_dies_in_the_middle(self):
        self.one("01-a:rxe", "ok")
        self.verdicts.begin("02-b:rxe")
        self.verdicts.line("[    1.000000] Kernel panic - not syncing", True)
        self.verdicts.ended("kernel panic", False)
        self.assertEqual(self.results(), [("01-a:rxe", "ok"), ("02-b:rxe", "fail"), ("03-c:rxe", "fail")])
        self.assertIn("Kernel panic", self.told[1][3])
        self.assertEqual(self.told[2][3], "did not run")
        self.assertIn("    | [    1.000000] Kernel panic", self.out.getvalue())
        self.assertFalse(self.verdicts.good)

    def test_it_hangs(self):
        self.verdicts.begin("01-a:rxe")
        self.verdicts.ended("deadline of 300 s", False)
        self.assertEqual(self.told[0][1:], ("fail", 0, "deadline of 300 s"))
        self.assertEqual([v for _, v in self.results()], ["fail"] * 3)

    def test_it_does_not_boot(self):
        self.verdicts.ended("hung in early boot", False)
        self.assertEqual(self.told[0], ("end", "fail", 0, "hung in early boot"))
        self.assertEqual(len(self.told), 4)

    def test_a_slow_machine(self):
        self.one("01-a:rxe", "ok")
        self.one("02-b:rxe", "slow", "02-b: skipped: machine too slow: a login took 9 s")
        self.verdicts.ended("deadline of 300 s", True)
        self.assertEqual([v for _, v in self.results()], ["ok", "slow", "slow"])
        self.assertIn("a login took", self.told[1][3])
        self.assertIn("deadline of 300 s of the guest", self.told[2][3])

    def test_reports(self):
        self.verdicts.line("WARNING: in boot", True)
        self.one("01-a:rxe", "ok")
        self.verdicts.begin("02-b:rxe")
        self.verdicts.line("WARNING: in b", True)
        self.verdicts.end("02-b:rxe", "ok", 5, 1)
        self.one("03-c:rxe", "fail", "03-c: FAILED: it is broken", "more")
        self.verdicts.line("WARNING: at the end", True)
        self.verdicts.ended("end", False)
        wanted = [("boot", "fail"), ("01-a:rxe", "ok"), ("02-b:rxe", "fail"), ("03-c:rxe", "fail"), ("end", "fail")]
        self.assertEqual(self.results(), wanted)
        self.assertEqual(self.told[3][3], "03-c: FAILED: it is broken")


class Merging(unittest.TestCase):
    def a_run(self, test, kind="rxe"):
        return headers.Run(test, kind, "kasan", "fast", (), 300, 10)

    def test_a_second_run(self):
        first = [Result(f"0{n}-a", v, kind="rxe") for n, v in enumerate(("ok", "fail", "fail", "fail", "fail", "slow"))]
        first += [Result("end", "fail"), Result("kmemleak", "ok")]
        again = [Result(f"0{n}-a", v, kind="rxe") for n, v in ((1, "ok"), (2, "fail"), (3, "slow"), (4, "skip"))]
        again += [Result("kmemleak", "ok"), Result("boot", "fail")]
        merged, passed = guests.merge(first, again, "-again", "fail")
        verdicts = [r.result for r in merged]
        self.assertEqual(verdicts, ["ok", "ok", "fail", "slow", "fail", "slow", "fail", "ok", "fail"])
        self.assertEqual((merged[-1].name, passed), ("boot-again", 1))
        self.assertEqual(str(results.Sum(merged)), "3 passed, 4 failed, 2 skipped")

    def test_alone(self):
        for verdict, passed in ("ok", 1), ("slow", 0), ("fail", 0), ("skip", 0):
            first, again = Result("01-a", "slow", kind="rxe"), Result("01-a", verdict, kind="rxe")
            merged, n = guests.merge([first], [again], "-x", "slow")
            self.assertEqual((merged[0].result, n), (verdict, passed))

    def test_the_kind_matters(self):
        first = [Result("01-a", "fail", kind="rxe"), Result("01-a", "fail", kind="siw")]
        merged, _ = guests.merge(first, [Result("01-a", "ok", kind="siw")], "-again", "fail")
        self.assertEqual([r.result for r in merged], ["fail", "ok"])

    def test_a_test_without_a_result_has_failed(self):
        guest = packing.Guest((self.a_run("01-a"), self.a_run("02-b")))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            found = guests.whole(guest, [Result("01-a", "ok", kind="rxe"), Result("kmemleak", "ok")])
        self.assertIn("02-b:rxe: the guest did not run", out.getvalue())
        self.assertEqual([(r.name, r.result) for r in found], [("01-a", "ok"), ("kmemleak", "ok"), ("02-b", "fail")])


class FakeLab:
    """Guests whose results are given, by the name of the guest."""

    driver = None

    def __init__(self, given, ours=()):
        self.given, self.ours, self.booted = given, ours, []

    def boot(self, guest, name):
        self.booted.append(name)
        return guests.whole(guest, [Result(t, v, kind="rxe") for t, v in self.given.get(name, {}).items()])

    def is_ours(self, name):
        return name in self.ours


class Runs(unittest.TestCase):
    def run_one(self, given, ours=()):
        runs = tuple(headers.Run(t, "rxe", "kasan", "fast", (), 300, 10) for t in ("01-a", "02-b"))
        guest = packing.Guest(runs)
        self.name = guest.name
        lab = FakeLab({self.name + suffix: v for suffix, v in given.items()}, [self.name] if ours else [])
        with contextlib.redirect_stdout(io.StringIO()):
            found, second = guests.run(lab, [guest], 1)
        return [r.result for r in found], second, [n.removeprefix(self.name) for n in lab.booted]

    def test_good(self):
        self.assertEqual(self.run_one({"": {"01-a": "ok", "02-b": "ok"}}), (["ok", "ok"], 0, [""]))

    def test_failed_tests_get_a_second_run(self):
        given = {"": {"01-a": "ok", "02-b": "fail"}, "-again": {"02-b": "ok"}}
        self.assertEqual(self.run_one(given), (["ok", "ok"], 1, ["", "-again"]))

    def test_our_failures_do_not(self):
        self.assertEqual(self.run_one({"": {"01-a": "ok", "02-b": "fail"}}, ours=True), (["ok", "fail"], 0, [""]))

    def test_slow_tests_run_alone(self):
        given = {"": {"01-a": "slow", "02-b": "slow"}, "-alone-01rxe": {"01-a": "ok"}, "-alone-02rxe": {"02-b": "slow"}}
        self.assertEqual(self.run_one(given), (["ok", "slow"], 1, ["", "-alone-01rxe", "-alone-02rxe"]))

    def test_slow_in_the_second_run(self):
        given = {"": {"01-a": "ok", "02-b": "fail"}, "-again": {"02-b": "slow"}, "-alone-02rxe": {"02-b": "ok"}}
        self.assertEqual(self.run_one(given), (["ok", "ok"], 1, ["", "-again", "-alone-02rxe"]))

    def test_a_guest_that_does_not_run(self):
        self.assertEqual(self.run_one({}), (["fail", "fail"], 0, ["", "-again"]))


class Builds(unittest.TestCase):
    def prepared(self, *where, driver=None):
        """Returns what is built for guests of these kinds and kernels: the scripts, and the folders of the modules."""
        ran = []

        def script(*words):
            ran.append(words)
            return "/made"

        with mock.patch.dict(os.environ, SERIES="7.3"), mock.patch.object(guests, "script", script):
            self.lab = guests.Lab(driver)
            self.lab.prepare([packing.Guest((headers.Run("01-a", *w, "fast", (), 300, 10),)) for w in where])
        folders = {words[2].name for words in ran if words[0] == "module.sh"}
        return {words[:2] for words in ran if words[0] != "module.sh"}, folders

    def test_what_guests_need(self):
        scripts, folders = self.prepared(("rxe", "kasan"), ("vfab", "kasan"), ("siw", "kasan"))
        self.assertEqual(scripts, {(f"{name}.sh", "kasan") for name in ("tools", "guest", "initramfs")})
        self.assertEqual(folders, {"kasan", "vfab-kasan", "slow_qp-kasan"})
        self.assertEqual(self.lab.tools, {"kasan": "/made"})
        scripts, folders = self.prepared(("rxe", "rt"), ("vfab", "stock"))
        once = {("guest.sh", "stock"), ("kernel.sh", "patched")}
        each = {(f"{name}.sh", kernel) for name in ("tools", "initramfs") for kernel in ("rt", "stock")}
        self.assertEqual(scripts, once | each)
        self.assertEqual(folders, {"rt", "rdma_rxe-rt", "ib_srpt-rt", "slow_qp-rt", "stock", "vfab-stock", "slow_qp-stock"})

    def test_two_architectures(self):
        scripts, folders = self.prepared(("rxe", "stock"), ("rxe", "arm64"), ("vfab", "arm64-16k"))
        kernels = ("stock", "arm64", "arm64-16k")
        each = {(f"{name}.sh", kernel) for name in ("tools", "initramfs") for kernel in kernels}
        once = {("guest.sh", "stock"), ("guest.sh", "arm64-16k"), ("kernel.sh", "patched")}
        self.assertEqual(scripts, once | each)
        others = {"vfab-arm64-16k", "rdma_rxe-arm64-16k"}
        self.assertEqual(folders, {*kernels, *(f"slow_qp-{kernel}" for kernel in kernels)} | others)
        self.assertEqual(set(self.lab.tools), set(kernels))

    def test_the_c_driver(self):
        self.assertEqual(self.prepared(("rxe", "stock"), driver="c")[1], {"slow_qp-stock"})

    def test_a_build_that_fails_ends_it(self):
        def script(*words):
            return sys.exit("no") if words[0] == "module.sh" else "/made"

        with mock.patch.dict(os.environ, SERIES="7.3"), mock.patch.object(guests, "script", script):
            with self.assertRaises(SystemExit):
                guests.Lab(None).prepare([packing.Guest((headers.Run("01-a", "rxe", "kasan", "fast", (), 300, 10),))])


class Choosing(unittest.TestCase):
    def chosen(self, *words, one=True, **environment):
        with mock.patch.dict(os.environ, environment):
            if not environment:
                os.environ.pop("LONG", None)
            found = guests.chosen(list(words), one)
            return [(p.test, p.set) for g in found for p in g.runs], os.environ.get("LONG")

    def test_one(self):
        fast = {p.test for p in headers.every() if p.set == "fast"}
        long = min({p.test for p in headers.every()} - fast)
        self.assertEqual(self.chosen(min(fast)), ([(min(fast), "fast")], None))
        self.assertEqual(self.chosen(long), ([(long, "long")], "1"))
        self.assertEqual(self.chosen(min(fast), LONG="1"), ([(min(fast), "long")], "1"))
        with self.assertRaises(headers.Refused):
            self.chosen(long, one=False)

    def test_what_is_not_there(self):
        for words in ["99-nothing"], ["01-login:nothing"], [""], []:
            with self.assertRaises(headers.Refused):
                self.chosen(*words)


class Ktap(unittest.TestCase):
    GOOD = "KTAP version 1\n    # Subtest: srp_slot\n    1..2\n    ok 1 first\n    ok 2 second\nok 1 srp_slot\n"

    def sum(self, text):
        return str(results.Sum(kunit.verdicts(text)))

    def test_verdicts(self):
        self.assertEqual([r.name for r in kunit.verdicts(self.GOOD)], ["kunit/srp_slot/first", "kunit/srp_slot/second"])
        self.assertEqual(self.sum(self.GOOD), "2 passed, 0 failed")
        self.assertEqual(self.sum(self.GOOD.replace("ok 2", "not ok 2")), "1 passed, 1 failed")
        self.assertEqual(self.sum(self.GOOD.replace("second", "second # SKIP no device")), "1 passed, 1 failed")

    def test_a_guest_that_dies(self):
        self.assertEqual(self.sum(self.GOOD.partition("    ok 2")[0]), "1 passed, 1 failed")
        self.assertEqual(self.sum("no output"), "0 passed, 1 failed")

    def run_guest(self, script, kernel="kasan"):
        """Runs KUnit with a guest that is this script, whose console is $LOG; returns its status and the sum."""

        def command(*words):
            self.words = words
            return ["bash", "-c", script]

        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "log").mkdir()
            variables = {"RESULTS": f"{folder}/results", "SUITES": "srp_*", "LOG": f"{folder}/log/kunit-{kernel}.log"}
            stack.enter_context(mock.patch.dict(os.environ, variables))
            stack.enter_context(mock.patch.object(kunit, "built", lambda: folder))
            stack.enter_context(mock.patch.object(kunit, "build", lambda *words: self.assertEqual(words[1], kernel)))
            stack.enter_context(mock.patch.object(kunit.boot, "command", command))
            stack.enter_context(mock.patch("sys.argv", ["kunit"] + [kernel] * (kernel != "kasan")))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            status, self.found = kunit.main(), results.read(folder / "results")
            return status, str(results.Sum(self.found))

    def test_a_guest(self):
        for kernel in "kasan", "test":
            self.assertEqual(self.run_guest(f"printf '{self.GOOD}'", kernel), (0, "2 passed, 0 failed"))
            self.assertEqual((self.words[0], self.words[2]), (kernel, f"kunit-{kernel}"))
            self.assertIn("kunit.filter_glob=srp_*", self.words)

    def test_a_guest_that_fails(self):
        self.assertEqual(self.run_guest(f"printf '{self.GOOD}'; exit 1"), (1, "2 passed, 1 failed"))

    def test_the_reason_is_the_check(self):
        bad = self.GOOD.replace("ok 2", "not ok 2")
        self.assertEqual(self.run_guest(f"printf '{bad}'; echo 'slot.rs:7: not true: x' >$LOG"), (1, "1 passed, 1 failed"))
        self.assertEqual(self.found[1].reason, "not ok 2 second; slot.rs:7: not true: x")

    def test_a_kernel_that_dies_is_booted_once_more(self):
        for trace, found in ("", (0, "2 passed, 0 failed")), ("[ib_srp]", (1, "0 passed, 1 failed")):
            script = f"[ ! -e $LOG ] || {{ printf '{self.GOOD}'; exit; }}; echo 'Kernel panic {trace}' >$LOG; exit 1"
            self.assertEqual(self.run_guest(script), found)
