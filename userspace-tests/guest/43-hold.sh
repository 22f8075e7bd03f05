#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A back end delays some commands: aborts are answered late or not at all, with LUN resets in between; also statuses
# BUSY and TASK SET FULL. Data stays correct, and each command ends exactly once.
#
# deadline: 500 900
# takes: 82
# runs: rxe kasan fast long
# runs: siw vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fabric_pair 1
back_user disk 16
target 0
lun 0 0 disk
login 0 ,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 10
echo 2 >/sys/block/${dev#/dev/}/device/timeout
echo 10 >/sys/block/${dev#/dev/}/device/eh_timeout
trace $host

# io SECONDS: verified I/O in the background.
io() {
	start_verify_io $dev --iodepth=8 --rw=randrw --bs=4k --size=8m --runtime=$1 --time_based --verify_backlog=16
	fio=$!
}
# io_ok SECONDS WHAT: checks that fio has ended without an error, nothing is outstanding, and the disk exists.
io_ok() {
	io_ends $fio "$1" "$2"
	quiet $dev
	is "$2" /sys/block/${dev#/dev/}/device/state running
}
# Sets the rule to `pass`. Prints how many commands the previous rule affected.
pass() {
	local lines
	lines=$(wc -l <$tmp/disk.said)
	rule disk pass
	within 5 "the program looks at its rule" more_lines $tmp/disk.said $lines
	hit=$(tail -n 1 $tmp/disk.said)
	[ "${hit#* }" != 0 ] || fail "the rule hit nothing: $hit"
}
aborts() { log_since | grep -cE 'ABORT_TASK: (Found|Sending TMR_FUNCTION_COMPLETE)'; }

# Every 8th response is 3 s late: after the abort was sent, but before it is given up.
io 12
sleep 2
rule disk 'hold 8'
sleep 4.5
pass
io_ok 90 "some commands held for 4.5 s"
log_has 'ABORT_TASK: Found' || fail "nothing was aborted"
say "held for less than a task management request waits: $hit, I/O went on"

# Responses arrive after the abort, the LUN reset and perhaps the connection were given up.
rounds 1 4
for ((i = 0; i < rounds; i++)); do
	io 8
	sleep 2
	rule disk 'hold 8'
	sleep 14
	pass
	io_ok 120 "some commands held for 14 s"
	say "held for longer than the error handler waits: $hit, I/O went on"
done

# Manual LUN resets in parallel.
io 10
sleep 1
rule disk 'hold 16'
sleep 1
timeout 60 sg_reset -d $dev >$tmp/reset 2>&1 &
reset=$!
sleep 2
pass
reap 60 "sg_reset -d" $reset || fail "sg_reset -d: $(<$tmp/reset)"
io_ok 120 "LUN reset while commands are held"
say "LUN reset while commands are held: $hit, I/O went on"

for status in busy full; do
	io 6
	sleep 1
	rule disk "$status 5"
	sleep 2
	pass
	io_ok 60 "status $status"
	say "status $status: $hit, I/O went on"
done

quiet $dev
once
logout $host 60
clean
ok "$kind"
