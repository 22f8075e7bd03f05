#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The path is lost for 2 s, for 8 s, and repeatedly: behind a switch, so that the ports do not notice, and on siw also
# by unplugging the cable. On rxe a port that is down during a login does not prevent the next one.
#
# deadline: 400
# takes: 85
# runs: rxe kasan fast long
# runs: siw vfab siw+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
# A manager whose sweep finds its own port without a cable looks again at its next one.
SWEEP=1
testbed
attach 0
trace $host
verify $dev2
journal $dev --rport port-${host#host}:1

# outage SECONDS BREAK MEND: interrupts the path. A short outage causes no errors. Otherwise errors start in time, and
# end when the path is back.
outage() {
	local t1 seconds=$1
	note "$seconds s: ${*:2}"
	alive 1
	hit $2
	detected "$seconds s"
	if [ $seconds -gt $fast_io_fail ]; then
		until_event 20 $t0 '^error'
		bound "$seconds s: errors" $hurt $at 10
	fi
	clock
	[ $((now - hurt)) -ge ${seconds}000000 ] || sleep $(((hurt + ${seconds}000000 - now) / 1000000)).5
	clock; t1=$now
	$3
	until_event 20 $t1 '^ok'
	bound "$seconds s: I/O resumed" $t1 $at 10
	until_event 20 $t1 '^state running$'
	if [ $seconds -lt $fast_io_fail ]; then
		errors $t0
		[ $errors = 0 ] ||
			exceeded $((at - t0 - fast_io_fail * 1000000)) $t0 $at "$errors errors after an outage of $seconds s"
	fi
}
pull() { cable down 0; }
plug() { cable up 0; }
dark() { hole both 0; }
light() { heal 0; }

lose=dark mend=light
# In a slow guest a login takes longer too, and must finish in time.
limit=$fast_io_fail
fast_io_fail=$(((limit * factor + 999) / 1000))
limits
outage 2 dark light
if [ $kind = siw ]; then
	lose=pull mend=plug
	outage 2 pull plug
fi
verified
fast_io_fail=$limit
limits
outage 8 $lose $mend
note "a bad contact"
clock; t0=$now
for i in 1 2 3 4 5 6 7 8; do
	$lose
	sleep 0.$((RANDOM % 8 + 1))
	$mend
	sleep 0.$((RANDOM % 8 + 1))
done
clock; t1=$now
goes_on 20
within $((20 * factor / 1000)) "running after the bad contact" state running
clock
bound "bad contact: running again" $t1 $now 10
alive 2
settle
once
if [ $kind = rxe ]; then
	note "the port is down while a login request is repeated"
	logout $host
	dark
	write_login 0 "$(login_string 0)" >/dev/null &
	sleep 2
	ini ip link set w0 down || fail "ip link set w0 down"
	# The connection manager repeats the login request every 4 s.
	sleep 10
	ini ip link set w0 up || fail "ip link set w0 up"
	reap 60 "the login" $! || true
	light
	attach 0
fi
ok "$kind"
