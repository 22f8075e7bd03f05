#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The block layer drops a completion (fail_io_timeout), so that the error handler aborts a command that the driver has
# already completed.
#
# deadline: 300 600
# takes: 35
# runs: rxe kasan fast long
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
. "$(dirname "$0")/lib.sh"

faults=/sys/kernel/debug/fail_io_timeout
begin
[ -d $faults ] || skip "this kernel has no fail_io_timeout"
fabric 1
back_null disk 16
target 0
lun 0 0 disk
login 0 ,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 10
queue=/sys/block/${dev#/dev/}
start=$(cat /sys/class/scsi_host/$host/req_lim)
credits() { [ "$(cat /sys/class/scsi_host/$host/req_lim)" = $start ]; }
echo 2 >$queue/device/timeout
echo 10 >$queue/device/eh_timeout
echo 0 >$faults/verbose
echo 1 >$queue/io-timeout-fail || fail "io-timeout-fail cannot be set"

rounds 3 20
listen send done task
for ((i = 0; i < rounds; i++)); do
	echo 30 >$faults/interval
	echo 100 >$faults/probability
	echo 3 >$faults/times
	start_verify_io $dev --iodepth=8 --rw=randrw --bs=4k --size=8m --runtime=6 --time_based --verify_backlog=16
	io_ends $! 90 "completions are swallowed"
	is "completions that were not swallowed" $faults/times 0
	quiet $dev
	is "the disk" $queue/device/state running
	within 5 "all credits" credits
	say "round $i: 3 completions swallowed, I/O went on"
done
echo 0 >$faults/probability
echo 0 >$queue/io-timeout-fail
told ended
logout $host
clean
ok "$kind"
