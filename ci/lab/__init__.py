# SPDX-License-Identifier: GPL-2.0
"""The lab: assigns tests to guests, runs the guests, and collects the results."""

import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
# As in ci/lib.sh.
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "srp-rs"

STDERR = 2


def built():
    """Returns the build folder of the kernel series."""
    return TOP / "build" / os.environ["SERIES"]


def script(*words, stdout=subprocess.PIPE):
    """Runs a script of ci and returns its output. If the script fails, it has said why, and this program ends."""
    p = subprocess.run([TOP / "ci" / words[0], *map(str, words[1:])], stdout=stdout, text=True)
    if p.returncode:
        sys.exit(f"ci/{words[0]} has failed")
    return (p.stdout or "").strip()


def build(*words):
    """Runs a script of ci and shows its output."""
    script(*words, stdout=STDERR)


def in_root(root, binds, *words):
    """Returns the command that runs another one in a root with directories bound, HOST_DIR:ROOT_DIR[:ro] each."""
    return [str(word) for word in (TOP / "ci/in-root.sh", root, *binds, "--", *words)]
