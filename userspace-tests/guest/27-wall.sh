#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# `make bench MODE=wall`, as on a machine with an adapter: two rounds of two points, a table with confidence intervals,
# and a page. If it refuses to run, it changes nothing.
#
# deadline: 300
# takes: 87
# runs: rxe kasan long
# runs: rxe stock long
# runs: rxe 6.12 long LONG=
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
cp /srp/{measure,peers,cores,wall,counts,ratios,page}.py $tmp/tree/userspace-tests/bench
wall() { env MODE=wall DEVICE=rxe0/1 LOGIN="$(login_string 0)" "$@" bash $tmp/tree/ci/bench.sh >$tmp/out 2>$tmp/err; }
refused() {
	local words=$1
	shift
	if wall "$@"; then fail "$*: not refused"; fi
	grep -q -- "$words" $tmp/err || fail "$*: $(cat $tmp/err)"
	same || fail "$*: the disk has been written to"
	[ ! -e $tmp/tree/build/bench/wall.tsv ] || fail "$*: there are figures"
}
refused 'say OVERWRITE=1'
refused 'wants DEVICE=' DEVICE= OVERWRITE=1
refused 'wants DEVICE=' LOGIN= OVERWRITE=1
refused 'no RDMA port rxe7/1' DEVICE=rxe7/1 OVERWRITE=1
refused 'no RDMA port rxe0/2' DEVICE=rxe0/2 OVERWRITE=1
refused 'ONLY=8k-\* matches no point' ONLY='8k-*' OVERWRITE=1
refused "ISER=node: it wants" ISER=node OVERWRITE=1
refused 'the disk of NVME: say OVERWRITE=1' NVME=traddr=192.0.2.1
loaded ib_srp || fail "the module has gone"
[ -z "$(hosts)" ] || fail "it has logged in"

# The bench replaces the driver. If it stops early, either driver may be loaded.
exchanged=1
clock; since=$now
wall OVERWRITE=1 ROUNDS=2 SECONDS_EACH=1 ONLY='4k-write-d1,4k-read-d16'
status=$?
# Two rounds are too few for the verdict.
[ $status = 3 ] || {
	# Without CPU time for a second there are no results.
	clock
	exceeded 1000000 $since $now "the bench: $status, $(tail -n 5 $tmp/err | tr '\n' ';') $(tail -n 5 $tmp/out)"
}
cat $tmp/out
# Two points, three turns, twice, at least 1 s each.
clock; until=$now
[ $((until - since)) -ge 12000000 ] || fail "it took only $(ms $((until - since)))"
same && fail "nothing was written"
python3 -B - $tmp/tree/build/bench/wall $tmp/out $(nproc) >$tmp/lacking <<'EOF' || fail \
	"the figures are wrong: $(<$tmp/lacking)"
import collections, json, sys
out, said, cpus = sys.argv[1:]
runs = collections.defaultdict(list)
with open(f"{out}.disk") as f:
    lines = [json.loads(line) for line in f]
for line in lines:
    if line["kind"] == "run":
        runs[line["point"], line["peer"]].append(line)
names = {(point, peer) for point in ("4k-read-d16", "4k-write-d1") for peer in ("ours", "c", "control")}
assert set(runs) == names and all(len(those) == 2 for those in runs.values()), list(runs)
with open(f"{out}.tsv") as f:
    text = [line for line in f if not line.startswith("#")]
rows = {tuple(row.split("\t")[1:3]): dict(zip(text[0].split("\t"), row.split("\t"))) for row in text[1:]}
assert set(rows) == names, list(rows)
for (point, peer), those in runs.items():
    row, depth = rows[point, peer], int(point.rpartition("-d")[2]) * int(cpus)
    for line in those:
        # fio's histogram has each I/O, except those at the edge of the ramp, and this many are in flight at most.
        ios = sum(line["bins"].values())
        assert abs(ios - line["ios"]) <= depth, (point, peer, ios, line["ios"])
        mean = sum(int(ns) * n for ns, n in line["bins"].items()) / ios / 1e9
        assert line["iops"] * mean < 1.1 * depth + 1, (point, peer, line["iops"], mean)
        # The time without I/O. fio submits nothing while it waits for a CPU; at depth 1 it mostly waits.
        if (lacking := 0.2 - line["iops"] * mean / depth) >= 0:
            print(int(lacking * 1e6) + 1, point, line["iops"], mean)
    assert abs(float(row["iops"]) - sum(line["iops"] for line in those) / 2) <= 1, (row, those[0]["iops"])
    assert 0 < float(row["p50_us"]) <= float(row["p99_us"]) and float(row["cpu_us"]) > 0, row
    if peer != "ours":
        by_round = {n["round"]: n["iops"] for n in runs[point, "ours"]}
        mean = 1
        for line in those:
            mean *= (by_round[line["round"]] / line["iops"]) ** 0.5
        assert abs(float(row["ours/peer"]) - mean) < 0.001, (row, mean)
        assert float(row["low"]) <= mean + 0.001 and float(row["high"]) >= mean - 0.001, row
with open(said) as f, open(f"{out}.txt") as g:
    page = g.read()
    assert page in f.read(), "the page is not what it prints"
assert "TOO NOISY" in page and "c: ib_srp" in page and "scheduler" in page, page
EOF
while read -r lacking what; do exceeded $lacking $since $until "too few commands in flight: $what"; done <$tmp/lacking
[ -z "$(hosts)" ] || fail "a login is left"
load_srp
clean
ok
