#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A target responds to all commands but grants no credits: nothing is outstanding, so nothing times out. The driver ends
# the connection when this has lasted as long as a command may take, on any channel, and the commands are completed on
# the next one. One credit per 10 s is enough to keep the connection.
#
# deadline: 400
# takes: 163
# runs: rxe kasan long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
polls=/sys/module/ib_srp/parameters/poll_queues
undo() { echo 0 >$polls; } 2>/dev/null
rust_driver || skip "with the C driver the commands wait forever"
odd_target

# reads COUNT: COUNT reads of 4 KiB in the background.
reads() {
	timeout 200 dd if=$dev of=/dev/null bs=4k count=$1 iflag=direct 2>$tmp/dd &
	reader=$!
}
# starves WHAT: commands wait for credits. The target grants some only on the next connection.
starves() {
	sleep 20
	running || fail "$1: ended after 20 s"
	within 30 "$1: the end of the connection" log_has 'connection lost: no credit on channel [0-9]+ for 3[0-9] s'
	[ $((SECONDS - asked)) -ge 30 ] || fail "$1: ended after $((SECONDS - asked)) s"
	say "$1: ended after $((SECONDS - asked)) s"
	within 15 "$1: another connection" running
	equal "$1: logins" $(times 'login multi=0') 1
	equal "$1: losses" $(log_since | grep -c 'connection lost') 1
}
# ask [CHANNEL]: tells the target to grant no more credits, once udev is done.
ask() { quiet $dev; mark; tell grant none "$@"; asked=$SECONDS; }

enter ,ch_count=1
ask
reads 100
hears "the last command that has a credit" 'command channel=0' 20
sleep 2
sent=$(times 'command channel=0')
[ $sent -lt 40 ] || fail "$sent commands with 32 credits"
# Withheld credits are not returned.
echo "grant all" >&$telling
starves "one channel"
counters=/sys/class/scsi_host/$host/statistics
read -r waits <$counters/credit_waits
read -r busy <$counters/busy
[ $waits -gt 0 ] && [ $busy -ge $waits ] || fail "credit_waits is $waits, busy $busy"
is "zero_req_lim" $counters/../zero_req_lim $waits
reap 100 "the reads" $reader || fail "the reads: $(<$tmp/dd)"
block write
block read

# Each command waits 10 s, in total longer than the limit.
quiet $dev
mark
tell grant every 10
t=$SECONDS
reads 36
reap 120 "36 reads" $reader || fail "the reads: $(<$tmp/dd), $(times 'command channel=0') commands"
[ $((SECONDS - t)) -ge 40 ] || fail "36 reads took $((SECONDS - t)) s only"
stayed "one credit in 10 s"
say "one credit in 10 s: 36 reads in $((SECONDS - t)) s"
no_reports
logout $host
clean

# A channel for polled I/O has no credit, while the other one is in constant use.
tell grant all
echo 1 >$polls || fail "poll_queues"
enter ,ch_count=1
is "channels" /sys/class/scsi_host/$host/ch_count 2
ask 1
timeout 150 fio --allow_file_create=0 --eta=never --name=p --filename=$dev --ioengine=io_uring --hipri=1 --direct=1 \
	--rw=read --bs=4k --iodepth=2 \
	--number_ios=100 --thinktime=0 --output=$tmp/polled >/dev/null 2>&1 &
reader=$!
hears "polled I/O" 'command channel=1' 20
verified 50 --offset=4m --thinktime=20ms --thinktime_blocks=8 &
fio=$!
sleep 2
echo "grant all" >&$telling
sent=$(times 'command channel=1')
starves "a polled channel beside one in use"
reap 150 "polled reads" $reader || fail "polled reads: $(grep -iE err $tmp/polled)"
reap 110 "fio" $fio || exit 1
[ $sent -lt 40 ] || fail "$sent polled commands with 32 credits"
block read
logout $host
clean
echo 0 >$polls

if [ -n "${LONG-}" ]; then
	# A reconnect restarts the timer, so that the new connection does not end too early.
	enter ,ch_count=1
	ask
	reads 100
	sleep 25
	tell grant all
	tell disconnect
	reap 100 "the reads" $reader || fail "the reads: $(<$tmp/dd)"
	sleep 15
	equal "logins" $(times 'login multi=0') 1
	running || fail "not running"
	block read

	# A logout does not wait for credits: the disks are removed with the commands that wait for one.
	ask
	reads 100
	sleep 2
	clock; t=$now
	logout $host 30
	! reap 20 "the reads" $reader || fail "reads after the logout"
	clock; in_time "the logout" $t $now 21000000
	clean
fi
no_complaints
ok "$kind"
