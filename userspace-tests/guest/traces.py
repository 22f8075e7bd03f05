#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""traces.py TRACE RULE...: checks the trace events of ib_srp.

With any rules, an abort must use the channel that sent the command.

whole         every command was sent, answered, invalidated if its data was registered, and done,
              once each; no other command has events
ended         every command that was sent is done, once
ways=A,B      data used each of these paths
midlayer      as many commands were sent as the midlayer dispatched, except those that it got back
asked=N       there was a task management request of function N
task=N        the same, and its response status was 0
WHAT=TEXT     an event srp_WHAT contains TEXT
"""

import collections
import re
import sys

path, *rules = sys.argv[1:]
commands = collections.defaultdict(list)
others = collections.defaultdict(list)
STEPS = ("send", "response", "invalidate", "done")

with open(path) as f:
    for line in f:
        if line.startswith("#"):
            if m := re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", line):
                if m[1] != m[2]:
                    sys.exit(f"events were lost: {line}")
            continue
        if "LOST" in line:
            sys.exit(f"events were lost: {line}")
        m = re.search(r"\s([\d.]+): (\w+): (.*)", line)
        event = m[2].removeprefix("srp_")
        if event in STEPS:
            fields = dict(w.split("=") for w in m[3].split())
            key = fields["host"], fields["tag"]
            # Another session of this host may use the same tag.
            if event == "send" and commands[key] and commands[key][-1][0] == "done":
                commands[*key, len(commands)] = commands.pop(key)
            commands[key].append((event, fields))
        else:
            others[event].append(m[3])


def bad(key, steps, why):
    sys.exit(f"command {key}: {why}: {', '.join(s for s, _ in steps)}")


def check(key, steps, whole):
    count = collections.Counter(s for s, _ in steps)
    order = [s for s, _ in steps]
    if count["send"] != 1 or count["done"] != 1 or max(count.values()) > 1:
        bad(key, steps, "lost or completed twice")
    if order.index("send") > order.index("done"):
        bad(key, steps, "wrong order")
    if not whole:
        return None
    fields = dict(steps)
    way = fields["send"]["way"]
    if order != [s for s in STEPS if s != "invalidate" or way == "dynamic"]:
        bad(key, steps, f"wrong order for data {way}")
    if (int(fields["send"]["segments"]) > 0) != (way == "dynamic"):
        bad(key, steps, f"{way} with {fields['send']['segments']} regions")
    tag = int(key[1], 16)
    if tag >> 16 & 0xFFFF != int(fields["send"]["channel"]) or fields["response"]["result"] != fields["done"]["result"]:
        bad(key, steps, f"other fields: {fields}")
    return way


for request in others["task"]:
    fields = dict(w.split("=") for w in request.split())
    if int(fields["function"], 16) == 1 and int(fields["task_tag"], 16) >> 16 & 0xFFFF != int(fields["channel"]):
        sys.exit(f"an abort on another channel: {request}")

ways = collections.Counter()
for rule in rules:
    what, _, text = rule.partition("=")
    if what in ("whole", "ended"):
        if not commands and (what == "ended" or "task" not in {r.partition("=")[0] for r in rules}):
            sys.exit("no command")
        for key, steps in commands.items():
            ways[check(key, steps, what == "whole")] += 1
    elif what == "ways":
        if missing := set(text.split(",")) - set(ways):
            sys.exit(f"no data went {missing}: {ways}")
    elif what == "midlayer":
        dispatched, back = others["scsi_dispatch_cmd_start"], others["scsi_dispatch_cmd_error"]
        if len(commands) != len(dispatched) - len(back):
            sys.exit(f"{len(commands)} commands sent, {len(dispatched)} dispatched, {len(back)} of them given back")
    elif what == "asked":
        if not any(f" function={text} " in t for t in others["task"]):
            sys.exit(f"requests {others['task']}")
    elif what == "task":
        tags = [m[1] for t in others["task"] if (m := re.search(rf"tag=(\w+) function={text} ", t))]
        if not tags or not any(f"tag={tags[0]} status=0" in d for d in others["task_done"]):
            sys.exit(f"requests {others['task']}, answers {others['task_done']}")
    elif not any(text in line for line in others[what]):
        sys.exit(f"no event srp_{what} with '{text}': {others[what]}")
print(f"{len(commands)} commands, {dict(ways)}, {', '.join(f'{len(v)} {k}' for k, v in others.items())}")
