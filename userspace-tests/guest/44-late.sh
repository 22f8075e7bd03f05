#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Late responses, because the path from the target to the initiator was blocked: the response crosses the abort of its
# command, or arrives when the abort was given up and the tag has been reused.
#
# deadline: 500 900
# takes: 79
# runs: rxe kasan fast long
# runs: siw kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fabric_pair 1
back_null disk 16
target 0
lun 0 0 disk
# The transport retries forever: rxe treats 7 like that, and TCP takes minutes.
login 0 ,tl_retry_count=7,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 10
echo 2 >/sys/block/${dev#/dev/}/device/timeout
echo 10 >/sys/block/${dev#/dev/}/device/eh_timeout
# rxe may notice immediately that no packet comes back. Then the session must wait for longer than the longest gap.
echo 60 >/sys/class/srp_remote_ports/port-${host#host}:1/fast_io_fail_tmo || fail "fast_io_fail_tmo"
trace $host

# Blocks the return path without affecting anything else: rxe gives up a queue pair if a packet cannot be sent for a
# moment.
ini nft "add table netdev late; add chain netdev late in { type filter hook ingress device w0 priority 0; }" ||
	fail "no nftables in this kernel"
close_way() { ini nft add rule netdev late in drop || fail "nft"; }
open_way() { ini nft flush chain netdev late in || fail "nft"; }
writes() { read -r _ _ _ _ written _ </sys/block/${dev#/dev/}/stat; }
busy() { writes; [ $written -gt $((before + 20)) ]; }

rounds 1 6
# For this many seconds packets from the target are lost; then all of them arrive.
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
