#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""pages.py SOURCE: checks that the tree has what the developer pages name.

It checks each file in backticks or in a drawing, each Type::member, and each make target. A comment before a drawing
selects more checks: `types` (each capitalised name is a type in rust/), `functions` (each name() is a function there),
`enum A, enum B of FILE` (its names are exactly the variants of these)."""

import pathlib
import re
import sys

top = pathlib.Path(sys.argv[1])
DOCS = "access adapters architecture boot fabric features from-source kernels papers performance security testing"
DOCS += " upstreaming vfab"
PAGES = ["README.md", "CONTRIBUTING.md", "storage/README.md", *(f"docs/{p}.md" for p in DOCS.split())]
# Files of the kernel, or made by a build.
ELSEWHERE = re.compile(
    r"(/|~|build/|drivers/|kernel/|arch/|lib/|include/(rdma|linux|scsi)/|ib_srp\.ko|multipath\.conf)"
)
FILE = re.compile(r"[\w.@*-]*(?:/[\w.@*-]*)*(?:\.(?:rs|sh|py|c|h|md|tsv|config|patch|conf)|/)")
NAME = re.compile(r"\b[A-Z][a-z]\w*")

files = [
    str(f.relative_to(top)) for f in top.rglob("*") if not {".git", "build", "target"} & set(f.relative_to(top).parts)
]
paths = [f"/{f}/" if (top / f).is_dir() else f"/{f}" for f in files]
rust = "\n".join(
    re.sub(r"//[^\n]*", "", (top / f).read_text()) for f in files if f.startswith("rust/") and f.endswith(".rs")
)
types = set(re.findall(r"\b(?:struct|enum|trait|union|type|mod)\s+(\w+)", rust))
functions = set(re.findall(r"\bfn\s+(\w+)", rust))
words = set(re.findall(r"\w+", rust))
targets = set(re.search(r"^\.PHONY: (.*)", (top / "Makefile").read_text(), re.M)[1].split())
bad, checked = [], 0


def check(page, what, known):
    global checked
    checked += 1
    if not known:
        bad.append(f"{page}: {what}")


def is_file(name):
    pattern = re.compile(".*/" + re.escape(name).replace(r"\*", "[^/]*") + "$")
    return any(pattern.match(path) for path in paths)


def variants(name, file):
    body = re.search(rf"\benum {name} \{{(.*?)^\}}", re.sub(r"//[^\n]*", "", (top / file).read_text()), re.S | re.M)[1]
    return set(re.findall(r"^    ([A-Z]\w*)", body, re.M))


def drawing(page, marker, text):
    if marker == "types":
        for name in NAME.findall(text):
            check(page, f"no type {name}", name in types)
    elif marker == "functions":
        for name in re.findall(r"(\w+)\(\)", text):
            check(page, f"no function {name}", name in functions)
        for name in FILE.findall(text):
            check(page, f"no file {name}", is_file(name))
    else:
        names, file = marker.split(" of ")
        known = set.union(*(variants(name.split()[1], file) for name in names.split(", ")))
        for name in known ^ set(NAME.findall(text)):
            check(page, f"{name} is not both in the drawing and a variant in {file}", False)
        check(page, marker, known)


for page in PAGES:
    text = (top / page).read_text()
    blocks = re.findall(r"(?:<!-- checked: (.*?) -->\n)?```\w*\n(.*?)```", text, re.S)
    if len(re.findall("<!-- checked:", text)) != sum(bool(marker) for marker, _ in blocks):
        bad.append(f"{page}: a comment without a drawing")
    for marker, block in blocks:
        if marker:
            drawing(page, marker, block)
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for one in quoted:
        if FILE.fullmatch(one) and not ELSEWHERE.match(one):
            check(page, f"no file {one}", is_file(one))
        if m := re.fullmatch(r"(?:\w+::)*([A-Z]\w*)::(\w+)(?:\(\))?", one):
            check(page, f"no {one}", m[1] in types and m[2] in words)
    for line in re.findall(r"^    (rust/.*)", text, re.M):
        for name in FILE.findall(line):
            check(page, f"no file {name}", "/" not in name[:-1] or is_file(name))
    for target in re.findall(r"`(?:\w+=\S+ )*make ([a-z][a-z-]*)", text):
        check(page, f"no target {target} of make", target in targets)

print("\n".join(bad))
verdict = f"{len(bad)} of them not in the tree" if bad else "each in the tree"
print(f"pages: {checked} names and files, {verdict}")
sys.exit(bool(bad))
