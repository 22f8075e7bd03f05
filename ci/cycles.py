#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""cycles.py SOURCE: checks that no noun of the module depends on itself through others, and no abstraction on a driver.

A noun is a file of rust/ or of a folder in NAMED, with all files below it. It depends on the nouns in its paths, by
`use` or in place; a re-export counts as its target. Tests are left out."""

import collections
import pathlib
import re
import sys

top = pathlib.Path(sys.argv[1]) / "rust"
# Directories that are not modules: each file in them is a module.
NAMED = {("srp",), ("srp", "front"), ("srp", "logic"), ("srp", "proto"), ("rdma",), ("scsi",), ("provider",), ("vfab",)}
# Folders whose files are modules at the root of a crate.
ROOMS = {"ib_srp", "ib_vfab", "kernel"}
USE = re.compile(r"(?<!\w)(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
# Module -> its source, without the tests at the end of the file.
files, names = {}, {}
for f in top.rglob("*.rs"):
    path = f.relative_to(top).with_suffix("").parts
    # Nothing uses the root of the test device, which uses everything. The root of the abstractions only names them.
    if (
        path[0] != "standalone"
        and path not in (("ib_vfab", "main"), ("kernel", "lib"))
        and not {"tests", "race"} & set(path)
    ):
        text = re.split(r"#\[cfg\(SRP_KUNIT\)\]\s*(?:#\[.*\]\s*)?mod tests \{", f.read_text())[0]
        file = {("ib_srp", "main"): (), ("bindings", "lib"): ("bindings",)}.get(path, path[path[0] in ROOMS:])
        files[file], names[file] = re.sub(r"//[^\n]*", "", text), f.relative_to(top.parent)


def paths(tree):
    """Returns the paths of a use tree, without spaces."""
    m = re.fullmatch(r"(.*?)\{(.*)\}", tree)
    if not m:
        return [tree.split(" as ")[0].strip()] if tree.strip() else []
    parts, depth = [""], 0
    for c in m[2]:
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [m[1].strip() + p for part in parts for p in paths(part.strip())]


def noun(file):
    return next((file[:n] for n in range(1, len(file)) if file[:n] not in NAMED), file)


uses = {
    file: [(bool(m[1]), p) for m in USE.finditer(text) for p in paths(re.sub(r"\s+", " ", m[2]))]
    for file, text in files.items()
}
exports = {file: {p.split("::")[-1]: p for public, p in of if public} for file, of in uses.items()}


def find(file, path, deep=0):
    """Returns the file that a path in `file` leads to, or None if it is not one of ours."""
    first, *names = path.split("::")
    at = file
    if first == "crate":
        at = ()
    elif first == "super":
        at = file[:-1]
    elif first != "self":
        names.insert(0, first)
        if file + (first,) not in files:
            return None
    while names and names[0] == "super":
        at, names = at[:-1], names[1:]
    while names and at + (names[0],) in files:
        at, names = at + (names[0],), names[1:]
    behind = exports.get(at, {}).get(names[0]) if names else None
    if behind and behind != path and deep < 5:
        return find(at, behind, deep + 1) or at
    return at


knows = collections.defaultdict(dict)
for file, text in files.items():
    in_place = re.findall(r"\b(?:crate|super|self)(?:::\w+)+", USE.sub("", text))
    for path in [p for public, p in uses[file] if not public] + in_place:
        to = find(file, path)
        if to and noun(to) != noun(file):
            knows[noun(file)].setdefault(noun(to), names[file])


def reach(start):
    seen, todo = set(), [start]
    while todo:
        for n in knows[todo.pop()]:
            if n not in seen:
                seen.add(n)
                todo.append(n)
    return seen


nouns = {noun(file) for file in files if file}
below = {n: reach(n) for n in nouns}
bad = sorted(n for n in nouns if n in below[n])
upward = [
    (file, to)
    for n in nouns
    for to, file in knows[n].items()
    if file.parts[1] == "kernel" and names[to].parts[1].startswith("ib_")
]
for file, to in upward:
    print(f"{file}: an abstraction knows {'/'.join(to)} of a driver")
for n in bad:
    for to, file in knows[n].items():
        if n in below[to]:
            print(f"{file}: {'/'.join(n)} knows {'/'.join(to)}, which knows it")
verdict = f"{len(bad)} of them in a cycle" if bad else "none in a cycle"
print(f"cycles: {len(nouns)} nouns, {verdict}")
sys.exit(bool(bad or upward))
