#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""marks.py SOURCE: measures what a review of the tree can count: size, names, pages, history.

A statement is a line of code that is neither an import nor only brackets. Tests are left out."""

import collections
import pathlib
import re
import subprocess
import sys

top = pathlib.Path(sys.argv[1])
rust = top / "rust"
IMPORT = re.compile(r"(pub(\([^)]*\))?\s+)?(use|mod)\s")
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+\w+", re.M)
PAGES = sorted(p for p in [*top.glob("*.md"), *top.glob("docs/*.md")])


def code(file):
    """Returns the lines of code of a file, without its tests."""
    text = re.split(r"#\[cfg\(SRP_KUNIT\)\]\s*(?:#\[.*\]\s*)?mod tests", file.read_text())[0]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = (re.sub(r"(^|\s)//.*$", "", line).strip() for line in text.split("\n"))
    return [line for line in lines if line]


def statements(lines):
    count = importing = 0
    for line in lines:
        if importing or IMPORT.match(line):
            importing = not line.endswith(";")
        elif not re.fullmatch(r"[\s(){}\[\];,]+", line):
            count += 1
    return count


def size(folder):
    files = [f for f in folder.rglob("*.rs") if "tests" not in f.relative_to(folder).with_suffix("").parts]
    lines = {f: code(f) for f in files}
    names = collections.Counter(f.name for f in files)
    return {
        "files": len(files),
        "statements": sum(map(statements, lines.values())),
        "types": sum(len(TYPE.findall("\n".join(text))) for text in lines.values()),
        "file names that stand twice": sum(n - 1 for n in names.values() if n > 1),
    }


def history(commits=40):
    """Counts properties of the last commits; none without a repository."""
    log = subprocess.run(
        ["git", "-C", top, "log", f"-{commits}", "--format=%s%x00%b%x01"], capture_output=True, text=True
    )
    entries = [e.strip("\n").split("\0") for e in log.stdout.split("\x01") if "\0" in e]
    return {
        "commits": len(entries),
        "subjects of more than 72 columns": sum(len(s) > 72 for s, _ in entries),
        "commits with a body": sum(bool(b.strip()) for _, b in entries),
    }


def main():
    for name, value in size(rust / "ib_srp/srp").items():
        print(f"rust/ib_srp/srp: {name}: {value}")
    unsafe = sum(len(re.findall(r"\bunsafe\s*(?:\{|impl)", "\n".join(code(f)))) for f in rust.rglob("*.rs"))
    print(f"rust: unsafe blocks and implementations: {unsafe}")
    wide = sum(len(line) > 100 for f in rust.rglob("*.rs") for line in f.read_text().split("\n"))
    print(f"rust: lines of more than 100 columns: {wide}")
    for page in PAGES:
        print(f"{page.relative_to(top)}: words: {len(page.read_text().split())}")
    for name, value in history().items():
        print(f"history: {name}: {value}")


main()
