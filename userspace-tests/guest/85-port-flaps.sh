#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Our port flaps while the target is unreachable, and then is stable for half a minute before the path is restored. No
# event reports the restored path, so the next attempt is that of the transport class. The delays of the class must not
# have grown because of the attempts that the port triggered. The C driver panics here.
#
# deadline: 400 700
# takes: 133
# runs: rxe kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = rxe ] || skip "rxe only"
begin
fast_io_fail=250 dev_loss=500 reconnect_delay=10
testbed
attach 0
hit hole both 0
within 60 "the loss is noticed" state blocked
note "the port flaps"
end=$((SECONDS + 45)) flaps=0
while [ $SECONDS -lt $end ]; do
	ini ip link set w0 down || fail "ip link set w0 down"
	sleep 0.3
	ini ip link set w0 up || fail "ip link set w0 up"
	neighbours 0
	sleep 0.7
	flaps=$((flaps + 1))
done
# Wait for the end of the last attempt that the port triggered.
sleep 35
state blocked || fail "the port is $now_state without a path to the target"
clock; t1=$now
heal 0
within 150 "running again" state running
clock
say "$flaps flaps, $(<$rport/failed_reconnects) failed attempts of the class; running after $(ms $((now - t1)))"
! rust_driver || bound "running again" $t1 $now 5 $((3 * reconnect_delay))
logout $host
ok "$kind"
