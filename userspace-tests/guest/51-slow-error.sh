#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The device takes 70 s to move queue pairs to the error state, and the error handler waits for that. In the meantime
# the target writes to the memory of commands, so this memory must not be reused.
#
# deadline: 400
# takes: 136
# runs: rxe kasan long
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
hung_after 240
fabric_pair 1
speed
back_user disk 16
# The kernel responds for the program after 30 s, perhaps before the error handler ends the connection. 60 s is late
# enough, and LIO's workers do not wait longer.
echo 60 >${backdir[disk]}/attrib/cmd_time_out || fail "cmd_time_out"
target 0
lun 0 0 disk
fast_io_fail=150 dev_loss=off
attach 0 ,ch_count=4
channels=$(</sys/class/scsi_host/$host/ch_count)
[ $channels -gt 1 ] || fail "one channel proves nothing"
udevadm settle -t 10
queue=/sys/block/${dev#/dev/}
# The program's data is read through the initiator.
backdev[disk]=$dev
modprobe slow_qp device=$(initiator 0) || fail "no slow_qp"
slow=/sys/module/slow_qp/parameters
journal $dev
echo 2 >$queue/device/timeout
echo 10 >$queue/device/eh_timeout
echo $channels >$slow/times
rule disk 'hold 4'
hangs() { [ "$(<$slow/times)" -lt $channels ]; }
within 60 "the error handler ends the connection" hangs
clock; t0=$now
note "the device hangs"
sleep 65
[ "$(<$queue/device/state)" != offline ] || fail "the disk was taken offline while its commands were held"
errors
[ $errors = 0 ] ||
	fail "$errors commands ended while the device had their memory: $(grep error $tmp/journal.events | head -n 3)"
# Late data goes to memory that must still belong to the command.
rule disk pass
goes_on 100
bound "all $channels queue pairs" $t0 $at 15 70
is "the disk after that" $queue/device/state running
echo 30 >$queue/device/timeout
settle
errors
[ $errors = 0 ] || fail "$errors errors although the connection came back"
rmmod slow_qp || fail "rmmod slow_qp"
logout $host
backdev=()
clean
ok "$kind: $channels queue pairs"
