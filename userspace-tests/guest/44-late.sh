#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Answers that come late because the way from the target to us was closed: the
# answer to a command crosses its abort, or comes when that has been given up and the
# tag belongs to another command already.
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin 500 900
fabric_pair 1
back_null disk 16
target 0
lun 0 0 disk
# The transport tries for ever: rxe takes 7 for that, and TCP has minutes.
login 0 ,tl_retry_count=7,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 10
echo 2 >/sys/block/${dev#/dev/}/device/timeout
echo 10 >/sys/block/${dev#/dev/}/device/eh_timeout
# rxe may see at once that nothing comes back: then the session waits, longer than the longest gap.
echo 60 >/sys/class/srp_remote_ports/port-${host#host}:1/fast_io_fail_tmo || fail "fast_io_fail_tmo"
trace $host

# The way back can be closed without anything else being touched: rxe gives a queue pair up when a
# packet cannot be sent for a moment.
ini nft "add table netdev late; add chain netdev late in { type filter hook ingress device w0 priority 0; }" || fail "no nftables in this kernel"
close_way() { ini nft add rule netdev late in drop || fail "nft"; }
open_way() { ini nft flush chain netdev late in || fail "nft"; }
writes() { read -r _ _ _ _ written _ </sys/block/${dev#/dev/}/stat; }
busy() { writes; [ $written -gt $((before + 20)) ]; }

rounds 1 6
# What the target sends is lost for so many seconds; then all of it comes.
for gap in 2.5 4 7.5 9.5 14; do
	for ((i = 0; i < rounds; i++)); do
		writes
		before=$written
		start_verify_io $dev --iodepth=8 --rw=randrw --bs=4k --size=8m --runtime=4 --time_based --verify_backlog=16
		fio=$!
		within 30 "I/O" busy
		sleep 0.$((RANDOM % 10))
		close_way
		sleep $gap
		open_way
		io_ends $fio 90 "$gap s without answers"
		quiet $dev
		is "the disk after $gap s without answers" /sys/block/${dev#/dev/}/device/state running
	done
	say "$gap s without answers, $rounds times: I/O went on"
done
log_has 'ABORT_TASK: Sending' || fail "nothing was aborted"
log_has 'TMR_TASK_DOES_NOT_EXIST' && say "an abort came too late for its command"
quiet $dev
once
ini nft delete table netdev late
logout $host 60
clean
ok "$kind"
