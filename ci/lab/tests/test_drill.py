# SPDX-License-Identifier: GPL-2.0
"""The loop of the drill in docs/srpctl.md."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from lab import TOP

# The third write takes long, the fifth fails, and sees what is printed until then: mawk waits for the end of its input.
DD = """#!/bin/sh
echo "$@" >>"$CALLS"
case $(wc -l <"$CALLS") in 3) sleep 1 ;; 5) cp "$SAID" "$SAID.before"; exit 1 ;; esac
"""


class Drill(unittest.TestCase):
    def test_prints_the_write_that_takes_long(self):
        (line,) = re.findall(r"^    (while .*dd .*)$", (TOP / "docs/srpctl.md").read_text(), re.M)
        with tempfile.TemporaryDirectory() as folder:
            dd, calls = pathlib.Path(folder, "dd"), pathlib.Path(folder, "calls")
            dd.write_text(DD)
            dd.chmod(0o755)
            said = pathlib.Path(folder, "said")
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", CALLS=str(calls), SAID=str(said))
            with open(said, "w") as f:
                subprocess.run(["bash", "-c", line], env=env, stdout=f, stderr=f, timeout=60)
            self.assertEqual(len(calls.read_text().splitlines()), 5)
            self.assertRegex(said.read_text(), r"^\d{4,} ms\n$")
            self.assertEqual(pathlib.Path(folder, "said.before").read_text(), said.read_text())
