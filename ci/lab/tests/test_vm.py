# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import itertools
import pathlib
import tempfile
import time
import types
import unittest
from unittest import mock

from lab import vm
from lab.reports import reader

INIT = "[    0.500000] Run /init as init process"


class Machines(unittest.TestCase):
    def command(self, release, *options):
        """Returns the command line of a guest with this kernel."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in ("release", release), ("vmlinuz", "MZ"):
                (pathlib.Path(folder) / name).write_text(text)
            guest = vm.Guest(vm.arguments("vm.sh", "").parse_args(["--accel", "tcg", *options]), folder)
            return " ".join(guest.command(types.SimpleNamespace(name="/initrd"), "job=run", guest.kvm()))

    def test_an_architecture_has_its_machine(self):
        there = {
            "7.3.4+deb13-amd64": ("qemu-system-x86_64", "-machine q35", "console=ttyS0", "tsc=reliable"),
            "7.3.4+deb13-arm64-16k": ("qemu-system-aarch64", "-machine virt", "console=ttyAMA0", "-cpu neoverse-n1"),
        }
        for release, words in there.items():
            command = self.command(release)
            for word in itertools.chain(*there.values()):
                self.assertEqual(word in command, word in words, f"{release}: {word}")

    def test_no_kvm_for_another_architecture(self):
        with mock.patch.object(vm.os, "access", side_effect=AssertionError):
            self.assertIn("-accel tcg", self.command("7.3.4+deb13-arm64", "--accel", "auto"))


class Watching(unittest.TestCase):
    """Guests that are shell scripts with the output of one."""

    def setUp(self):
        self.guest = vm.Guest.__new__(vm.Guest)
        self.guest.args, self.guest.uml, self.guest.to_crash, self.guest.too_slow = None, True, False, False
        self.guest.is_report = reader()
        self.starved = mock.patch.object(vm.Guest, "starved", return_value=False).start()
        self.addCleanup(mock.patch.stopall)

    def watch(self, script, limit):
        return self.guest.watch(["bash", "-c", script], limit, None)

    def events(self, script, limit=5):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            found = list(self.watch(script, limit))
        return [e for e in found if e[0] != "line"], out.getvalue()

    def test_a_good_one(self):
        script = f"echo '{INIT}'; echo '[    1.000000] ::test 01-a:rxe begin'; echo word; "
        script += "echo '[    2.000000] ::guest end'"
        self.assertEqual(self.events(script)[0], [("test", "01-a:rxe begin"), ("ended", "end")])

    def test_reports(self):
        script = f"echo '[    0.100000] WARNING: CPU: 0'; echo '{INIT}'; "
        script += "echo '[    1.000000] BUG: x'; echo 'BUG: no line of the kernel'"
        found, _ = self.events(script)
        self.assertEqual([word for word, _ in found], ["report", "report", "ended"])
        self.assertEqual(found[-1][1], "the guest ended without a word")

    def test_a_panic_ends_it(self):
        began = time.monotonic()
        found, _ = self.events(f"echo '{INIT}'; echo '[    1.000000] Kernel panic - not syncing: x'; exec sleep 60", 60)
        self.assertEqual([word for word, _ in found], ["report", "ended"])
        self.assertEqual(found[-1][1], "kernel panic")
        self.assertLess(time.monotonic() - began, 30)

    def test_a_hang_ends_it(self):
        found, _ = self.events(f"echo '{INIT}'; exec sleep 60", 1)
        self.assertEqual(found, [("ended", "deadline of 1 s")])
        self.assertFalse(self.guest.too_slow)

    def test_a_test_has_its_own_deadline(self):
        script = f"echo '{INIT}'; echo '[    1.000000] ::test 01-a:rxe begin'; exec sleep 60"
        for word, text in self.watch(script, 60):
            if word == "test":
                self.guest.end_in(1)
        self.assertEqual((word, text), ("ended", "deadline of 1 s"))

    def test_a_machine_without_cpu_time(self):
        self.starved.return_value = True
        self.events(f"echo '{INIT}'; exec sleep 60", 1)
        self.assertTrue(self.guest.too_slow)

    def test_early_boot_is_tried_again(self):
        with mock.patch.object(vm, "BOOT_SECONDS", 1):
            found, out = self.events("exec sleep 60", 30)
        self.assertEqual(found, [("ended", "hung in early boot")])
        self.assertEqual(out.count("starting it again"), 2)

    def test_a_hang_fails_its_test(self):
        """The guest hangs in its second test."""
        told = []
        guest = self.guest
        guest.args = types.SimpleNamespace(console="/dev/null", results="file", kernel="kasan")
        guest.initramfs = lambda job: contextlib.nullcontext()
        words = ("01-a:rxe begin", "01-a:rxe ok 3", "02-b:rxe begin")
        lines = [INIT, *(f"[    1.000000] ::test {word}" for word in words)]
        guest.command = lambda *_: ["bash", "-c", "".join(f"echo '{line}'; " for line in lines) + "exec sleep 60"]
        guest.kvm, guest.cpu, guest.peer = lambda: False, lambda: 0, None
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(vm.results, "add", lambda r, path: told.append(r)):
            tests = [("01-a", "rxe", "600"), ("02-b", "rxe", "-59"), ("03-c", "rxe", "600")]
            self.assertEqual(vm.run_tests(guest, "g", tests), 1)
        wanted = [("01-a", "rxe", "ok"), ("02-b", "rxe", "fail"), ("03-c", "rxe", "fail")]
        self.assertEqual([(r.name, r.kind, r.result) for r in told], wanted)
        self.assertEqual((told[0].seconds, told[1].reason), (3, "deadline of 1 s"))
