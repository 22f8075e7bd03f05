#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# `make bench MODE=wall`, as on a machine with an adapter: two rounds of three workloads, a table with confidence
# intervals, wall.json. If it refuses to run, it changes nothing.
#
# deadline: 300
# takes: 87
# runs: rxe kasan fast
# runs: rxe stock long
. "$(dirname "$0")/lib.sh"

begin
# The bench also needs the C driver.
c=(/lib/modules/$(uname -r)/kernel/drivers/infiniband/ulp/srp/ib_srp.ko*)
[ -e "${c[0]}" ] || skip "this kernel has no C ib_srp"
fabric 1
target 0
back_null disk 64
lun 0 0 disk
dd if=/dev/urandom of=$tmp/before bs=1M count=64 status=none
dd if=$tmp/before of="${backdev[disk]}" bs=1M oflag=direct status=none || fail "cannot fill the disk"
# same: returns whether the disk is unchanged. Bypasses the page cache, which does not see the target's writes.
same() { dd if="${backdev[disk]}" bs=1M iflag=direct status=none | cmp -s $tmp/before -; }

mkdir -p $tmp/tree/ci $tmp/tree/userspace-tests/bench
cp /srp/bench.sh /srp/ci-lib.sh $tmp/tree/ci
mv $tmp/tree/ci/ci-lib.sh $tmp/tree/ci/lib.sh
cp /srp/{measure,report,counts}.py /srp/workloads.tsv $tmp/tree/userspace-tests/bench
wall() { env MODE=wall DEVICE=rxe0/1 LOGIN="$(login_string 0)" "$@" bash $tmp/tree/ci/bench.sh >$tmp/out 2>$tmp/err; }
refused() {
	local words=$1
	shift
	if wall "$@"; then fail "$*: not refused"; fi
	grep -q -- "$words" $tmp/err || fail "$*: $(cat $tmp/err)"
	same || fail "$*: the disk has been written to"
	[ ! -e $tmp/tree/build/bench/wall.json ] || fail "$*: there are figures"
}
refused 'say OVERWRITE=1'
refused 'wants DEVICE=' DEVICE= OVERWRITE=1
refused 'wants DEVICE=' LOGIN= OVERWRITE=1
refused 'no RDMA port rxe7/1' DEVICE=rxe7/1 OVERWRITE=1
refused 'no RDMA port rxe0/2' DEVICE=rxe0/2 OVERWRITE=1
loaded ib_srp || fail "the module has gone"
[ -z "$(hosts)" ] || fail "it has logged in"

# The bench replaces the driver. If it stops early, either driver may be loaded.
exchanged=1
clock; since=$now
wall OVERWRITE=1 ROUNDS=2 SECONDS_EACH=1 ONLY=4k-write-qd1,4k-read-qd16,16-luns-read,128k-write || {
	# Without CPU time for a second there are no results.
	clock
	exceeded 1000000 $since $now "the bench: $(tail -n 5 $tmp/err | tr '\n' ';') $(tail -n 5 $tmp/out)"
}
cat $tmp/out
# Three workloads, two drivers, twice, at least 1 s each; 16 LUNs are skipped.
clock; until=$now
[ $((until - since)) -ge 12000000 ] || fail "it took only $(ms $((until - since)))"
same && fail "nothing was written"
python3 -B - $tmp/tree/build/bench/wall.json $tmp/out >$tmp/lacking <<'EOF' || fail \
	"the figures are wrong: $(<$tmp/lacking)"
import json, re, sys
with open(sys.argv[1]) as f:
    workloads = json.load(f)["workloads"]
io = {w: e for w, e in workloads.items() if not w.startswith("login")}
assert set(io) == {"4k-read-qd16", "4k-write-qd1", "128k-write"}, list(io)
with open(sys.argv[2]) as f:
    text = f.read()
with open(sys.argv[1].replace(".json", ".tsv")) as f:
    kept = {tuple(line.split("\t")[:3]): line.split()[3:] for line in f if not line.startswith("#")}
intervals = text.partition("95 % confidence intervals")[2]
for name, entry in io.items():
    drivers = {"c", "rust"} | ({"c255"} if name == "128k-write" else set())
    assert set(entry["drivers"]) == drivers, (name, set(entry["drivers"]))
    for figures in entry["drivers"].values():
        for metric in ("iops", "latency", "p99", "mbs"):
            assert len(figures[metric]["rounds"]) == 2 and figures[metric]["min"] > 0, (name, metric, figures[metric])
        # This many I/Os are always in flight. The first of them are submitted up to one latency before the measured
        # second.
        depth = {"4k-read-qd16": 16, "4k-write-qd1": 1, "128k-write": 8}[name]
        for iops, latency in zip(figures["iops"]["rounds"], figures["latency"]["rounds"]):
            seconds = latency / 1e9
            assert iops * seconds < (1.1 + seconds) * depth, (name, iops, seconds)
            # The time without I/O: fio submits nothing while it waits for a CPU.
            if (lacking := 0.6 - iops * seconds / depth) >= 0:
                print(int(lacking * 1e6) + 1, name, iops, seconds)
    for variant in drivers - {"rust"}:
        title = name if variant == "c" else f"{name} {variant}"
        line = next(line for line in intervals.splitlines() if line.startswith(f"{title:22}"))
        low, high = map(float, re.search(r"iops (\S+)-(\d\S+)", line).groups())
        ratio = entry["ratios"][variant]["iops"]
        product = ratio["rounds"]
        mean = (product[0] * product[1]) ** 0.5
        assert low - 0.001 <= mean <= high + 0.001, (name, line, product)
        assert abs(ratio["mean"] - mean) < 1e-9, (name, ratio)
        assert abs(float(kept[name, variant, "iops"][2]) - mean) < 0.001, (name, kept[name, variant, "iops"], mean)
        assert abs(ratio["ci95"][0] - low) < 0.001 and abs(ratio["ci95"][1] - high) < 0.001, (name, line, ratio)
        # The first line of a metric is that of the table: C, ours, and the ratio.
        row = next(line for line in text.splitlines() if line.startswith(f"{title:22}")).split()
        assert abs(float(row[row.index(title.split()[-1]) + 3]) - mean) < 0.001, (row, mean)
EOF
while read -r lacking what; do exceeded $lacking $since $until "too few commands in flight: $what"; done <$tmp/lacking
[ -z "$(hosts)" ] || fail "a login is left"
load_srp
clean
ok
