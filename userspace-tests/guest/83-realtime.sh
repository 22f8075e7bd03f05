#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# PREEMPT_RT: a real-time thread that polls a channel does not spin for a task that it has preempted in the middle of a
# poll of that channel. The task gets its priority.
. "$(dirname "$0")/lib.sh"

begin 240
rust_driver || skip "the C driver has no poll_queues"
realtime || fail "this kernel has no PREEMPT_RT: $(uname -v)"
parameter=/sys/module/ib_srp/parameters/poll_queues
cpus=/sys/devices/virtual/workqueue/cpumask
share=/sys/kernel/debug/sched/fair_server/cpu1/runtime
read -r all <$cpus
read -r reserved <$share || fail "this kernel reserves no time for other tasks"
undo() { echo $reserved >$share; echo 0 >$parameter; echo $all >$cpus; }

fabric 1
back_null disk 64
target 0
lun 0 0 disk
echo 1 >$parameter || fail "poll_queues"
login 0 ,ch_count=1
dev=$(disk "$host" 0)
udevadm settle -t 10
quiet $dev
# CPU 0 has the device and the target, CPU 1 the two that poll.
echo 1 >$cpus || fail "the CPUs of work queues"

# polled NAME PREFIX... -- fio-option...: random reads on CPU 1.
polled() {
	local as=$1 prefix=()
	shift
	while [ "$1" != -- ]; do prefix+=("$1"); shift; done
	"${prefix[@]}" fio --allow_file_create=0 --eta=never --filename=$dev --ioengine=io_uring --hipri=1 --direct=1 \
		--rw=randread --bs=4k --time_based --cpus_allowed=1 --output-format=json --name=$as --output=$tmp/$as "${@:2}"
}
rounds 10 60
seconds=$rounds
# Without the time that the scheduler reserves for other tasks, a thread that spins for one does so without an end, and
# the kernel reports an RCU stall.
echo 0 >$share || fail "the time for other tasks"
polled other -- --iodepth=4 --runtime=$((seconds + 10)) &
other=$!
within 30 "I/O on $dev" not nothing_in_flight $dev
from=${EPOCHREALTIME/./}
polled realtime chrt -f 50 -- --iodepth=1 --thinktime=3000 --thinktime_blocks=1 --runtime=$seconds &
realtime=$!
reap $((seconds + 40)) "the reads of the real-time thread" $realtime || fail "fio of the real-time thread: $(cat $tmp/realtime)"
to=${EPOCHREALTIME/./}
reap 60 "the other reads" $other || fail "fio: $(cat $tmp/other)"
# job NAME: how many reads fio counts, the median and the longest in us.
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
say "$reads reads of the real-time thread: median $median us, longest $longest us; $others other reads"
[ "$longest" -le 5000000 ] || exceeded $((longest - 5000000)) $from $to "the longest read took $longest us"
[ "$reads" -gt 100 ] && [ "$others" -gt 100 ] || fail "the two threads hardly met"
logout "$host"
ok "$kind"
