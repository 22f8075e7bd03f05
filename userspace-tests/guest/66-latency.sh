#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# srplat and srpslow attribute time to the right phase: a target with 200 ms of storage latency per read, and a disk
# that takes one command at a time. They report missing prerequisites.
#
# deadline: 900
# takes: 300
# runs: rxe stock long
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "the C driver has no events"
command -v bpftrace >/dev/null || fail "no bpftrace in this guest"
refuses() {
	local want=$1 said
	shift
	! said=$("$@" 2>&1) || fail "$*: no error"
	grep -q "$want" <<<"$said" || fail "$*: $said"
}
fabric 1
null_blk disk 64
modprobe -q dm_delay
dm create srp-slow --table "0 $((64 * 2048)) delay ${backdev[disk]} 0 200 ${backdev[disk]} 0 0" ||
	fail "no dm-delay in this kernel"
dm mknodes
backdev[slow]=/dev/mapper/srp-slow
iblock slow
target 0
lun 0 0 slow
login 0
dev=$(disk "$host" 0)
quiet $dev
mountpoint -q $tracing || mount -t tracefs tracefs $tracing
for p in srplat srpslow; do [[ $(/srp/$p -h) == *"usage: $p "* ]] || fail "no help from $p"; done
refuses "not a SCSI disk" /srp/srplat -d ${backdev[disk]}
refuses "how many milliseconds" /srp/srpslow
refuses "no option -x" /srp/srpslow -x 1
refuses "apt install bpftrace" env PATH=/srp/empty:/usr/bin/../sbin /bin/sh /srp/srplat

# bpftrace's compiler takes a second of CPU time, and much more on an emulated CPU.
/srp/srplat -d $dev >$tmp/lat 2>&1 & lat=$!
within 300 "srplat listens" or_ended $lat grep -q listening $tmp/lat
/srp/srpslow -d $dev 150 >$tmp/slow 2>&1 & slow=$!
within 300 "srpslow listens" or_ended $slow grep -q listening $tmp/slow
kill -0 $lat $slow || fail "srplat: $(cat $tmp/lat) srpslow: $(cat $tmp/slow)"
reads() { direct_io 100 $dev --rw=read "$@" || fail "fio: $(cat $tmp/fio)"; }
reads --bs=4k --iodepth=1 --size=48k
reads --bs=64k --iodepth=1 --size=512k
sleep 1
cp $tmp/slow $tmp/slow1
echo 1 >/sys/block/${dev#/dev/}/device/queue_depth
reads --rw=randread --bs=4k --iodepth=8 --size=64m --io_size=96k
sleep 1
tail -n +$(($(wc -l <$tmp/slow1) + 1)) $tmp/slow >$tmp/slow2
kill -INT $lat $slow
reap 30 "srplat" $lat || fail "srplat: $(cat $tmp/lat)"
reap 30 "srpslow" $slow || fail "srpslow: $(cat $tmp/slow)"
python3 - $tmp/lat $tmp/slow1 $tmp/slow2 <<'END' >$tmp/said 2>&1 || fail "$(cat $tmp/said $tmp/lat $tmp/slow)"
import re, sys
lat, slow1, slow2 = (open(f).read() for f in sys.argv[1:])
PHASES = ("queue", "prepare", "target", "finish")

def most(values, test, what):
    assert values and sum(map(test, values)) * 10 >= len(values) * 7, f"{what}: {values}"

hist = {}
for name, body in re.findall(r"@(\w+): *\n((?:\[.*\n)+)", lat):
    for low, unit, n in re.findall(r"^\[(\d+)([KM]?)\D.*?\)? +(\d+) \|", body, re.M):
        hist.setdefault(name, []).extend([int(low) * {"": 1, "K": 1 << 10, "M": 1 << 20}[unit] / 1000] * int(n))
most(hist["target"], lambda ms: ms >= 131, "srplat, target")
for phase in "prepare", "finish":
    most(hist[phase], lambda ms: ms < 65, f"srplat, {phase}")
lengths = {p: len(v) for p, v in hist.items()}
assert len({lengths[p] for p in (*PHASES, "whole")}) == 1 and lengths["target"] >= 40, lengths

def phases(text):
    lines = [l for l in text.splitlines() if " cdb 28" in l]
    return lines, {p: [float(re.search(rf" {p} ([\d.]+)", l)[1]) for l in lines] for p in PHASES}

lines, ms = phases(slow1)
assert len(lines) >= 20, len(lines)
most(ms["target"], lambda t: 200 <= t < 2000, "srpslow, target")
for phase in "queue", "prepare", "finish":
    most(ms[phase], lambda t: t < 100, f"srpslow, {phase}")
for bytes, way in (4096, "static"), (65536, "dynamic"):
    assert any(f" bytes {bytes} way {way} " in l for l in lines), f"{bytes} {way}"
# READ(10) of eight blocks from block 8 on.
assert any(" cdb 28000000000800000800000000000000 block 8 " in l for l in lines), lines[:3]
lines, ms = phases(slow2)
# A command that arrives when the disk is free overtakes waiting ones.
assert sum(t >= 200 for t in ms["queue"]) * 3 >= len(lines) >= 20, ms["queue"]
most(ms["prepare"], lambda t: t < 100, "srpslow, prepare, behind others")
print(f"{len(hist['target'])} commands")
END
say "$(cat $tmp/said)"
logout "$host"
dev=
clean
unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
refuses "ib_srp has no trace events" /srp/srplat
refuses "ib_srp has no trace events" /srp/srpslow 1
load_srp
ok "$kind"
