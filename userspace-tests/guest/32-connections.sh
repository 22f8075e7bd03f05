#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Connections break: packets of one direction are lost, or on siw the TCP connection is reset or closed. The upper
# layers see no errors: commands are retried.
#
# deadline: 600
# takes: 45
# runs: rxe kasan fast long
# runs: siw rxe+user kasan long LONG=
# runs: rxe rt rtdebug long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
# The first reconnect attempt is immediate and must succeed: the next one would be too late.
reconnect_delay=60 fast_io_fail=15
testbed
# In a slow guest TCP waits longer before each retry.
for i in env ini; do $i sysctl -qw net.ipv4.tcp_retries2=1; done
attach 0
trace $host
verify $dev2
journal $dev --rport port-${host#host}:1

# broken WHAT BREAK... -- MEND...: the failure is detected in time; after MEND the I/O continues in time.
broken() {
	local what=$1 t1 break=()
	shift
	while [ "$1" != -- ]; do break+=("$1"); shift; done
	shift
	alive 1
	note "$what"
	hit "${break[@]}"
	detected "$what"
	clock; t1=$now
	"$@"
	until_event 30 $t1 '^state running$'
	until_event 20 $at '^(ok|state running)'
	bound "$what: running again" $t1 $at 10
}
reset() {
	nft "add table inet resets; add chain inet resets in { type filter hook input priority 0; };
		add rule inet resets in tcp dport $port reject with tcp reset" || fail nft
}
broken "nothing reaches the target" hole target 0 -- heal 0
broken "nothing reaches the initiator" hole initiator 0 -- heal 0
if [ $kind = siw ]; then
	# Until nft deletes the table, reconnects are refused.
	echo 1 >$rport/reconnect_delay
	broken "TCP reset" reset -- nft delete table inet resets
	echo $reconnect_delay >$rport/reconnect_delay
	broken "TCP sockets closed" ini ss -K -t state established "( dport = :$port )" -- :
fi
alive 2
verified
settle
once
ok "$kind"
