#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""reasons.py SOURCE: checks that docs/troubleshooting.md explains each message of the driver in the kernel log.

Messages are the strings of rust/ that have words, with any text for {}. Text after a semicolon, or that starts like
advice, is exempt.
"""

import pathlib
import re
import sys

top = pathlib.Path(sys.argv[1])
# Files with strings that are not messages: descriptions of error numbers, build-time messages, MODULE_INFO, names of
# attributes, texts of KUnit tests.
NOT_SAID = {"rust/kernel/check.rs", "rust/kernel/compat/errno.rs", "rust/kernel/sysfs/attribute.rs"}
# The test device is not part of the driver.
VFAB = "rust/ib_vfab"
NO_REASON = {
    "The srp-rs authors",
    "InfiniBand SCSI RDMA Protocol initiator",
    "{} target {}",
    "InfiniBand SRP initiator",
}
# Errors of building a command. They reach the log only as an error number.
BUILD_ERROR = {
    "{need} bytes do not fit into {have}",
    "CDB of {len} bytes",
    "{n} descriptors",
    "wrong data length or direction",
}
ADVICE = re.compile(r"(check|see|set|try again|log in at|the two hosts|the target still|the target lacks)\b")
# Prefixes that are explained once, in front of a table.
PREFIX = re.compile(r"^(\{\}:)* ?(login refused: |reconnect failed: )?(?=.*[a-z])")
STRING = re.compile(r'([bc]?)"((?:[^"\\]|\\.)*)"', re.S)


def source():
    for file in sorted(top.glob("rust/**/*.rs")):
        name = str(file.relative_to(top))
        if (
            name in NOT_SAID
            or name.startswith(VFAB)
            or "standalone" in name
            or "/tests" in name
            or name.endswith("/bench.rs")
        ):
            continue
        text = re.split(r"#\[cfg\(SRP_KUNIT\)\]\s*mod tests \{", file.read_text())[0]
        text = re.sub(r"//[^\n]*", "", text)
        for m in STRING.finditer(text):
            said = re.sub(r"\\\n\s*", "", m[2]).removesuffix("\\n")
            words = re.sub(r"\{[^}]*\}", "", said).strip()
            if not m[1] and " " in words and said not in NO_REASON | BUILD_ERROR and not ADVICE.match(said):
                yield name, said


page = (top / "docs/troubleshooting.md").read_text()
told = re.findall(r"`([^`]+)`", page)
told = [re.sub(r"\s+", " ", t) for t in told]
bad = total = 0
for name, said in source():
    total += 1
    reason = PREFIX.sub("", said.split(";")[0]).rstrip(": ")
    parts = [re.escape(p) for p in re.split(r"\{[^}]*\}", reason)]
    pattern = re.compile(r"(?<!\w)" + ".+".join(parts) + r"(?!\w)")
    if not any(pattern.search(t) for t in told):
        print(f"{name}: not in docs/troubleshooting.md: {said}")
        bad += 1
verdict = f"{bad} of them not explained" if bad else "each explained"
print(f"reasons: {total} of the log, {verdict}")
sys.exit(bad > 0)
