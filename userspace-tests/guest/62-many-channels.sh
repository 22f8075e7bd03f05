#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# 64 channels of a lost connection are torn down in about the time of one, and so is a logout: they share their waits,
# especially for RCU. The target's time for 64 logins does not count. A login without ch_count gets 16 channels, on
# completion vectors of all CPUs.
#
# deadline: 500
# takes: 166
# runs: rxe stock long memory=4096 ncpus=64
. "$(dirname "$0")/lib.sh"
. "$here/rport.sh"
. "$here/faults.sh"

begin
rounds 2 8
many=64
[ $(nproc) -ge $many ] || fail "$many channels need as many CPUs"
fabric 1
back_null disk 16
target 0
lun 0 0 disk

if rust_driver; then
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	echo 1 >$tracing/events/rdma_core/cq_alloc/enable || fail "no event cq_alloc"
	login 0
	echo 0 >$tracing/events/rdma_core/cq_alloc/enable
	for f in ch_count requested_ch_count nr_hw_queues; do is "channels unasked" /sys/class/scsi_host/$host/$f 16; done
	# rxe has a vector per CPU. The target's queues are allocated by a kworker, so skip its lines.
	vectors=$(sed -n '/kworker/d; s/.* comp_vector=\([0-9]*\) .*/\1/p' $tracing/trace | uniq | head -n 16 | paste -sd' ')
	equal "their vectors" "$vectors" "$(seq -s' ' 0 $((many / 16)) $((many - 1)))"
	logout "$host"
fi

# Prints the time from the loss to the first request of the next login, in ms.
ending() {
	log_since | tr -d '[]' |
		awk '/connection lost/ && !from {from = $1} /Received SRP_LOGIN_REQ/ && from {printf "%d", ($1 - from) * 1000; exit}'
}
# least WHAT FROM TO
least() {
	local t=$((($3 - $2) / 1000))
	[ $t -gt ${took[$1]-999999} ] || took[$1]=$t from[$1]=$2 to[$1]=$3
}
declare -A took from to
for n in 1 $many; do
	for ((i = 0; i < rounds; i++)); do
		login 0 ,ch_count=$n
		is channels /sys/class/scsi_host/$host/ch_count $n
		! rust_driver || is "channels asked for" /sys/class/scsi_host/$host/requested_ch_count $n
		dev=$(disk "$host" 0)
		mark
		clock; t=$now
		timeout 100 sg_reset -H $dev >$tmp/reset 2>&1 || fail "sg_reset -H: $(cat $tmp/reset)"
		within 60 "running" in_state $host running
		ending=$(ending)
		[ -n "$ending" ] || fail "no end and no login: $(log_since | tail)"
		least "reset $n" $t $((t + ending * 1000))
		mark
		clock; t=$now
		logout "$host" 60
		clock; least "logout $n" $t $now
	done
done
for what in reset logout; do
	one=${took[$what 1]} all=${took[$what $many]}
	say "$what: $one ms with one channel, $all ms with $many"
	# A grace period takes at least 5 ms.
	over=$((all - one - many * 5))
	[ $over -lt 0 ] ||
		exceeded $((over * 1000 + 1)) ${from[$what $many]} ${to[$what $many]} \
			"$what: channels wait one after the other: $one and $all ms"
done
clean
ok "$kind"
