# SPDX-License-Identifier: GPL-2.0
"""Runs Rust's tests, and adds a result for each of them.

python3 -m lab.libtest NAME SECONDS LOG COMMAND... runs a command for at most SECONDS with its output in LOG, and prints
that if a test has failed. The results are NAME/PROGRAM/TEST. The tests' own output must be captured, because it
would break up libtest's lines."""

import pathlib
import re
import subprocess
import sys

from . import results

# Cargo names a program before it starts it, by its source and its file or folder.
PROGRAM = re.compile(r" +Running .*?([^/(]+?)(?:-[0-9a-f]{16})?\)$| +Doc-tests (\S+)$")
PLAN = re.compile(r"running (\d+) tests?$")
HOW = "(?: - (?:should panic|compile fail|compile))"
VERDICT = re.compile(rf"test (.+?){HOW}? \.\.\. (ok|FAILED|ignored)(?:, .*)?$")
OUTPUT = re.compile(rf"---- (.+?){HOW}? stdout ----$")
WORDS = {"ok": "ok", "FAILED": "fail", "ignored": "skip"}


def verdicts(name, text):
    """Returns the results of the tests in this output. Each program announces its number of tests. If it dies, its
    tests without a verdict have failed."""
    # Each run of a program: its name, the announced number of tests, and the results by the names of the tests.
    runs, program, listing, shown = [], "", True, None
    for line in text.splitlines():
        here = runs[-1][2] if runs else {}
        if m := PROGRAM.match(line):
            program, listing, shown = "/".join((name, m[1] or m[2])), True, None
        elif line in ("failures:", "successes:"):
            # The outputs of tests follow.
            listing, shown = False, None
        elif listing and (m := PLAN.match(line)):
            runs.append((program or name, int(m[1]), {}))
        elif listing and (m := VERDICT.match(line)):
            here[m[1]] = results.Result(f"{program or name}/{m[1]}", WORDS[m[2]])
        elif m := OUTPUT.match(line):
            shown = here.get(m[1])
        elif line == "stack backtrace:":
            shown = None
        elif shown and shown.result == "fail" and line.strip() and len(shown.reason) < 200:
            shown.reason += f"{' ' if shown.reason else ''}{line.strip()}"
    found = []
    for program, planned, here in runs:
        found += here.values()
        if planned > len(here):
            missing = planned - len(here)
            found.append(results.Result(program, "fail", reason="tests without a verdict", count=missing))
    return found


def judged(name, seconds, status, text):
    """Returns the results of a command that has ended with this status, which is 124 after SECONDS."""
    found = verdicts(name, text)
    if status == 124:
        found.append(results.Result(name, "fail", reason=f"the tests do not end: not within {seconds} s"))
    elif status and not results.Sum(found)["fail"]:
        found.append(results.Result(name, "fail", reason=f"status {status}"))
    elif not found:
        found.append(results.Result(name, "fail", reason="no test ran"))
    return found


def main():
    name, seconds, log, *command = sys.argv[1:]
    log = pathlib.Path(log)
    with open(log, "wb") as f:
        command = ["timeout", seconds, *command]
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT).returncode
    text = log.read_text(errors="replace")
    found = judged(name, seconds, status, text)
    for r in found:
        results.add(r)
    failed = [r for r in found if r.result == "fail"]
    if failed:
        print(text)
    for r in failed:
        print(f"fail {r.name}: {r.reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
