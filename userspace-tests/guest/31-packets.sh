#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A bad network loses, corrupts, duplicates, delays and reorders packets. All I/O continues without errors, possibly
# slowly.
#
# deadline: 600
# takes: 200
# runs: siw kasan long LONG=
# runs: rxe kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
# rxe cannot handle the loss of a part of an RDMA READ response (a warning in rxe_comp.c, also with the C driver), so
# writes use immediate data.
writes() { echo 8; }
testbed
retries=7
netem 0 loss 0%
attach 0
trace $host
verify $dev2
journal $dev --rport port-${host#host}:1
# With a rate, netem keeps the order despite the jitter. Otherwise no rxe queue pair survives 0.1 s.
jitter="delay 20ms 10ms"
[ $kind = siw ] || jitter+=" rate 1gbit"
for how in "loss 1%" "loss 5%" "corrupt 1%" "duplicate 5%" "$jitter" "delay 5ms reorder 25% 50%"; do
	note "$how"
	acked; before=$acked
	mark
	clock; t0=$now
	netem 0 $how
	sleep ${LONG:+2}5
	# rxe resends everything from the lost packet on: with 5 % loss a long message rarely gets through.
	within 60 "I/O with $how" has_acked $((before + 20))
	netem 0 loss 0%
	clock
	errors
	say "$how: $((acked - before)) requests in $(ms $((now - t0))), $errors errors"
	[ $errors = 0 ] || fail "$how: errors"
	# With rxe-retry.patch the transport retries after the loss of a packet of a command with registered memory.
	[ "$how" != "loss 1%" ] || ! log_since | grep "connection lost" || fail "$how: the transport has not retried"
done
verified
alive 2
settle
once
ok "$kind"
