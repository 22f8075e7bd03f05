# SPDX-License-Identifier: GPL-2.0
"""Results of tests, and their sum.

The program that runs a test appends a line of JSON to the file $RESULTS, and the program that created the file
prints the sum.

python3 -m lab.results run COMMAND... runs a command with such a file, and prints the sum.
python3 -m lab.results add NAME ok|fail|skip [REASON] adds a result."""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# `slow`: not judged, as the machine was too slow.
VERDICTS = ("ok", "fail", "skip", "slow")


@dataclasses.dataclass
class Result:
    name: str
    result: str
    seconds: float = 0
    reason: str = ""
    kind: str = ""
    kernel: str = ""
    # Number of tests with this result, if their names are unknown.
    count: int = 1
    # The stage of make test, in the file of a part.
    stage: str = ""

    def __post_init__(self):
        if self.result not in VERDICTS:
            raise ValueError(f"{self.name}: {self.result} is no result")


def add(result, path=None):
    """Appends a result to a file, by default $RESULTS. Several processes may do so at once."""
    fields = {key: value for key, value in dataclasses.asdict(result).items() if value not in ("", 0)}
    if result.count == 1:
        del fields["count"]
    with open(path or os.environ["RESULTS"], "ab", buffering=0) as f:
        f.write(json.dumps(fields).encode() + b"\n")


def read(path):
    """Returns the results of a file, up to a line whose writer was killed; none if there is no file."""
    found = []
    if pathlib.Path(path).exists():
        for line in pathlib.Path(path).read_text().splitlines():
            try:
                found.append(Result(**json.loads(line)))
            except json.JSONDecodeError:
                break
    return found


class Sum(collections.Counter):
    """The number of results of each kind."""

    def __init__(self, results=()):
        super().__init__()
        for r in results:
            self[r.result] += r.count

    @property
    def skipped(self):
        return self["skip"] + self["slow"]

    @property
    def good(self):
        return self["fail"] == 0 and self["ok"] > 0

    def __str__(self):
        return f"{self['ok']} passed, {self['fail']} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def of_command(name, status, results):
    """Returns the results of a command that has ended. Without results it counts as one test. A failure that no result
    shows is added."""
    if not results and status == 0:
        return [Result(name, "ok")]
    if status != 0 and not Sum(results)["fail"]:
        return results + [Result(name, "fail", reason=f"status {status}")]
    return results


def run(command):
    with tempfile.TemporaryDirectory(prefix="results") as folder:
        path = f"{folder}/results"
        status = subprocess.run(command, env=os.environ | {"RESULTS": path}).returncode
        total = Sum(of_command(pathlib.Path(command[0]).stem, status, read(path)))
    print(total)
    return 0 if status == 0 and not total["fail"] else 1


def main():
    p = argparse.ArgumentParser(prog="lab.results")
    sub = p.add_subparsers(dest="action", required=True)
    one = sub.add_parser("run")
    one.add_argument("command", nargs=argparse.REMAINDER)
    one = sub.add_parser("add")
    one.add_argument("name")
    one.add_argument("result", choices=VERDICTS)
    one.add_argument("reason", nargs="?", default="")
    a = p.parse_args()
    if a.action == "run":
        return run(a.command)
    add(Result(a.name, a.result, reason=a.reason))
    return 0


if __name__ == "__main__":
    sys.exit(main())
