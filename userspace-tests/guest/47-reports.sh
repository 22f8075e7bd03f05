#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Unsolicited messages of the target: asynchronous event reports and changes of the request limit. Each is answered. A
# report that the LUN inventory has changed triggers a scan, at most one per half minute. LUN lists of nearly 2^32
# bytes. A logout during a scan that waits.
#
# deadline: 200
# takes: 80
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt rtdebug long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
odd_target
rust_driver || skip "the C driver does not look for disks after a report"
enter ,ch_count=1
limit() { echo $(</sys/class/scsi_host/$host/req_lim); }
limit_is() { [ "$(limit)" = $1 ]; }
there() { [ -e /sys/bus/scsi/devices/${host#host}:0:0:$1 ]; }
tag=1234567890abcdef

tell luns 2
tell send report 6 3f 0e
hears "an answer" "message channel=0 opcode=42 length=16 tag=$tag"
within 10 "the new unit" there 1
t0=${EPOCHREALTIME/./}
logged "LUNs have changed, rescanning"

tell luns 3
for i in 1 2 3; do
	tell send report 6 3f 0e
	hears "an answer" "message channel=0 opcode=42 length=16 tag=$tag"
done
scans() { times 'opcode=a0'; }
sleep 5
! there 2 || fail "scanned again after $(((${EPOCHREALTIME/./} - t0) / 1000000)) s"

# Other reports are answered too, and change nothing.
mark
tell send report 6 29 0
hears "an answer" "message channel=0 opcode=42 length=16 tag=$tag"
logged "event report of the target.* ignored"
no_reports

quiet $dev
for change in 5 -7 2; do
	before=$(limit)
	tell send credits $change
	hears "an answer" "message channel=0 opcode=41 length=16 tag=$tag"
	equal "the request limit after a change by $change" $(limit) $((before + change))
done
# Credits that are taken back may be in use. Nothing is sent until they are available again.
before=$(limit)
tell send credits -$((before + 10))
hears "an answer" "message channel=0 opcode=41 length=16 tag=$tag"
equal "the request limit, all and ten more taken back" $(limit) -10
dd if=$dev of=/dev/null bs=4k count=1 iflag=direct 2>$tmp/dd &
reader=$!
for back in 5 5 1; do
	tell send credits $back
	hears "an answer" "message channel=0 opcode=41 length=16 tag=$tag"
	sleep 0.5
	kill -0 $reader 2>/dev/null || fail "a read without a credit: $(<$tmp/dd)"
done
tell send credits $((before - 1))
reap 60 "the read" $reader || fail "the read: $(<$tmp/dd)"
within 5 "the request limit as it was" limit_is $before
verified 2

within 40 "the third unit" there 2
clock; t=$(((now - t0) / 1000))
[ $t -ge 28000 ] || fail "scanned again after $t ms"
in_time "the next look" $t0 $now 36000000
say "three reports: one scan, $t ms after the first"
sleep 2
equal "scans in all" $(scans) 1
stayed "all that"

# The midlayer adds 8 to the size and allocates that much: nothing, or too little for a LUN.
for size in fffffff8 fffffff9 ffffffff; do
	tell luns 3 $size
	echo "- - -" >/sys/class/scsi_host/$host/scan || fail "scan"
	equal "questions for a list of 0x$size bytes" $(scans) 1
	verified 2
	stayed "a list of 0x$size bytes"
done
logout $host
clean
! grep -E "error channel|cannot" $tmp/odd || fail "something went wrong at the target"

# A logout while a scan waits for blocked disks.
blocked() { read -r now_state <"$(rport_of $host)/state" && [ "$now_state" = blocked ]; }
enter ,ch_count=1
echo off >$(rport_of $host)/fast_io_fail_tmo || fail "fast_io_fail_tmo"
tell on a0 hold
tell send report 6 3f 0e
hears "a scan" 'opcode=a0'
tell login silent
tell disconnect
within 10 "blocked disks" blocked
logout $host
clean
no_complaints
ok "$kind"
