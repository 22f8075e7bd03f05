#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# An adapter is removed and added (a reset) with sessions under I/O, while it refuses to stop queue pairs, permanently
# or for a while, and its removal waits until none is left. The removal ends in time, the adapter comes back, and all
# sessions log in again. LONG: also with the C driver.
#
# deadline: 400 1500
# takes: 139
# runs: vfab kasan fast long
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/many.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
rounds 10 48
sessions=$rounds
rounds 2 10
delay=$rounds
subnet 2
back_null disk 32
target 0
lun 0 0 disk
own_ports
speed
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}
# Beyond the range that many.py writes.
mark_at=24

undo() { [ -z "${many-}" ] || kill -KILL $many; dmesg -n 8; } 2>/dev/null
io_of_all() { clock; within ${1-60} "I/O of all" or_ended $many all_since $now; }
# log_in_all: logs in with I/O on all disks, after a check of the data written before.
log_in_all() {
	log_in_each ch_count=2
	[ ! -e $tmp/data ] || dd if=${devices[0]} bs=1M count=1 skip=$mark_at iflag=direct status=none | cmp - $tmp/data ||
		fail "data is wrong: what was written before the adapter went is not there"
	dd if=/dev/urandom of=$tmp/data bs=1M count=1 status=none
	dd if=$tmp/data of=${devices[0]} bs=1M count=1 seek=$mark_at oflag=direct status=none || fail "write"
	many_begin
}
many_begin() {
	python3 "$here/many.py" $tmp/many "${devices[@]}" >$tmp/many.out 2>&1 &
	many=$!
	io_of_all
}
many_end() {
	kill -TERM $many
	reap 60 "many.py" $many || fail "data is wrong: $(<$tmp/many.out)"
	many=
	read -r total <$tmp/many.out
	[[ $total == *" wrong=0 stuck=0" ]] || fail "$phase: $total"
}
# Larger than the number of refusals for all queue pairs.
forever=1000000
# refuse ERRNO [TIMES]: from now on the device refuses to stop queue pairs.
refuse() {
	faulted vfab1 stop
	refused=$times
	fault vfab1 stop 1 $1 ${2-$forever}
}
# has_refused TIMES: TIMES is the total of the device. Since `refuse` each channel of each session was refused twice:
# when the connection ended and in the drain; with the C driver in the drain of each queue.
has_refused() {
	note "$phase: $(($1 - refused)) refusals"
	[ $(($1 - refused)) -ge $((sessions * 4)) ] ||
		fail "$phase: $(($1 - refused)) refusals for $((sessions * 2)) queue pairs"
}
# Prints how often the adapter refused to stop a queue pair in this phase, as it logs when it is removed.
refusals() {
	log_since | awk -v phase="srp-test: $phase" '
		index($0, phase) {n = 0}
		/vfab1: fault stop: [0-9]+ times$/ {n = $(NF - 1)}
		END {print n + 0}'
}
# goes TEXT: removes the adapter, and checks that the removal ends in time, and all hosts with it.
goes() {
	local t0 dir
	dir=$(add_target 0)
	clock; t0=$now
	timeout -k 5 100 bash -c 'echo remove 1 >/sys/kernel/debug/ib_vfab/devices' ||
		fail "$phase: the adapter does not go: $(ps -eo stat,wchan:32,args | grep '^D' | head -n 5)"
	clock
	[ ! -e "$dir" ] || fail "$phase: its folder outlives it"
	no_hosts || fail "$phase: hosts outlive it: $list"
	has_refused $(refusals)
	bound "$phase: the adapter goes" $t0 $now 20
	summary+="; $phase $(ms $((now - t0)))"
	many_end
	pair_device 0
	log_in_all
}
begins() { phase=$1; note "$phase"; }
# all_lose SECONDS: ends all connections while the device refuses to stop them. All sessions must continue within
# SECONDS, without an error.
all_lose() {
	local t0
	lose_all
	target_on 0
	clock; t0=$now
	within $1 "I/O of all" or_ended $many all_since $t0
	faulted vfab1 stop
	has_refused $times
	note "$phase: all go on after $(ms $((at - t0)))"
	summary+="; $phase $(ms $((at - t0)))"
	many_end
	! rust_driver || [[ $total == *" errors=0 "* ]] || fail "$phase: $total"
	many_begin
}
# The connections are lost while the driver has no sign of a device fault.
lose_all() {
	target_off 0
	within 20 "all are lost" all_lost
}
all_lost() { ! grep -l running /sys/class/srp_remote_ports/port-*/state >/dev/null; }

for which in $drivers; do
	summary=
	use_driver $which reconnect_delay=$delay fast_io_fail_tmo=60 dev_loss_tmo=120
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	# The C driver warns once that it continues with queue pairs that it could not drain.
	rust_driver || dmesg -n 1
	log_in_all

	begins "refused in the removal"
	refuse 19
	goes

	if [ -n "${LONG-}" ]; then
		begins "fatal, then removed"
		refuse 110
		at_port vfab1 fatal
		sleep 2
		goes
	fi

	begins "refused, then removed"
	refuse 110
	lose_all
	sleep 2
	target_on 0
	goes

	begins "refused for a while"
	refuse 22 $((sessions * 4))
	all_lose 60

	begins "refused without an end"
	refuse 22
	all_lose 90

	if rust_driver; then
		# The C driver would leak these queue pairs.
		begins "their end is refused, too"
		refuse 110
		# Twice per second for two channels of each session: 6 s.
		fault vfab1 destroy 1 5 $((sessions * 2 * 12))
		at_port vfab1 fatal
		sleep 2
		goes
		logged 'a queue pair cannot be stopped'
	fi

	phase=logout
	many_end
	find_hosts
	for h in $list; do delete_port $h; done
	within 60 "no host" no_hosts
	say "$(driver)$summary"
	rust_driver || { mark; dmesg -n 8; }
done
ok "$kind: $sessions sessions"
