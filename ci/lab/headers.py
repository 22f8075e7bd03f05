# SPDX-License-Identifier: GPL-2.0
"""The headers of the guest tests: where each one runs, and for how long.

    #
    # deadline: SECONDS [LONG]          of the whole test; LONG in the long set
    # takes: SECONDS                    about, in the fast set; only balances the guests
    # runs: KIND... KERNEL... SET... [PARAMETER=VALUE]...

A test may have several lines `runs`, and runs in each combination of a line's words."""

import dataclasses
import itertools
import re

from . import TOP

TESTS = TOP / "userspace-tests/guest"
KINDS = ("rxe", "siw", "vfab", "rxe+user", "siw+user")
# The series of Debian 13's own kernel.
OWN = "6.12"
KERNELS = ("stock", OWN, "rt", "arm64", "arm64-16k", "arm64-64k", "test", "rtdebug", "kcsan", "kasan")
SETS = ("fast", "long")
# The adapters that ib_vfab can resemble (PERSONALITY=*).
PERSONALITIES = (
    "mlx5", "mlx4", "irdma", "bnxt_re", "hns", "erdma", "ionic", "qedr", "cxgb4", "ocrdma", "vmw_pvrdma", "rxe",
)  # fmt: skip
# Parameters of a guest and their values. Except for the first four, they are kernel parameters. The kernel
# passes unknown parameters on as variables of the tests' environment.
PARAMETERS = {
    "memory": r"\d+",  # MiB
    "ncpus": r"\d+",
    # Without it the guest has kmemleak=off, because kmemleak halves the speed.
    "kmemleak": r"on",
    # The test runs as few rounds in the long set as in the fast set.
    "LONG": r"",
    "GAPS": r"\d+",
    "PERSONALITY": r"\w+",
    "CM": r"ib",
    "DMA_BITS": r"\d+",
    "log_buf_len": r"\d+M",
    # A second guest, which runs the script of this name.
    "peer": r"\w+",
    # arm64 makes the default buffers 1 MiB for each GiB of memory, if it needs none: too few.
    "swiotlb": r"(\d+,)?force",
    # An ACPI table of QEMU, from the file of this name.
    "table": r"\w+",
}


class Refused(Exception):
    """An invalid header."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a test in a set. All tests of a guest have the same `Run.guest`."""

    test: str
    kind: str
    kernel: str
    set: str
    parameters: tuple  # of (name, value)
    deadline: int
    takes: float

    @property
    def guest(self):
        return self.kernel, self.kind, self.parameters

    @property
    def name(self):
        return f"{self.test}:{self.kind}"


def numbers(path, field, words, most):
    if not 1 <= len(words) <= most:
        raise Refused(f"{path.name}: {field}: {len(words)} numbers")
    for word in words:
        if not re.fullmatch(r"[1-9]\d*", word):
            raise Refused(f"{path.name}: {field}: {word}")
    return [int(word) for word in words]


def parameter(path, word):
    """Returns the values of a parameter as [(name, value)]."""
    name, _, value = word.partition("=")
    if (name, value) == ("PERSONALITY", "*"):
        return [(name, value) for value in PERSONALITIES]
    if name not in PARAMETERS or not re.fullmatch(PARAMETERS[name], value):
        raise Refused(f"{path.name}: runs: {word}")
    return [(name, value)]


def combinations(path, words):
    """Returns the (kind, kernel, set, parameters) of a line `runs`."""
    axes = {"kind": [], "kernel": [], "set": []}
    parameters = {}
    for word in words:
        if "=" in word:
            values = parameter(path, word)
            if values[0][0] in parameters:
                raise Refused(f"{path.name}: runs: {word} twice")
            parameters[values[0][0]] = values
            continue
        for axis, known in ("kind", KINDS), ("kernel", KERNELS), ("set", SETS):
            if word in known:
                if word in axes[axis]:
                    raise Refused(f"{path.name}: runs: {word} twice")
                axes[axis].append(word)
                break
        else:
            raise Refused(f"{path.name}: runs: {word}")
    for axis, values in axes.items():
        if not values:
            raise Refused(f"{path.name}: runs: no {axis} in '{' '.join(words)}'")
    return itertools.product(*axes.values(), itertools.product(*parameters.values()))


def runs(path):
    """Returns the runs of the test in this file, in the order of its header."""
    fields = {"deadline": [], "takes": [], "runs": []}
    # The description comes first, up to an empty comment.
    comment = itertools.takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    for line in itertools.dropwhile(lambda line: line != "#", comment):
        if line == "#":
            continue
        field, _, words = line.removeprefix("# ").partition(":")
        if field not in fields:
            raise Refused(f"{path.name}: {field}")
        fields[field].append(words.split())
    for field in "deadline", "takes":
        if len(fields[field]) != 1:
            raise Refused(f"{path.name}: {len(fields[field])} lines with {field}")
    if not fields["runs"]:
        raise Refused(f"{path.name}: no line with runs")
    deadlines = numbers(path, "deadline", fields["deadline"][0], 2)
    (takes,) = numbers(path, "takes", fields["takes"][0], 1)
    found = {}
    for words in fields["runs"]:
        for kind, kernel, which, parameters in combinations(path, words):
            # The fast set ignores LONG.
            if which == "fast":
                parameters = [p for p in parameters if p[0] != "LONG"]
            rounds = which == "long" and ("LONG", "") not in parameters
            deadline = deadlines[-1 if rounds else 0]
            expected = takes * deadline / deadlines[0]
            run = Run(path.stem, kind, kernel, which, tuple(sorted(parameters)), deadline, expected)
            if (run.guest, which) in found:
                raise Refused(f"{path.name}: runs: '{' '.join(words)}' repeats {kind} {kernel} {which}")
            found[run.guest, which] = run
    return list(found.values())


def every(tests=TESTS):
    """Returns the runs of all tests, ordered by the tests' numbers."""
    return [run for path in sorted(tests.glob("[0-9][0-9]-*.sh")) for run in runs(path)]


def of_series(found, series):
    """Returns those of the runs that this series has. The only kernel of Debian 13's own series is its `stock`."""
    if series != OWN:
        return [run for run in found if run.kernel != OWN]
    return [dataclasses.replace(run, kernel="stock") for run in found if run.kernel == OWN]
