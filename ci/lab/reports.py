# SPDX-License-Identifier: GPL-2.0
"""Finds the lines of a kernel log that report a problem (userspace-tests/guest/lib/kernel-reports).

python3 -m lab.reports LINUX checks the patterns and both of their readers, this one and lib/log.sh. Each sample report
in userspace-tests/kernel-lines.tsv must match its format in the Linux source and be found. No ordinary line may be."""

import pathlib
import re
import subprocess
import sys

from . import TOP

TESTS = TOP / "userspace-tests"
# Output of programs in the guest has no time stamp and does not count.
STAMP = r"\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? .*?"
# A printk() conversion, a C escape, or literal text.
CONVERSION = re.compile(r"%%|%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh?|ll?|z|t)?(?:p[A-Za-z]*|[a-zA-Z])|\\.|[^%\\]+")
# Both formats of time stamps on the console.
STAMPS = ("[    1.234567] ", "[  123.456789][  T1234] ")


def lines_of(path):
    """Returns all lines except comments."""
    return [line for line in (TESTS / path).read_text().splitlines() if line and not line.startswith("#")]


def patterns():
    """Returns the patterns of reports, and those of harmless lines that look like one."""
    lines = lines_of("guest/lib/kernel-reports")
    return [p for p in lines if not p.startswith("! ")], [p[2:] for p in lines if p.startswith("! ")]


def reader():
    """Returns a function that tells whether a line of the console is a report."""
    bad, harmless = ("|".join(p) for p in patterns())
    bad, harmless = re.compile(f"{STAMP}(?:{bad})"), re.compile(harmless)
    return lambda line: bad.search(line) is not None and not harmless.search(line)


def made_by(form):
    """Returns a regular expression for the output of a printk() format."""
    escapes = {"%%": "%", "\\n": "", '\\"': '"'}

    def one(part):
        return re.escape(escapes.get(part, part)) if part in escapes or part[0] not in "%\\" else ".*"

    return "".join(map(one, CONVERSION.findall(form)))


def found_in_guest(lines):
    """Returns the lines that lib/log.sh finds."""
    command = ["bash", "-euc", 'here=$1; . "$1/lib/log.sh"; kernel_reports', "_", str(TESTS / "guest")]
    p = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if p.stderr:
        sys.exit(f"lib/log.sh: {p.stderr}")
    return set(p.stdout.splitlines())


def check(linux):
    is_report, bad = reader(), []
    rows = [line.split("\t") for line in lines_of("kernel-lines.tsv")]
    samples, ordinary = [r for r in rows if len(r) == 3], [r[0] for r in rows if len(r) == 1]
    wanted = {stamp + row[-1]: len(row) == 3 for row in rows for stamp in STAMPS}
    in_guest = found_in_guest(wanted)
    for text, report in wanted.items():
        for name, found in ("lab.reports", is_report(text)), ("lib/log.sh", text in in_guest):
            if found != report:
                bad.append(f"{name}: {'no report' if report else 'a report'}: {text}")
    for file, form, line in samples:
        if file != "-" and form not in (linux / file).read_text(errors="replace"):
            bad.append(f"{file} has no format {form!r}")
        if not re.search(made_by(form), line):
            bad.append(f"{form!r} does not make: {line}")
        if is_report(line):
            bad.append(f"lab.reports: a report without a time stamp: {line}")
    reports, harmless = patterns()
    fits = [[p for p in reports if re.search(p, line)] for _, _, line in samples]
    bad += [f"kernel-reports: no sample needs {p!r}" for p in reports if [p] not in fits]
    bad += [f"kernel-reports: no line needs {p!r}" for p in harmless if not any(re.search(p, o) for o in ordinary)]
    good = f"reports: {len(samples)} samples found by both readers, {len(ordinary)} other lines by none"
    print("\n".join(bad) or good)
    return 1 if bad or not samples or not ordinary else 0


if __name__ == "__main__":
    sys.exit(check(pathlib.Path(sys.argv[1])))
