#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Initiators that violate the protocol, over real RDMA (userspace-tests/hostile): the user-space target neither
# crashes nor hangs, leaks nothing, and serves our driver's session all the time.
#
# deadline: 500
# takes: 166
# runs: rxe+user kasan fast long
# runs: siw+user kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
[ -n "$user" ] || skip "it is about the target in user space"
target_bad=panicked
hostile=$here/../srp-hostile
[ -f "$hostile" ] || skip "srp-hostile is not in this guest"
chmod +x "$hostile"
testbed
attach 0
from 0
quiet $dev
quiet $dev2
read -r pid <$tmp/target0.pid
descriptors() { set -- /proc/$pid/fd/*; echo $#; }
queue_pairs() { resources qp | grep -c "pid $pid "; }
before="$(descriptors) descriptors, $(queue_pairs) queue pairs"
as_before() { [ "$(descriptors) descriptors, $(queue_pairs) queue pairs" = "$before" ]; }

journal $dev --rport port-${host#host}:1
alive 1
clock; t0=$now
# run CASE...: runs hostile initiators and prints the result of each case.
run() {
	timeout 300 $([ $kind = siw ] || echo "${in_ns[@]}") "$hostile" "$dest:$port" ab ab "$@" >$tmp/hostile 2>&1
	status=$?
	while read -r line; do say "$line"; done <$tmp/hostile
}
run
[ $status = 0 ] || fail "srp-hostile ended with status $status"
# Kill hostile initiators during data transfers.
for n in 1 2 3; do
	$([ $kind = siw ] || echo "${in_ns[@]}") "$hostile" "$dest:$port" ab ab endless >$tmp/hostile 2>&1 &
	endless=$!
	within 20 "the first transfers" grep -q begins $tmp/hostile
	sleep 1.$n
	kill -KILL $endless
	reap 20 "a killed srp-hostile" $endless 2>/dev/null
done
run logins
[ $status = 0 ] || fail "srp-hostile ended with status $status"
alive 1
errors $t0
[ $errors = 0 ] || fail "$errors errors in the honest session"
! log_has 'connection lost|abort of a command' || fail "the honest session was disturbed"
settle
within 20 "nothing of theirs at the target: $before before, $(descriptors), $(queue_pairs)" as_before
read -r _ rss _ </proc/$pid/statm
say "$before, $((rss / 256)) MiB"
logout $host
ok "$kind"
