# SPDX-License-Identifier: GPL-2.0
"""The mirror of a machine with and without package lists."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from lab import TOP

# Without lists apt knows the sites, but not their origins.
APT_GET = """#!/bin/sh
echo "$*" >>"$FOLDER/asked"
case "$*" in
indextargets*)
	[ -e "$FOLDER/lists" ] && debian=Debian
	echo "http://other.invalid "
	echo "http://security.invalid $debian"
	echo "http://mirror.invalid $debian"
	echo "http://second.invalid $debian" ;;
*update*) [ -e "$FOLDER/offline" ] || touch "$FOLDER/lists" ;;
esac
"""


class Mirror(unittest.TestCase):
    def mirror(self, *there):
        """Returns the output of mirror(), and how often it has fetched lists, on a machine with these files."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "bin/apt-get")
            program.parent.mkdir()
            program.write_text(APT_GET)
            program.chmod(0o755)
            for name in there:
                pathlib.Path(folder, name).touch()
            environment = os.environ | {
                "FOLDER": folder, "XDG_CACHE_HOME": folder, "PATH": f"{program.parent}:{os.environ['PATH']}"
            }  # fmt: skip
            command = ["bash", "-c", f". '{TOP}/ci/lib.sh'; mirror"]
            said = subprocess.run(command, env=environment, capture_output=True, text=True)
            asked = pathlib.Path(folder, "asked").read_text().count("update")
            return said.stdout.strip() or said.stderr.strip(), asked

    def test_lists(self):
        self.assertEqual(self.mirror("lists"), ("http://mirror.invalid", 0))

    def test_no_lists(self):
        self.assertEqual(self.mirror(), ("http://mirror.invalid", 1))

    def test_no_lists_to_be_had(self):
        said, asked = self.mirror("offline")
        self.assertIn("no Debian mirror", said)
        self.assertEqual(asked, 1)
