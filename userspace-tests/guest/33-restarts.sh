#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Under I/O the target is disabled and enabled, and its module is unloaded and set up again. The upper layers see no
# errors.
#
# deadline: 600
# takes: 200
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe siw kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fast_io_fail=20
testbed

off() { timeout 60 bash -c 'echo 0 >"$1/enable"' _ ${tpg[0]} || fail "cannot disable the target"; }
on() { echo 1 >${tpg[0]}/enable || fail "cannot enable the target"; }
unload() {
	untarget
	rmdir $cfg/target/srpt || fail "cannot remove the fabric"
	timeout 60 rmmod ib_srpt || fail "rmmod ib_srpt"
}
reload() {
	load_target
	# An initiator that reconnects before its unit exists gets an error.
	target 0 off
	lun 0 0 disk
	lun 0 1 other
	on
}
# The target takes its name from the first device it sees. Reload it now that there are no other devices.
unload
reload
attach 0
trace $host
verify $dev2
journal $dev --rport port-${host#host}:1

# restart WHAT DOWN UP
restart() {
	local t1
	alive 1
	note "$1"
	hit $2
	detected "$1"
	sleep 1
	$3
	clock; t1=$now
	within $((40 * factor / 1000)) "running again" state running
	clock
	bound "$1: running again" $t1 $now 10
	goes_on 20
	bound "$1: I/O resumed" $t1 $at 10
}
for ((i = 0; i < ${LONG:+5} + 1; i++)); do
	restart "target switched off and on" off on
	restart "target unloaded and set up again" unload reload
done
alive 2
errors
[ $errors = 0 ] || fail "$errors errors"
verified
settle
once
ok "$kind"
