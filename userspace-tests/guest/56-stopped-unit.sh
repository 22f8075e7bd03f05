#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A unit reports that it must be started while the target holds another command. The error handler must not start the
# unit and end both commands: the target may still write to the memory of the held command.
#
# deadline: 200
# takes: 56
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt rtdebug long LONG=
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
odd_target
rust_driver || skip "the C driver ends a command that the target has"
stopped=check:0:700002000000000a000000000402
restarts() { echo /sys/class/scsi_disk/${host#host}:0:0:0/allow_restart; }

# withhold WAY: a read of 64 KiB, through the block layer or SG_IO, is held. A read of 4 KiB reports that the unit has
# stopped.
withhold() {
	tell abort 5
	tell on 28 hold
	case $1 in
	block) timeout 60 dd if=$dev of=$tmp/held bs=64k count=1 iflag=direct 2>$tmp/dd1 & ;;
	sgio) timeout 60 sg_raw -t 2 -r 65536 -o $tmp/held $dev 28 00 00 00 00 00 00 00 80 00 >$tmp/dd1 2>&1 & ;;
	esac
	withheld=$!
	hears "the read that is held" 'command channel=0 opcode=28 .* held' 10
	echo "on 28 $stopped" >&$telling
	timeout 60 dd if=$dev of=$tmp/read bs=4k skip=64 count=1 iflag=direct 2>$tmp/dd2 &
	other=$!
	hears "an abort" 'task channel=0 function=01' 15
}
# recovered: fails if a START UNIT is sent before the LUN reset, after which the target has no commands. Then the held
# command is answered with data first, to expose a write to reused memory.
recovered() {
	within 20 "a reset of the unit, or START UNIT" has_said 'task channel=0 function=08|opcode=1b'
	! has_said 'opcode=1b' || early=1
	[ -z "${early-}" ] || { sleep 5; tell answer data; sleep 5; no_reports; fail "START UNIT while a command is held"; }
}

# The vendor ID says that the target is an ATA translation, which the midlayer starts.
tell vendor ATA
enter ,ch_count=1
impatient
is "START UNIT at first" $(restarts) 0
withhold block
recovered
reap 60 "the read that was held" $withheld || fail "the read that was held: $(<$tmp/dd1)"
! reap 60 "the read beside it" $other || fail "a read of a unit that has stopped is good"
equal "START UNIT" $(times 'opcode=1b') 0
no_reports
tell abort -1
logout $host
clean

# A user can enable restarts for any unit.
tell vendor SRP
for way in block sgio; do
	enter ,ch_count=1
	impatient
	echo 1 >$(restarts) || fail "allow_restart"
	withhold $way
	recovered
	reap 60 "the read beside one that was held" $other || fail "the read beside one that was held: $(<$tmp/dd2)"
	reap 60 "the read that was held" $withheld || [ $way = sgio ] || fail "the read that was held: $(<$tmp/dd1)"
	stayed "a unit that asks to be started"
	tell abort -1
	logout $host
	clean
done

# If nothing is withheld the unit is started, and the command is retried.
enter ,ch_count=1
echo 1 >$(restarts) || fail "allow_restart"
tell on 28 $stopped
timeout 60 dd if=$dev of=$tmp/read bs=4k count=1 iflag=direct 2>$tmp/dd ||
	fail "the read of a stopped unit: $(<$tmp/dd)"
equal "START UNIT" $(times 'opcode=1b') 1
equal "tasks" $(times 'task channel') 0
equal "reads" $(times 'command .*opcode=28') 2
stayed "START UNIT"
logout $host
no_complaints
ok "$kind"
