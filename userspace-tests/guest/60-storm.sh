#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Many sessions at once: all log in; the target's port is disabled and enabled; the machine suspends; the network loses
# packets; the RDMA device is removed. The C driver runs first, as the reference for ours: no login or read fails, none
# is slower, there are no more queue pairs than both ends need, and nothing leaks. With PREEMPT_RT only ours runs.
#
# deadline: 3000
# takes: 300
# runs: rxe stock long memory=9216
# runs: rxe rt arm64-16k long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
shapes=("16 1")
[ -z "${LONG-}" ] || shapes=("32 1" "64 1" "128 1" "32 4")
fabric_pair 1
netem 0 loss 0%
back_null disk 64
target 0
lun 0 0 disk
# The initiator ports of all sessions, in addition to those that every target has.
most=$(printf '%s\n' "${shapes[@]}" | sort -n | awk 'END {print $1}')
gid $(initiator 0)
for acl in $(printf "${tpg[0]}/acls/0x%016x${gid:16}\n" $(seq 4 $((most + 3)))); do
	mkdir $acl $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "cannot make the ACL $acl"
done
unload_srp || fail "rmmod ib_srp: $(cat $tmp/rmmod)"
ours=${SRP_MODULE:-$(modinfo -n ib_srp)}
theirs=$(ls /lib/modules/$(uname -r)/kernel/drivers/infiniband/ulp/srp/ib_srp.ko* | head -n 1)
free_memory() { shrink; awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo; }
has_disks() { set -- $1 /sys/class/scsi_disk/*; [ -e "${2-}" ] && [ $(($# - 1)) = $1 ]; }
running() {
	local p s
	for p in /sys/class/srp_remote_ports/*/state; do
		read -r s <$p && [ "$s" = running ] || return 1
	done
}
first_reads() {
	local d end=$((SECONDS + 120))
	for d in /sys/class/scsi_disk/*/device/block/*; do
		until timeout 60 dd if=/dev/${d##*/} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do
			[ $SECONDS -lt $end ] || refused $t "${d##*/} cannot be read"
			sleep 0.2
		done
	done
}
# refused SINCE WHAT: a failed login or read is an error, unless the guest lacked its CPUs for half of the time: then
# both drivers give up.
refused() {
	clock
	without_cpu $1 $now
	dmesg | grep 'ib_srp: .*failed' | tail -n 3
	[ $stolen -lt $(((now - $1) / 2)) ] || too_slow "$who: $2 ($(ms $stolen) of $(ms $((now - $1))) without CPU)"
	fail "$who: $2"
}
# Counts the queue pairs of both ends.
pairs() { rdma resource show | awk '{for (i = 1; i < NF; i++) if ($i == "qp") n += $(i + 1)} END {print n + 0}'; }
no_pairs() { [ $(pairs) -le $none ]; }
peak() {
	local n most=0 end=$((SECONDS + 600))
	while [ -e $tmp/watch ] && [ $SECONDS -lt $end ]; do
		n=$(pairs)
		[ $n -le $most ] || { most=$n; echo $most >$tmp/peak; }
		sleep 0.3
	done
}

# off_and_on WHAT [SECONDS]: disables and enables the target's port. `t` to `now` is the time from its return to the
# first read of the last session.
off_and_on() {
	echo 0 >${tpg[0]}/enable
	sleep 2
	! running || fail "$who: no session has lost its connection"
	echo 1 >${tpg[0]}/enable
	clock; t=$now
	within ${2-180} "$who: all sessions running, $1" running
	first_reads
	clock
}
# took WHAT: records the time from `t` to `now`.
took() { times[$1]=$(((now - t) / 1000)) since[$1]=$t until[$1]=$now; }

# turn NAME MODULE SESSIONS CHANNELS: sets `times` to durations in milliseconds, `peak` to the maximum number of queue
# pairs, and `kept` to the leaked KiB.
turn() {
	local n=$3 ch=$4 before i t
	who=$1
	declare -gA times=() since=() until=()
	before=$(free_memory)
	none=$(pairs)
	insmod $2 || fail "insmod $2"
	within 10 "add_target" test -e "$(add_target 0)"
	clock; t=$now
	for ((i = 1; i <= n; i++)); do
		write_login 0 "$(login_string 0 ,initiator_ext=$(printf %x $((i + 3))),ch_count=$ch)" >$tmp/login.$i &
	done
	reap 300 "$n logins" $(jobs -p | grep -vx $watchdog)
	clock; took login
	for ((i = 1; i <= n; i++)); do
		[ ! -s $tmp/login.$i ] || refused $t "login $i of $n at once: $(cat $tmp/login.$i)"
	done
	within 60 "$n disks" has_disks $n
	udevadm settle -t 120

	: >$tmp/watch
	peak &
	off_and_on "its port was off"
	took storm
	rm $tmp/watch
	reap 60 "a look at the queue pairs" $!
	peak=$(cat $tmp/peak)

	gauge_off
	clock; t=$now
	echo devices >/sys/power/pm_test && echo freeze >/sys/power/state || fail "cannot sleep"
	gauge_on
	echo none >/sys/power/pm_test
	first_reads
	clock; took resume
	running || fail "$who: not all sessions run after the sleep"

	# Debian's rxe loses connections when packets are lost, so the C driver randomly takes 12 s or a minute.
	if [ $who = Rust ]; then
		netem 0 loss 2%
		off_and_on "2 % of the packets are lost" 400
		took loss
		netem 0 loss 0%
	fi

	quiet $(ls /dev/sd? | head -n 1)
	clock; t=$now
	timeout 120 rdma link delete $(initiator 0) || fail "$who: rdma link delete"
	within 120 "$who: all hosts gone" no_hosts
	clock; took unplug
	timeout 60 rmmod ib_srp || fail "rmmod $who"
	say "$who: $n sessions of $ch:$(printf ' %s ms,' "login ${times[login]-no}" "storm ${times[storm]-no}" \
		"resume ${times[resume]-no}" "loss ${times[loss]-no}" "unplug ${times[unplug]-no}") $peak queue pairs"
	ini rdma link add $(initiator 0) type $kind netdev w0 || fail "rdma link add"
	within 10 "$who: nothing left at the target: $(pairs) queue pairs, $none before" no_pairs
	kept=$((before - $(free_memory)))
	say "$who: $kept KiB less"
}

for shape in "${shapes[@]}"; do
	set -- $shape
	declare -A c_times=()
	# With PREEMPT_RT the C driver panics under its first I/O.
	realtime || {
		turn C $theirs $1 $2
		for t in "${!times[@]}"; do c_times[$t]=${times[$t]}; done
	}
	turn Rust $ours $1 $2
	realtime || {
		in_time "$1 sessions of $2: the last read after the storm" ${since[storm]} ${until[storm]} \
			$(((${c_times[storm]} + 1) * 1000))
		for t in login resume unplug; do
			limit=$((${c_times[$t]} * 5 / 4 + 2000))
			in_time "$1 sessions of $2: $t" ${since[$t]} ${until[$t]} $(((limit + 1) * 1000))
		done
	}
	[ $peak -le $((none + 2 * $1 * $2)) ] || fail "$1 sessions of $2: $peak queue pairs"
	[ $kept -le 65536 ] || fail "$1 sessions of $2: $kept KiB are gone"
done
load_srp
ok "$kind: ${shapes[*]}: last read after ${times[storm]} ms, C ${c_times[storm]-no} ms"
