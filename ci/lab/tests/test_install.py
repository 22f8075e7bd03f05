# SPDX-License-Identifier: GPL-2.0
"""What is installed can be removed."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from lab import TOP

SRPCTL = """#!/bin/sh
[ "$1" = generate ] && cd "$2" && touch srpctl.8 targets.d.5 srpctl.fish srpctl.bash _srpctl
"""


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


class Uninstall(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.built, self.root = pathlib.Path(folder.name, "built"), pathlib.Path(folder.name, "root")
        self.put(self.built / "release/srpctl", SRPCTL)
        self.put(self.built / "bin/depmod", f'#!/bin/sh\necho "$@" >>{self.built}/depmod\n')

    def put(self, path, text=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make(self, target):
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
        env["PATH"] = f"{self.built}/bin:{env['PATH']}"
        of = [f"DESTDIR={self.root}", f"CARGO_TARGET_DIR={self.built}", f"INSTALL_MOD_PATH={self.root}"]
        subprocess.run(["make", "-s", "-C", TOP, target, *of], env=env, check=True, stdout=subprocess.PIPE)

    def test_leaves_only_files_of_others(self):
        others = {"usr/lib/udev/rules.d/99-other.rules", "usr/share/srpctl/other", "lib/modules/1/updates/other.ko"}
        for other in others:
            self.put(self.root / other)
        self.make("install-tools")
        self.assertGreater(len(files(self.root)), 30)
        (self.built / "release/srpctl").unlink()
        for release in "1", "2":
            self.put(self.root / f"lib/modules/{release}/updates/ib_srp.ko")
        self.make("uninstall")
        self.assertEqual(files(self.root), others)
        self.assertEqual((self.built / "depmod").read_text(), f"-b {self.root} 1\n-b {self.root} 2\n")
        self.assertFalse((self.root / "usr/lib/dracut/modules.d/95srp").exists())
        self.make("uninstall")


class Removal(unittest.TestCase):
    def test_of_the_tools_names_the_sessions(self):
        script = (TOP / "debian/srp-rs-tools.prerm").read_text()
        with tempfile.TemporaryDirectory() as sys:
            said = lambda verb: subprocess.check_output(["sh", "-c", script.replace("/sys/", f"{sys}/"), "prerm", verb])
            self.assertEqual(said("remove"), b"")
            pathlib.Path(sys, "class/scsi_host/host3").mkdir(parents=True)
            self.assertEqual(said("remove"), b"")
            for host in "host4", "host5":
                pathlib.Path(sys, "class/scsi_host", host).mkdir()
                pathlib.Path(sys, "class/scsi_host", host, "ioc_guid").touch()
            self.assertIn(b"`srpctl disconnect --all` logs out", said("remove"))
            self.assertEqual(said("remove").count(b"\n"), 1)
            self.assertEqual(said("upgrade"), b"")
