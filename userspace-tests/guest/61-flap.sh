#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A target accepts each login and logs us out a second later: a connection is replaced immediately only if it lived
# longer than a limit that grows each time, and at most ten losses per minute are logged.
#
# deadline: 300
# takes: 144
# runs: rxe kasan long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
rust_driver || skip "the C driver waits for reconnect_delay each time"
odd_target

losses=0
# flap SECONDS: the target logs us out whenever the session has lived for 1.05 s. Sets `logins` and `lines`, `since` and
# `until`.
flap() {
	local n end=$((SECONDS + $1))
	clock; since=$now
	mark_said
	while [ $SECONDS -lt $end ]; do
		until running; do
			[ $SECONDS -lt $end ] || break 2
			sleep 0.05
		done
		sleep 1.05
		# `tell` would restart the count.
		echo "send logout 0" >&$telling
		losses=$((losses + 1))
		for ((n = 0; n < 100; n++)); do running || break; sleep 0.02; done
	done
	logins=$(times 'login multi=0')
	clock; until=$now
	lines=$(log_since | grep -c 'connection lost')
	within 30 "running after the last loss" running
}

enter
echo 10 >$(rport_of $host)/reconnect_delay || fail "reconnect_delay"
mark
flap 40
say "reconnect_delay 10: $logins logins in 40 s"
[ $logins -le 7 ] || fail "$logins logins in 40 s"
# Converts the shortfall to time.
[ $logins -ge 4 ] || exceeded $((40000000 * (4 - logins) / 4)) $since $until "$logins logins in 40 s"
block write
block read

# With the minimum delay there are more losses than may be logged.
echo 1 >$(rport_of $host)/reconnect_delay || fail "reconnect_delay"
flap 60
say "reconnect_delay 1: $logins logins in 60 s, $lines losses in the log"
[ $logins -ge 15 ] || exceeded $((60000000 * (15 - logins) / 15)) $since $until "$logins logins in 60 s"
[ $lines -le 21 ] || fail "$lines losses in the log"
told() { log_has 'earlier losses not logged'; }
if [ $lines -lt $losses ] && ! told; then
	# The next minute has ten lines of its own.
	sleep 60
	flap 3
	told || fail "the log does not say what it leaves out: $lines of $losses"
fi
block write
block read

# With both other timeouts off the class reconnects forever by itself; the port stays in state running.
for tmo in fast_io_fail_tmo dev_loss_tmo; do echo off >$(rport_of $host)/$tmo || fail "$tmo"; done
more() { [ $(times 'login multi=0') -gt $n ]; }
mark_said
for n in 0 1 2 3 4 5; do
	sleep 1.05
	echo "send logout 0" >&$telling
	within 20 "no timeouts: login $((n + 1))" more
done
block write
block read
logout $host
no_complaints
ok "$kind"
