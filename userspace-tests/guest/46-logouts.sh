#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logout by the target is followed by an immediate reconnect. Logout by the initiator sends a message on each channel
# and takes at most a second.
#
# deadline: 200
# takes: 59
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt rtdebug long LONG=
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
undo() { udevadm control --start-exec-queue; } 2>/dev/null
odd_target
enter
echo 30 >$(rport_of $host)/reconnect_delay || fail "reconnect_delay"
for reason in "0 no reason" "1 inactive channel" "4 new login"; do
	# A connection must live this long to be replaced immediately.
	sleep 1.5
	mark
	listen
	verified 4 &
	fio=$!
	sleep 1
	tell send logout ${reason%% *}
	if rust_driver; then
		logged "logged out by the target: .*${reason#* } "
		hears "another login" 'login multi=0' 5
		within 5 "running" running
	fi
	reap 110 "fio" $fio || fail "I/O errors"
	told ended
	no_reports
done
say "after a logout of the target I/O went on"

logout $host
if rust_driver; then hears "a logout" 'message channel=0 opcode=03 length=16'; fi
hears "the end" 'gone channel=0'
clean
enter ,ch_count=2
channels=$(</sys/class/scsi_host/$host/ch_count)
mark_said
logout $host
for ((i = 0; i < channels; i++)); do hears "the end" "gone channel=$i"; done
if rust_driver; then
	equal "logouts of $channels channels" $(times 'message channel=[01] opcode=03') $channels
	! tail -n +$((heard + 1)) $tmp/odd | grep -A 99 'opcode=03' | grep 'command' >/dev/null ||
		fail "a command after the logout: $(tail $tmp/odd)"
fi
clean

# On iWARP a message without a receive buffer ends the connection.
if [ $kind = rxe ]; then
	enter ,ch_count=1
	udevadm control --stop-exec-queue
	quiet $dev
	tell receive off
	# Uses up the target's receive buffers, one per command, so that the logout message finds none.
	timeout 60 dd if=$dev of=/dev/null bs=4k count=40 iflag=direct 2>$tmp/dd || fail "dd: $(<$tmp/dd)"
	equal "commands" $(times 'command ') 40
	clock; since=$now
	logout $host
	# The connection ends after the host.
	within 10 "the end of the connection" nothing_ours
	clock; t=$(((now - since) / 1000))
	undo
	! has_said 'opcode=03' || fail "there was a buffer for the logout"
	in_time "a logout that the target does not take" $since $now 4000000
	! rust_driver || [ $t -ge 900 ] || fail "a wait of only $t ms for a logout that the target does not take"
	say "a logout that the target does not take: $t ms"
	clean
fi
no_complaints
ok "$kind"
