#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A dead path is detected in time: by ack_timeout, which like tos is set for each connection; and by the keep-alive
# within three times keep_alive, if the target hangs while its device still acknowledges: idle, without credits, and
# when an abort has the last credit.
#
# deadline: 300
# takes: 95
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/odd.sh"

begin
odd_target
rust_driver || skip "the C driver has none of it"
parameter=/sys/module/ib_srp/parameters/keep_alive
undo() { echo 5 >$parameter; kill -CONT $odd; nft flush ruleset; heal 0; } 2>/dev/null
is "the default" $parameter 5
speed

# found FROM TO LIMIT REGEX: checks that the loss was detected within LIMIT seconds, and its reason in the log.
found() { bound "noticed" $1 $2 1 $3; logged "connection lost: $4"; }
no_credit() { [ "$(</sys/class/scsi_host/$host/req_lim)" -le 1 ]; }
lost() { within $((${1-40} * factor / 1000)) "the connection is lost" not running; clock; lost=$now; }

if [ $kind = rxe ]; then
	note "ack_timeout and tos"
	echo 0 >$parameter
	nft "add table netdev tos; add chain netdev tos in { type filter hook ingress device v0 priority 0; };
		add rule netdev tos in udp dport 4791 ip dscp 26 counter" || fail "nft"
	marked() { nft list table netdev tos | sed -n 's/.* packets \([0-9]*\) .*/\1/p'; }
	# Three times 2.1 s. The connection manager's default would take 0.5 s.
	enter ,ch_count=1,tl_retry_count=2,ack_timeout=19,tos=0x68
	is "ack_timeout" /sys/class/scsi_host/$host/ack_timeout 19
	is "tos" /sys/class/scsi_host/$host/tos 104
	[ $(marked) -gt 0 ] || fail "no packet has this type of service"
	timeout 60 sg_reset -H $dev >$tmp/err 2>&1 || fail "sg_reset -H: $(<$tmp/err)"
	within 20 "running after the reset" running
	nft reset counters >/dev/null
	block write
	[ $(marked) -gt 0 ] || fail "no packet of the second connection has this type of service"
	mark
	hit hole both 0
	timeout 60 dd if=$dev of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
	lost
	found $hurt $lost 8 'send failed: transport retry counter exceeded'
	[ $((lost - hurt)) -gt 5000000 ] || fail "the second connection has another ack_timeout: $(ms $((lost - hurt)))"
	heal 0
	within 20 "running" running
	logout $host
else
	mark
	equal "ack_timeout" "$(write_login 0 "$(login_string 0 ,ack_timeout=14)")" "Operation not supported"
	logged "login refused: 'ack_timeout=14': not for an iWARP port"
fi

echo 5 >$parameter
enter ,ch_count=1
for load in idle busy abort; do
	note "$load, and the target is paused"
	if [ $load = busy ]; then
		start_io $dev --iodepth=64 --rw=randread --bs=4k --size=4m --time_based --runtime=200
		fio=$!
	fi
	[ $load = idle ] || within 20 "no credit left" no_credit
	if [ $load = abort ]; then
		# Its timeout is shorter than that of the reads, as is that of udev's and multipathd's commands.
		tell on 12 hold
		sg_raw -t 2 -r 36 $dev 12 00 00 00 24 00 >/dev/null 2>&1 &
		hears "the INQUIRY" 'opcode=12 .* held$'
	fi
	mark
	hit kill -STOP $odd
	lost
	found $hurt $lost 15 'no response to a connection test'
	kill -CONT $odd
	[ $load != abort ] || tell on 12 normal
	within 30 "running" running
done
kill -INT $fio
reap 60 "fio" $fio
grep -q 'err= 0' $tmp/fio || fail "fio: $(grep -i err= $tmp/fio)"
ok "$kind"
