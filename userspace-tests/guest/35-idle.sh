#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The target silently closes an idle connection. The first command detects this, and is completed on a new connection.
#
# deadline: 400
# takes: 61
# runs: rxe kasan fast long
# runs: siw vfab rxe+user siw+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
# runs: rxe kasan long LONG= CM=ib
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fast_io_fail=20
parameter=/sys/module/ib_srp/parameters/keep_alive
testbed
! rust_driver || echo 0 >$parameter || fail "keep_alive"
attach 0
# A command of udev that the target has received but not answered would only be detected by its timeout.
quiet $dev
quiet $dev2
# Drops the target's last messages; on siw all packets, for as long as the target retransmits.
if [ $kind = rxe ]; then hole both 0 "$cm_message"; else hole both 0; fi
target_off 0
[ $kind = rxe ] || { sleep 4; heal 0; }
target_on 0
sleep 1
is "a dead session" $rport/state running
note "the first command"
clock; t0=$now
timeout 60 dd if=$dev of=$tmp/block bs=4k count=1 iflag=direct 2>$tmp/dd &
dd=$!
within $((9 * factor / 1000)) "detected" or_ended $dd not state running
clock
bound "detected" $t0 $now 3 $retrying
heal 0
clock; t0=$now
reap 60 "the first command" $dd || fail "the first command: $(cat $tmp/dd)"
clock
bound "the first command" $t0 $now 10
state running || fail "the state is $now_state"
trace $host
journal $dev --rport port-${host#host}:1
alive 3
settle
once
if ! rust_driver; then
	ok "$kind, without keep_alive"
	exit
fi
logout $host

note "keep_alive"
echo 2 >$parameter || fail "keep_alive"
attach 0
quiet $dev
quiet $dev2
requests() { cat /sys/bus/scsi/devices/${host#host}:0:0:*/iorequest_cnt | tr '\n' ' '; }
before=$(requests)
sleep 7
is "an idle session" $rport/state running
hole both 0
clock; t0=$now
within $((15 * factor / 1000)) "found dead" not state running
clock
# A keep-alive every two seconds, which must be answered before the next one.
bound "found dead without I/O" $t0 $now 3 4
equal "commands meanwhile" "$(requests)" "$before"
heal 0
within $((15 * factor / 1000)) "running again" state running
echo 5 >$parameter
ok "$kind"
