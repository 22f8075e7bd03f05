#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# PREEMPT_RT: a real-time thread that polls a channel must not spin while a task that it has preempted polls the same
# channel. The task inherits the priority of the thread.
#
# deadline: 240
# takes: 129
# runs: rxe rt fast long LONG=
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "the C driver has no poll_queues"
realtime || fail "this kernel has no PREEMPT_RT: $(uname -v)"
parameter=/sys/module/ib_srp/parameters/poll_queues
cpus=/sys/devices/virtual/workqueue/cpumask
boosts=/sys/kernel/tracing/instances/boosts
read -r all <$cpus
undo() { rmdir $boosts; echo 0 >$parameter; echo $all >$cpus; }

fabric 1
back_null disk 64
target 0
lun 0 0 disk
echo 1 >$parameter || fail "poll_queues"
login 0 ,ch_count=1
dev=$(disk "$host" 0)
udevadm settle -t 10
quiet $dev
# CPU 0 runs the device and the target, CPU 1 the real-time thread. The other pollers may run on both: soft RoCE can
# wait for a lock that one of them holds, while the real-time thread spins for soft RoCE and keeps that one from CPU 1.
echo 1 >$cpus || fail "the CPUs of work queues"

# polled NAME CPUS PREFIX... -- fio-option...: random reads on these CPUs.
polled() {
	local as=$1 on=$2 prefix=()
	shift 2
	while [ "$1" != -- ]; do prefix+=("$1"); shift; done
	"${prefix[@]}" fio --allow_file_create=0 --eta=never --filename=$dev --ioengine=io_uring --hipri=1 --direct=1 \
		--rw=randread --bs=4k --time_based --cpus_allowed=$on --output-format=json --name=$as --output=$tmp/$as "${@:2}"
}
rounds 10 60
seconds=$rounds
# Records the stack of each priority inheritance.
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing ||
	fail "no trace events in this kernel"
mkdir $boosts
echo 1 >$boosts/options/stacktrace
echo 'comm == "fio"' >$boosts/events/sched/sched_pi_setprio/filter
echo 1 >$boosts/events/sched/sched_pi_setprio/enable
polled other 0-1 -- --numjobs=2 --iodepth=4 --runtime=$((seconds + 10)) &
other=$!
within 30 "I/O on $dev" not nothing_in_flight $dev
polled realtime 1 chrt -f 50 -- --iodepth=1 --thinktime=1000 --thinktime_blocks=1 --runtime=$seconds &
realtime=$!
reap $((seconds + 40)) "the reads of the real-time thread" $realtime ||
	fail "fio of the real-time thread: $(cat $tmp/realtime)"
reap 60 "the other reads" $other || fail "fio: $(cat $tmp/other)"
# job NAME: prints the number of reads that fio counted, and the median and maximum latency in us.
job() {
	python3 -c '
import json, sys
text = open(sys.argv[1]).read()
read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
lat = read["clat_ns"]
print(read["total_ios"], lat.get("percentile", {}).get("50.000000", 0) // 1000, lat["max"] // 1000)' $tmp/$1
}
read -r reads median longest < <(job realtime)
read -r others _ < <(job other)
cat $boosts/trace >$tmp/boosts
lent=$(grep -c poll_callback $tmp/boosts)
say "$reads reads of the real-time thread: median $median us, longest $longest us;" \
	"$others other reads; $lent polls lent their priority"
[ "$reads" -gt 50 ] && [ "$others" -gt 50 ] || fail "the two threads hardly met"
[ $lent -gt 0 ] || fail "no poll lends its priority: $(tail -n 40 $tmp/boosts)"
logout "$host"
ok "$kind"
