#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The target never comes back: I/O fails after fast_io_fail_tmo, and the disks are removed after dev_loss_tmo. The
# module can be unloaded in time, with or without the target.
#
# deadline: 900
# takes: 74
# runs: rxe kasan long
# runs: siw kasan fast long LONG=
# runs: vfab rxe+user siw+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug arm64-16k arm64-64k long LONG=
# runs: rxe kasan long LONG= CM=ib
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
[ -n "${LONG-}" ] || { fast_io_fail=3 dev_loss=10; }
testbed

# states FROM: checks that since FROM the remote port has gone through all states in the right order.
states() {
	local got
	got=$(awk -v t=$1 '$1 >= t && $2 == "state" {printf "%s ", $3} $2 == "gone" {printf "gone "}' $tmp/journal.events)
	# The port may be removed before the state lost is seen (`none` is a file that disappears during the read).
	[[ $got =~ ^blocked\ fail-fast\ (lost\ )?(none\ )?gone\ $ ]] || fail "the states were '$got'"
}
off() { target_off 0; }
for how in disabled unreachable; do
	attach 0
	listen send done lost
	journal $dev --rport port-${host#host}:1
	alive 1
	note "the target is $how and does not return"
	if [ $how = disabled ]; then hit off; else hit hole both 0; fi
	# If the fault comes late, the session may lose its connection and reconnect before.
	in_time "the fault" $t0 $hurt 10000000
	detected "$how"
	until_event 30 $t0 '^error'
	bound "$how: errors" $hurt $at 5 $((fast_io_fail + retrying))
	until_event $((dev_loss + 30)) $t0 '^gone$'
	bound "$how: gone" $hurt $at 5 $((dev_loss + retrying))
	within $((20 * factor / 1000)) "the host is gone" gone $host
	# A reconnect attempt has no state of its own.
	states $t0
	heal 0
	settle
	told ended lost=
	[ $kind != vfab ] || within 60 "an ACTIVE port" all_active vfab0
	target_on 0
	attach 0
	# An open disk would hold a reference to the module.
	udevadm settle -t 30
	[ $how = disabled ] || hole both 0
	sleep 1
	clock; t0=$now
	unload_srp || fail "rmmod ib_srp: $(cat $tmp/rmmod)"
	clock
	if [ $how = disabled ]; then bound "rmmod" $t0 $now 10; else bound "rmmod without the target" $t0 $now 20; fi
	heal 0
	load_srp
done
ok "$kind"
