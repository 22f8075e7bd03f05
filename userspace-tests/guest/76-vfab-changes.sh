#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Changes to a subnet under I/O: a cable moves to another port of the switch at either end, the administrator does not
# respond or reports that it is busy during a reconnect, a REP or RTU is lost, late or duplicated, either end reboots.
# Only our driver has time limits. LONG: also with the C driver.
#
# deadline: 450 1100
# takes: 150
# runs: vfab kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
# The subnet manager is at neither end.
subnet 3 vfab2
back_null disk 32
speed
# Timeouts of the session. No command may fail.
reconnect_delay=10 fast_io_fail=60 dev_loss=120
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}

serves() { target 0; lun 0 0 disk; }
attached() {
	login 0
	rport=/sys/class/srp_remote_ports/port-${host#host}:1
	limits
	dev=$(disk "$host" 0)
	journal $dev --rport port-${host#host}:1 --threads 4 --pause 0.1
	alive 1
}
# at_switch DEVICE: sets `n` to the switch port of its cable. free_port: sets `free` to an unused switch port.
at_switch() { n=$(sed -n 's/^1 .* at \([0-9]*\)$/\1/p' /sys/kernel/debug/ib_vfab/$1/port); }
free_port() {
	local used=" " d n
	for d in vfab0 vfab1 vfab2; do at_switch $d; used+="$n "; done
	for free in 1 2 3 4 5; do [[ $used == *" $free "* ]] || break; done
}
# moves DEVICE N: moves its cable to port N of the switch, where opensm finds it.
moves() {
	lid $1; local was=$lid
	at_port $1 move $2
	within 60 "ACTIVE again" all_active $1
	lid $1
	equal "LID of $1 at port $2" $lid $was
}
# lost: ends the session; the target accepts a login immediately.
lost() {
	target_off 0
	within 30 "the connection is lost" not state running
	target_on 0
}

# in_service: runs everything with the loaded driver.
in_service() {
	summary=
	attached
	at_switch vfab1; local left=$n
	free_port
	began "our cable at another port"
	moves vfab1 $free
	stood 4 5
	began "the target's cable at the port that ours has left"
	moves vfab0 $left
	stood 4 5

	began "20 s without an answer of the administrator"
	kill -STOP ${manager[vfab2]}
	mads vfab1 sa-path; local asked=$sent
	lost
	sleep 20
	mads vfab1 sa-path; asked=$((sent - asked))
	kill -CONT ${manager[vfab2]}
	stood 12 20
	say "$phase: asked $asked times"
	! rust_driver || [ $asked -le 60 ] || fail "the administrator was asked $asked times in 20 s"

	began "an administrator that is busy"
	faulted vfab1 sa-busy; local before=$times
	fault vfab1 sa-busy 1 3
	lost
	stood 14
	faulted vfab1 sa-busy
	say "$phase: $((times - before)) times"
	[ $((times - before)) = 3 ] || ! rust_driver || fail "the administrator was busy $((times - before)) times, not 3"
	fault vfab1 sa-busy 1 0

	began "answers of the administrator are lost"
	faulted vfab2 sa-loss; before=$times
	fault vfab2 sa-loss 1 3
	lost
	stood 14
	faulted vfab2 sa-loss
	say "$phase: $((times - before))"
	fault vfab2 sa-loss 1 0

	if [ -n "${LONG-}" ]; then
		# The first command tells the target that the connection is established.
		began "no RTU arrives"
		mads vfab0 cm-rtu; before=$received
		mads vfab1 cm-rtu; asked=$sent
		fault vfab1 gmp-loss 1 cm-rtu 1000
		lost
		stood 14 5
		mads vfab1 cm-rtu
		[ $sent -gt $asked ] || fail "no RTU was sent"
		mads vfab0 cm-rtu
		equal "RTUs that arrived" $((received - before)) 0
		fault vfab1 gmp-loss 1 cm-rtu 0
	fi
	# Once for each of the two channels.
	[ -z "${LONG-}" ] ||
		for order in "vfab1 gmp-late 1 cm-rtu 2 2" "vfab1 gmp-double 1 cm-rtu 2" "vfab0 gmp-late 1 cm-rep 2 2" \
		"vfab0 gmp-double 1 cm-rep 2" "vfab0 gmp-loss 1 cm-rep 1"; do
		read -r d what _ message _ <<<"$order"
		began "${what#gmp-} $message"
		faulted $d $what; before=$times
		fault $order
		lost
		stood 14 10
		faulted $d $what
		[ $times -gt $before ] || fail "'$order' did not happen"
	done

	began "the target boots"
	at_port vfab0 down
	untarget
	adapter remove 0
	sleep 3
	adapter add 0
	at_port vfab0 up
	within 60 "ACTIVE again" all_active vfab0 vfab1
	serves
	# After further losses a reconnect first waits for the delay of 10 s.
	stood 14 $([ -n "${LONG-}" ] && echo 15 || echo 5)

	errors
	[ $errors = 0 ] || fail "$errors errors"
	# Data acknowledged before the port goes down is preserved, and the target still has the session.
	note "our end goes down"
	settle
	at_port vfab1 down
	delete_port $host
	within 60 "$host removed" gone $host
	resources qp | grep -c '^link vfab0/1 .*\[ib_srpt\]' >$tmp/old
	[ $(<$tmp/old) -gt 0 ] || fail "the target has lost the session"
	unload_srp || fail "rmmod: $(<$tmp/rmmod)"
	adapter remove 1
	sleep 3
	adapter add 1
	at_port vfab1 up
	began "our end boots"
	within 60 "ACTIVE again" all_active vfab0 vfab1
	load_srp_again
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	attached
	clock
	summary+=$(printf '; %s %d.%d s' "$phase" $(((now - t0) / 1000000)) $(((now - t0) / 100000 % 10)))
	! rust_driver || bound "$phase: I/O again" $t0 $now 12
	settle
	errors
	[ $errors = 0 ] || fail "$errors errors"
	logout $host
	say "$(driver)${summary/;/:}"
}

serves
for which in $drivers; do
	load_srp_again() { use_driver $which; }
	load_srp_again
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	in_service
done
ok "$kind"
