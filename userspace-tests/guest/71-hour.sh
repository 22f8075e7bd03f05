#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# An hour of verified I/O (HOUR seconds; default 60): fio on one disk, limited to RATE reads and RATE writes per second
# if set, and the journal on another one. No error, no abort, no lost connection; the back end's data is correct at the
# end. ci/fabric-hour.sh runs it for an hour. The timeouts are the driver's defaults.
#
# deadline: 4500
# takes: 120
# runs: rxe+user siw+user kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
seconds=${HOUR:-60}
retries=7 reconnect_delay=10 fast_io_fail=15 dev_loss=600
# Messages of either driver.
rough='connection lost|abort of a command|ABORT_TASK|Aborted|SRP abort called|received DREQ'
rough+='|reconnect succeeded|WR flushed'
# Soft devices lose connections after 10 s with little CPU, which is no failure of the driver. Called by fail.
excuse() {
	! grep -q wrong $tmp/journal.events || return 0
	lacked 10 "non-flush error|$rough" || return 0
	say "the first loss: $(ms $stolen) of the 10 s before it without CPU"
	[ $stolen -lt 5000000 ] || too_slow "a connection was lost"
}
testbed
attach 0 ,ch_count=2
quiet $dev
quiet $dev2
trace $host
journal $dev --rport port-${host#host}:1
clock; t0=$now
start_verify_io $dev2 --rw=randrw --bsrange=4k-256k --iodepth=8 --size=24m --verify_backlog=64 --time_based \
	--runtime=$seconds --clocksource=clock_gettime ${RATE:+--rate_iops=$RATE}
fio=$!
within $((seconds + 120)) "the end of fio" or_ended $journal ended $fio
kill -0 $journal 2>/dev/null || fail "the journal ended: $(cat $tmp/journal.out $tmp/journal.err)"
reap 1 "fio" $fio || { grep -iE 'err|verify' $tmp/fio | head -n 5; fail "I/O errors"; }
clock
[ $((now - t0)) -ge ${seconds}000000 ] || fail "fio ended after $(ms $((now - t0)))"
errors $t0
[ $errors = 0 ] || fail "the journal saw $errors errors"
! log_has "$rough" || fail "it did not go smoothly"
unset -f excuse
settle
once
amount=$(sed -n 's/^ *\(READ\|WRITE\): .*io=\([^ ]*\) .*/\1 \2/p' $tmp/fio | paste -sd' ')
logout $host
ok "$(driver), $kind$user, $seconds s: $amount"
