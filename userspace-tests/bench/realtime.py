# SPDX-License-Identifier: GPL-2.0
"""realtime.py SECONDS: is busy for 0.3 of each millisecond, and prints how late it woke.
realtime.py <FILE: prints the latency in fio's JSON report."""

import json
import sys
import time


def cyclic(seconds):
    late, due = [], time.monotonic()
    end = due + seconds
    while due < end:
        due += 0.001
        time.sleep(max(due - time.monotonic(), 0))
        woke = time.monotonic()
        late.append((woke - due) * 1e6)
        while time.monotonic() < woke + 0.0003:
            pass
        due = max(due, time.monotonic() - 0.01)
    late.sort()
    print(f"the real-time thread woke {late[len(late) // 2]:.0f} us late (median), at most {late[-1]:.0f}")


def latency(text):
    job = json.loads(text[text.index("{") :])["jobs"][0]
    of = next(job[d] for d in ("read", "write") if job[d]["total_ios"])
    found = [int(v) // 1000 for v in of["lat_ns"]["percentile"].values()]
    print(of["total_ios"], "I/Os, 50, 99, 99.9, 99.99 %:", *found, "us, longest", of["lat_ns"]["max"] // 1000)


if len(sys.argv) > 1:
    cyclic(float(sys.argv[1]))
else:
    latency(sys.stdin.read())
