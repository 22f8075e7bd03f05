# SPDX-License-Identifier: GPL-2.0
"""The lab: which test runs in which guest, and with which result."""

import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def script(*words):
    """Runs a script of ci and returns its output. Ends this program if it fails, as the script has said why."""
    p = subprocess.run([TOP / "ci" / words[0], *words[1:]], stdout=subprocess.PIPE, text=True)
    if p.returncode:
        sys.exit(f"ci/{words[0]} has failed")
    return p.stdout.strip()
