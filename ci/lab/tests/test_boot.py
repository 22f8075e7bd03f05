# SPDX-License-Identifier: GPL-2.0
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from lab import CACHE, TOP, boot


class Options(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        for name in "a/x.ko", "a/y", "b/x.ko":
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).touch()
        (self.folder / "link").symlink_to("b/x.ko")

    def test_files_are_bound(self):
        binds = boot.Binds()
        words = ["--module", f"{self.folder}/a/x.ko", "--file", f"{self.folder}/a/y"]
        words += ["--file", f"{self.folder}/link:in/z"]
        found, _ = boot.translated(words, binds)
        wanted = ["--module", "/host0/x.ko", "--file", "/host0/y:y", "--file", "/host1/x.ko:z"]
        self.assertEqual(found, wanted)
        self.assertEqual(list(binds), [f"{self.folder}/a:/host0:ro", f"{self.folder}/b:/host1:ro"])

    def test_a_file_that_is_not_there(self):
        with self.assertRaises(FileNotFoundError):
            boot.translated(["--file", f"{self.folder}/c"], boot.Binds())

    def test_the_command_is_as_it_was(self):
        words = ["--smp", "4", "--log", "some", "--qemu=-drive", "--", "--file", "/no", "--log", "x", "--"]
        found, log = boot.translated(words, boot.Binds())
        self.assertEqual((found, log), (words[:2] + words[4:], "some"))
        self.assertEqual(boot.translated(["true"], boot.Binds()), (["true"], "guest"))


class Command(unittest.TestCase):
    def test_it_runs_in_the_root(self):
        def script(name, *words):
            return "-".join(("/made", name, *words))

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(boot, "script", script):
            with mock.patch.object(boot, "built", lambda: pathlib.Path(folder)):
                found = boot.command("rt", "--log", "some", "--smp", 2, "--", "true")
            self.assertTrue(os.path.isdir(f"{folder}/log"))
        wanted = [
            f"{TOP}/ci/in-root.sh", "/made-root.sh-rt", f"{TOP}:/srp:ro", f"{folder}/log:/log", f"{CACHE}:/cache",
            "/made-initramfs.sh-rt:/kernel:ro", "/made-guest.sh-rt:/guest:ro", "--",
            "env", "PYTHONPATH=/srp/ci", "python3", "-B", "-m", "lab.vm",
            "--console", "/log/some.log", "--kernel", "rt", "--smp", "2", "--", "true",
        ]  # fmt: skip
        self.assertEqual(found, wanted)
