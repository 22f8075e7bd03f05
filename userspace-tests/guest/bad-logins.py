#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bad-logins.py ADD_TARGET TABLE NAMED: writes every string of TABLE (string, errno, text; separated by tabs) to
ADD_TARGET and expects that errno and, if NAMED is 1, exactly one new line of ib_srp in the kernel log, which contains
the text. Prints all failures, then the number of strings."""
import ctypes, errno, os, re, sys, time

path, table, named = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
libc = ctypes.CDLL(None, use_errno=True)

def plain(text):
    """Expands escapes as printf %b does, to bytes."""
    esc = {"n": b"\n", "t": b"\t", "\\": b"\\", "r": b"\r", "a": b"\a", "b": b"\b", "0": None}
    out, i = b"", 0
    for m in re.finditer(r"\\x([0-9a-fA-F]{1,2})|\\0([0-7]{1,3})|\\(.)|([^\\]+|\\$)", text):
        if m[1]:
            out += bytes([int(m[1], 16)])
        elif m[2]:
            out += bytes([int(m[2], 8)])
        elif m[3]:
            out += esc.get(m[3]) or b"\\" + m[3].encode()
        else:
            out += m[4].encode()
    return out

log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
os.lseek(log, 0, os.SEEK_END)

def lines():
    """Returns the new lines of the log, with the escapes of /dev/kmsg (\\xNN) decoded."""
    out = []
    while True:
        try:
            record = os.read(log, 8192)
        except BlockingIOError:
            return out
        except BrokenPipeError:
            continue
        text = record.split(b"\n")[0].partition(b";")[2]
        out.append(re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), text))

def state():
    return sorted(os.listdir("/sys/class/scsi_host")), sorted(os.listdir("/sys/class/infiniband_srp"))

count = wrong = 0
before = state()
for row in open(table, encoding="utf-8"):
    row = row.rstrip("\n")
    if not row or row.startswith("# "):
        continue
    string, name, token = row.split("\t")
    data, token = plain(string), plain(token)
    lines()
    fd = os.open(path, os.O_WRONLY)
    buf = ctypes.create_string_buffer(data, len(data) + 1)
    ctypes.set_errno(0)
    n = libc.write(fd, buf, len(data))
    got = errno.errorcode.get(ctypes.get_errno(), "?") if n < 0 else f"accepted {n} of {len(data)} bytes"
    os.close(fd)
    said = [l for l in lines() if b"ib_srp" in l]
    for _ in range(20):
        if said or not named:
            break
        time.sleep(0.02)
        said = [l for l in lines() if b"ib_srp" in l]
    bad = []
    if got != name:
        bad.append(f"got {got}, wanted {name}")
    if named and len(said) != 1:
        bad.append(f"{len(said)} log lines")
    if named and not any(token in l for l in said):
        bad.append(f"no log line with {token!r}, but {said!r}")
    if state() != before:
        bad.append("sysfs changed")
        before = state()
    count += 1
    if bad:
        wrong += 1
        print(f"{string[-100:]!r}: {'; '.join(bad)}")
print(f"{count} strings, {wrong} wrong")
sys.exit(wrong != 0)
