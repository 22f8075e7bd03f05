#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logins that must fail: each returns the right error, and our driver logs the reason.
#
# deadline: 300
# takes: 44
# runs: rxe kasan fast long kmemleak=on
# runs: siw vfab kasan long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric_pair 1
back_ram disk 4
target 0
lun 0 0 disk
g=$(service_guid)
from 0
where=src=$src,dest=$dest:$port

# refused WHAT STRING ERROR...: checks that the login fails with one of the errors.
refused() {
	local what=$1 string=$2 t error before e
	shift 2
	before=$(hosts)
	mark
	clock; t=$now
	error=$(write_login 0 "$string")
	clock
	[ -n "$error" ] || fail "$what: was accepted"
	for e; do [ "$error" = "$e" ] && break; done
	[ "$error" = "$e" ] || fail "$what: got '$error', wanted one of: $*"
	equal "hosts after '$what'" "$(hosts)" "$before"
	in_time "$what" $t $now 15000000
	say "$what: $error after $(ms $((now - t)))"
}
# named REGEX: waits for our driver's log line that matches. siw loses the private data of a rejection: it reports a
# reset, and rdma_consumer_reject_data() returns nothing.
named() {
	rust_driver || return 0
	[ "$kind" != siw ] || { logged 'ib_srp: .*rejected'; return; }
	logged "ib_srp: .*($1)"
}

refused "wrong service GUID" "id_ext=0000000000000001,ioc_guid=0000000000000001,$where" "Connection reset by peer"
logged 'reject.*0x0*10003'
named 'associat.*0x0*10003'

# Skipped on siw: ib_srpt of 7.2 frees the buffers of this channel before siw has delivered the flushed receives, and
# the target oopses.
if [ "$kind" != siw ]; then
	refused "initiator that the target does not know" "id_ext=$g,ioc_guid=$g,$where,initiator_ext=00000000deadbeef" \
		"Connection reset by peer"
	logged 'reject.*0x0*10006'
	named '(limit|ACL|access).*0x0*10006'
fi

refused "no listener" "id_ext=$g,ioc_guid=$g,src=$src,dest=$dest:$((port + 1))" "Connection reset by peer" \
	"Connection refused"
named 'invalid service|service id|nobody|listen'

echo 0 >${tpg[0]}/enable
refused "target disabled" "id_ext=$g,ioc_guid=$g,$where" "Connection reset by peer"
logged 'reject.*0x0*10001'
named 'insufficient.*0x0*10001'
echo 1 >${tpg[0]}/enable

# The other cases use IPv4 addresses, and their packets never reach the target.
refused "no route" "id_ext=$g,ioc_guid=$g,src=10.0.0.2,dest=192.0.2.1:$port" \
	"Network is unreachable" "No such device" "No such device or address" "No route to host"
refused "source address that is not ours" "id_ext=$g,ioc_guid=$g,src=192.0.2.7,dest=10.0.0.1:$port" \
	"No such device" "No such device or address" "Cannot assign requested address" "Invalid argument" \
	"Network is unreachable"
refused "source address of another host" "id_ext=$g,ioc_guid=$g,src=10.0.0.1,dest=10.0.0.1:$port" \
	"No such device" "No such device or address" "Cannot assign requested address" "Invalid argument" \
	"Network is unreachable" "Connection reset by peer"
within 10 "nothing of ours" nothing_ours

# A second identical login is refused, and the first session is not affected.
login 0
first=$host
d=$(disk "$host" 0)
refused "twice the same target" "$(login_string 0)" "File exists"
logged 'already (connected|logged in)'
dd if=$d of=/dev/null bs=4k count=16 iflag=direct status=none || fail "I/O on the first session"
login 0 ,initiator_ext=0000000000000001
# Each session has its own protection domain, so it cannot access the memory regions of another one.
! rust_driver || equal "protection domains of two sessions" "$(resources pd | grep -cF '[ib_srp]')" 2
logout "$host"
logout "$first"
login 0
logout "$host"
clean
ok "$kind"
