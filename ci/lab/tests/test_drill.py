# SPDX-License-Identifier: GPL-2.0
"""The loop of the drill in docs/srpctl.md."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from lab import TOP

# The third write takes long, the fifth fails.
DD = """#!/bin/sh
echo "$@" >>"$CALLS"
case $(wc -l <"$CALLS") in 3) sleep 1 ;; 5) exit 1 ;; esac
"""


class Drill(unittest.TestCase):
    def test_prints_the_write_that_takes_long(self):
        (line,) = re.findall(r"^    (while .*dd .*)$", (TOP / "docs/srpctl.md").read_text(), re.M)
        with tempfile.TemporaryDirectory() as folder:
            dd, calls = pathlib.Path(folder, "dd"), pathlib.Path(folder, "calls")
            dd.write_text(DD)
            dd.chmod(0o755)
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", CALLS=str(calls))
            said = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(len(calls.read_text().splitlines()), 5)
        self.assertRegex(said.stdout, r"^\d{4,} ms\n$")
        self.assertEqual(said.stderr, "")
