#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# poll_queues: polled I/O uses separate channels, is verified, and continues through aborts and resets, in parallel with
# I/O with interrupts. An idle polled channel is probed. A killed submitter leaves nothing behind.
#
# deadline: 400
# takes: 133
# runs: rxe stock long
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug long LONG=
# runs: rxe kasan long kmemleak=on
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "the C driver has no poll_queues"
parameter=/sys/module/ib_srp/parameters/poll_queues
undo() { echo 0 >$parameter; echo 5 >/sys/module/ib_srp/parameters/keep_alive; }
fabric 1
back_null disk 32
back_debug slow 32
target 0
lun 0 0 disk
lun 0 1 slow
sd=/sys/bus/pseudo/drivers/scsi_debug
echo 3 >/sys/block/${backdev[slow]#/dev/}/device/timeout
# under_way: waits until fio has started.
under_way() { within 30 "I/O on $dev" not nothing_in_flight $dev; }

# polled NAME fio-option...: io_uring with IOPOLL.
polled() {
	fio --allow_file_create=0 --eta=never --filename=$dev --ioengine=io_uring --hipri=1 --direct=1 --verify=crc32c \
		--verify_fatal=1 \
		--bs=4k --size=8m --offset=8m --name="$@" --output=$tmp/$1
}
# Counts the I/Os of polled and other channels in the trace events.
count() {
	echo 0 >$events/srp_send/enable
	with=$(grep -c "channel=[0-$((channels - 1))] " $tracing/trace)
	without=$(grep -c "channel=[$channels-9] " $tracing/trace)
}

login 0 ,ch_count=1
[ "$(cat /sys/block/"$(basename "$(disk "$host" 0)")"/queue/io_poll)" = 0 ] || fail "polled I/O without poll_queues"
logout "$host"

for polls in 1 2; do
	echo $polls >$parameter || fail "poll_queues"
	channels=1
	login 0 ,ch_count=1
	dev=$(disk "$host" 0)
	udevadm settle -t 10
	is "channels" /sys/class/scsi_host/$host/ch_count $((channels + polls))
	is "io_poll" /sys/block/${dev#/dev/}/queue/io_poll 1
	listen send
	polled a --rw=randrw --iodepth=8 --numjobs=2 --offset_increment=8m ||
		fail "polled I/O: $(grep -iE 'err|verify' $tmp/a)"
	quiet $dev
	count
	# udev's reads after fio use interrupts.
	[ $without -ge 4096 ] && [ $with -lt $without ] || fail "polled I/O: $with commands with interrupts, $without without"
	listen send
	direct_io 100 $dev --rw=randread --bs=4k --size=1m || fail "libaio"
	quiet $dev
	count
	[ $with -ge 256 ] && [ $without = 0 ] ||
		fail "I/O that is not polled: $with commands with interrupts, $without without"
	[ $polls = 2 ] || logout "$host"
done

say "resets under polled I/O"
polled c --rw=randrw --iodepth=8 --time_based --runtime=8 &
fio=$!
start_verify_io $dev --rw=randrw --bs=4k --size=4m --time_based --runtime=8
other=$!
for what in d H d H; do
	sleep 1
	timeout 60 sg_reset -$what $dev >$tmp/err 2>&1 || fail "sg_reset -$what: $(cat $tmp/err)"
done
reap 90 "polled I/O through resets" $fio || fail "polled I/O through resets: $(grep -iE 'err|verify' $tmp/c)"
reap 90 "I/O without polling" $other || fail "I/O without polling: $(grep -iE 'err|verify' $tmp/fio)"
is "state" /sys/class/srp_remote_ports/port-${host#host}:1/state running

say "aborts under polled I/O"
first=$dev
dev=$(disk "$host" 1)
echo 2 >/sys/block/${dev#/dev/}/device/timeout
polled g --rw=randrw --iodepth=4 --time_based --runtime=10 &
fio=$!
under_way
sleep 1
# scsi_debug drops every command for a while.
echo 4 >$sd/opts && echo -1 >$sd/every_nth || fail "scsi_debug cannot be stalled"
sleep 3
echo 0 >$sd/every_nth; echo 0 >$sd/opts
reap 90 "polled I/O through aborts" $fio || fail "polled I/O through aborts: $(grep -iE 'err|verify' $tmp/g)"
logged 'abort|reset'
dev=$first

say "submitters that are killed"
for n in 1 2 3; do
	# A thread, because pkill may miss a process that is being forked.
	polled e --thread --rw=randread --verify=0 --iodepth=32 --time_based --runtime=60 &
	fio=$!
	under_way
	pkill -KILL -f -- --name=e
	reap 60 "a killed fio" $fio 2>/dev/null
	quiet $dev
done

say "logout under polled I/O"
# fio may handle the removed disk in any way, but must end.
polled f --rw=randread --verify=0 --iodepth=8 --time_based --runtime=15 >/dev/null 2>&1 &
fio=$!
under_way
logout "$host"
within 60 "the end of fio" ended $fio
clean

# On an idle channel only the driver itself polls for the response to the probe.
echo 1 >/sys/module/ib_srp/parameters/keep_alive
login 0 ,ch_count=1
dev=$(disk "$host" 0)
quiet $dev
sleep 5
! log_has 'no response to a connection test' || fail "a polled channel that is idle is not looked at"
is "state" /sys/class/srp_remote_ports/port-${host#host}:1/state running
ok "$kind"
