#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# An adapter that is reset by removing it, with sessions that do I/O: from some moment on, or for a while, it refuses to
# stop queue pairs, and its removal waits until none is left. It goes in time, comes back, and all log in again.
# LONG: the C driver has its turn in the same guest.
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/many.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin 400 1500
rounds 24 48
sessions=$rounds
subnet 2
back_null disk 32
target 0
lun 0 0 disk
own_ports
speed
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}
# Behind what many.py writes.
mark_at=24

undo() { [ -z "${many-}" ] || kill -KILL $many; dmesg -n 8; } 2>/dev/null
io_of_all() { clock; within ${1-60} "I/O of all" or_ended $many all_since $now; }
# log_in_all: and I/O by all, after a look at what was written before.
log_in_all() {
	log_in_each ch_count=2
	[ ! -e $tmp/data ] || dd if=${devices[0]} bs=1M count=1 skip=$mark_at iflag=direct status=none | cmp - $tmp/data ||
		fail "data is wrong: what was written before the adapter went is not there"
	dd if=/dev/urandom of=$tmp/data bs=1M count=1 status=none
	dd if=$tmp/data of=${devices[0]} bs=1M count=1 seek=$mark_at oflag=direct status=none || fail "write"
	python3 "$here/many.py" $tmp/many "${devices[@]}" >$tmp/many.out 2>&1 &
	many=$!
	io_of_all
}
io_ends() {
	kill -TERM $many
	reap 60 "many.py" $many || fail "data is wrong: $(<$tmp/many.out)"
	many=
	read -r total <$tmp/many.out
	[[ $total == *" wrong=0 stuck=0" ]] || fail "$act: $total"
}
# Of all queue pairs, more times than a test can count.
forever=1000000
# goes TEXT: the adapter goes in time, with all hosts.
goes() {
	local t0 dir
	dir=$(add_target 0)
	clock; t0=$now
	timeout -k 5 100 bash -c 'echo remove 1 >/sys/kernel/debug/ib_vfab/devices' ||
		fail "$act: the adapter does not go: $(ps -eo stat,wchan:32,args | grep '^D' | head -n 5)"
	clock
	[ ! -e "$dir" ] || fail "$act: its folder outlives it"
	no_hosts || fail "$act: hosts outlive it: $list"
	note "$act: gone after $(ms $((now - t0)))"
	summary+="; $act $(ms $((now - t0)))"
	in_time "$act: the adapter goes" $t0 $now 20000000
	io_ends
	pair_device 0
	log_in_all
}
begins() { act=$1; note "$act"; }
# The connections are lost, with a device that is in order as far as the driver can tell.
lose_all() {
	target_off 0
	within 20 "all are lost" all_lost
}
all_lost() { ! grep -l running /sys/class/srp_remote_ports/port-*/state >/dev/null; }

for which in $drivers; do
	summary=
	use_driver $which reconnect_delay=10 fast_io_fail_tmo=60 dev_loss_tmo=120
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	# C says, once, that it goes on with queue pairs that it could not drain.
	rust_driver || dmesg -n 1
	log_in_all

	begins "refused in the removal"
	fault vfab1 stop 1 19 $forever
	goes

	begins "fatal, then removed"
	fault vfab1 stop 1 110 $forever
	at_port vfab1 fatal
	sleep 2
	goes

	begins "refused, then removed"
	fault vfab1 stop 1 110 $forever
	lose_all
	sleep 2
	target_on 0
	goes

	begins "refused for a while"
	fault vfab1 stop 1 22 $((sessions * 4))
	lose_all
	target_on 0
	clock; t1=$now
	within 60 "I/O of all" or_ended $many all_since $t1
	note "$act: all go on after $(ms $((at - t1)))"
	summary+="; $act $(ms $((at - t1)))"

	begins "refused without an end"
	fault vfab1 stop 1 22 $forever
	lose_all
	target_on 0
	clock; t1=$now
	within 90 "I/O of all" or_ended $many all_since $t1
	note "$act: all go on after $(ms $((at - t1)))"
	summary+="; $act $(ms $((at - t1)))"

	if rust_driver; then
		# The C driver leaves such queue pairs behind, without an owner.
		begins "their end is refused, too"
		fault vfab1 stop 1 110 $forever
		# For two channels of each, twice a second: 6 s.
		fault vfab1 destroy 1 5 $((sessions * 2 * 12))
		at_port vfab1 fatal
		sleep 2
		goes
		logged 'a queue pair cannot be stopped'
	fi

	act=log-out
	io_ends
	find_hosts
	for h in $list; do delete_port $h; done
	within 60 "no host" no_hosts
	say "$(driver)$summary"
	rust_driver || { mark; dmesg -n 8; }
done
ok "$kind: $sessions sessions"
