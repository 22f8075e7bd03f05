#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Changes to a path under I/O: opensm changes the LID of either end, a partition is removed and restored, the subnet
# prefix changes, hundreds of events arrive, the target's cable is unplugged. Only our driver has time limits.
#
# deadline: 400
# takes: 138
# runs: vfab kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
# The subnet manager is at neither end.
subnet 3 vfab2
back_null disk 32
target 0
lun 0 0 disk
speed
# Timeouts of the session. No command may fail.
reconnect_delay=10 fast_io_fail=60 dev_loss=120
mkfifo $tmp/idle
exec {idle}<>$tmp/idle

# move DEVICE: restarts opensm so that it assigns another LID.
move() {
	lid $1
	other_lids vfab2 $((lid + 20)) $1
}

# storm SECONDS: 100 events of our port per second. Sets `n` to their number.
storm() {
	local until
	clock
	until=$((now + $1 * 1000000)) n=0
	while [ $now -lt $until ]; do
		at_port vfab1 reregister
		read -rt 0.008 <&$idle
		n=$((n + 1))
		clock
	done
}
# Sets `lines` to the number of log lines of the driver and the transport class, and `attempts` to those about
# reconnects.
count_lines() {
	log_since | grep -E 'ib_srp: |scsi host[0-9]+: ' >$tmp/lines
	lines=$(wc -l <$tmp/lines)
	attempts=$(grep -cE 'reconnect failed|reconnect attempt' $tmp/lines)
}

summary=
login 0
rport=/sys/class/srp_remote_ports/port-${host#host}:1
limits
dev=$(disk "$host" 0)
journal $dev --rport port-${host#host}:1
alive 1

began "another LID at our end"
move vfab1
stood 4 5
began "another LID at the target"
move vfab0
stood 4 5

began "8 s without the partition"
at_port vfab1 pkey 0 0x8123
sleep 8
at_port vfab1 pkey 0 0xffff
stood 4 8

began "another prefix and the old one"
at_port vfab1 prefix 0xfec0000000000001
sleep 2
at_port vfab1 prefix 0xfe80000000000000
stood 2

began "a storm of events"
count_lines
before=$lines
storm 3
stood 2
count_lines
say "$n events with a connection: $((lines - before)) lines in the log"
! rust_driver || [ $lines = $before ] || fail "lines in the log: $(cat $tmp/lines)"

began "a storm without the target"
target_off 0
within 30 "the connection is lost" not state running
count_lines
before=$lines first=$attempts
storm 5
count_lines
say "$n events without a target: $((attempts - first)) attempts, $((lines - before)) lines in the log"
# 4 per second, plus those not caused by an event.
! rust_driver || { [ $((attempts - first)) -ge 3 ] && [ $((attempts - first)) -le 24 ]; } ||
	fail "$((attempts - first)) attempts in 5 s"
[ $((lines - before)) -le 60 ] || fail "$((lines - before)) lines in 5 s"
target_on 0
at_port vfab1 reregister
stood

began "5 s without the target's cable"
at_port vfab0 down
sleep 5
at_port vfab0 up
within 60 "ACTIVE again" all_active vfab0 vfab1
stood 10 10

settle
errors
[ $errors = 0 ] || fail "$errors errors"
say "$(driver)${summary/;/:}"
ok "$kind"
