#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A back end stops responding for a while: commands are aborted and I/O continues. Manual resets under I/O. Finally a
# back end stays silent for longer than any recovery: all I/O must end.
#
# deadline: 400
# takes: 134
# runs: rxe kasan fast long
# runs: siw vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
sd=/sys/bus/pseudo/drivers/scsi_debug
back_debug disk 32
target 0
lun 0 0 disk
echo 3 >/sys/block/${backdev[disk]#/dev/}/device/timeout
# stall: makes scsi_debug drop every command; the SCSI disk driver of the back end aborts them.
stall() { echo 4 >$sd/opts && echo -1 >$sd/every_nth || fail "scsi_debug cannot be stalled"; }
go_on() { echo 0 >$sd/every_nth; echo 0 >$sd/opts; }

enter() {
	login 0 "${1-}"
	dev=$(disk "$host" 0)
	udevadm settle -t 10
	echo 2 >/sys/block/${dev#/dev/}/device/timeout
	echo 2 >/sys/block/${dev#/dev/}/device/eh_timeout 2>/dev/null
}
# io SECONDS: verified I/O in the background. On a slow guest fio takes seconds to start.
io() {
	start_verify_io $dev --iodepth=4 --rw=randrw --bs=4k --size=16m --runtime=$1 --time_based
	fio=$!
	within 30 "I/O on $dev" not nothing_in_flight $dev
}

enter
listen send done task task_done
io 14
sleep 2
stall
sleep 3
go_on
io_ends $fio 60 "a stall of 3 s"
told ended asked=0x01
equal "state of the disk" "$(cat /sys/block/${dev#/dev/}/device/state)" running
say "a stall of 3 s: I/O went on"

echo 5 >/sys/block/${dev#/dev/}/device/timeout
listen send done task task_done
io 10
sleep 1
for i in 1 2 3; do
	timeout 60 sg_reset -d $dev >$tmp/err 2>&1 || fail "sg_reset -d: $(cat $tmp/err)"
	sleep 1
done
# Two concurrent resets: when the first one ends, the midlayer sends commands during the second one. The late caller is
# told to retry.
reset() {
	local end=$((SECONDS + 30))
	until timeout 60 sg_reset -d $dev >$1 2>&1; do
		grep -q 'try again later' $1 && [ $SECONDS -lt $end ] || return 1
	done
}
for i in 1 2 3 4 5; do
	reset $tmp/other &
	other=$!
	reset $tmp/err || fail "sg_reset -d beside another: $(cat $tmp/err)"
	reap 60 "sg_reset -d beside another" $other || fail "sg_reset -d beside another: $(cat $tmp/other)"
done
io_ends $fio 90 "LUN resets"
told ended task=0x08
equal "state of the disk" "$(cat /sys/block/${dev#/dev/}/device/state)" running
say "LUN resets, one or two at a time: I/O went on"

# A host reset reconnects, and outstanding commands are retried.
listen send done lost
io 12
sleep 1
rport=/sys/class/srp_remote_ports/port-${host#host}:1
delay=$(<$rport/reconnect_delay)
for i in 1 2 3; do
	# A host reset also works without reconnect attempts by the timer.
	[ $i != 3 ] || echo off >$rport/reconnect_delay || fail "reconnect_delay off"
	timeout 60 sg_reset -H $dev >$tmp/err 2>&1 || fail "sg_reset -H: $(cat $tmp/err)"
	is "remote port after host reset $i" $rport/state running
	sleep 2
done
echo $delay >$rport/reconnect_delay
io_ends $fio 90 "host resets"
told ended lost="reset by the error handler"
say "three host resets: I/O went on"
# A host reset also works after a loss of the connection without a reconnect timer, in blocked and fail-fast.
echo off >$rport/reconnect_delay || fail "reconnect_delay off"
generic=/dev/$(ls /sys/block/${dev#/dev/}/device/scsi_generic)
for state in blocked fail-fast; do
	[ $state = blocked ] || echo 1 >$rport/fast_io_fail_tmo || fail "fast_io_fail_tmo 1"
	echo 0 >${tpg[0]}/enable
	has_come() { [ "$(<$rport/state)" = $state ]; }
	within 10 "remote port $state" has_come
	echo 1 >${tpg[0]}/enable
	sleep 2
	is "remote port, without attempts" $rport/state $state
	timeout 60 sg_reset -H $generic >$tmp/err 2>&1 || fail "sg_reset -H, $state: $(cat $tmp/err)"
	is "remote port after a host reset, $state" $rport/state running
done
logout "$host"
clean

# No response at all: abort, LUN reset and reconnect do not help, so I/O ends with errors.
enter
listen
io 120
sleep 2
stall
t=$SECONDS
within 100 "end of I/O when nothing is ever answered" ended $fio
say "nothing answered: I/O ended after $((SECONDS - t)) s"
go_on
within 60 "logout" delete_port $host
within 60 "end of the session" gone "$host"
told ended asked=0x01 lost=
within 60 "nothing of ours" nothing_ours
# Meanwhile the back end's own error handling has taken the back end offline.
echo running >/sys/block/${backdev[disk]#/dev/}/device/state

# I/O works again after the fault.
enter
verify_io 60 $dev --iodepth=4 --rw=randwrite --bs=4k --size=2m || fail "I/O after the resets"
logout "$host"
clean
ok "$kind"
