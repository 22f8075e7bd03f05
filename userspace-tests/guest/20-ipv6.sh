#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logins over IPv6 with a global and with a link-local address, and over IPv4 without a source address.
#
# deadline: 120
# takes: 52
# runs: rxe kasan fast long kmemleak=on
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = rxe ] || skip "rxe only"
begin
fabric 1
ip addr add fd00::1/64 dev dummy0 nodad || skip "no IPv6"
back_null disk 16
target 0
lun 0 0 disk
head -c 1M /dev/urandom >$tmp/a
g=$(service_guid)
local=$(ip -6 -o addr show dev dummy0 scope link | awk '{sub("/.*", "", $4); print $4}')
link_local() { ! ip -6 addr show dev dummy0 tentative | grep inet6 >/dev/null; }
within 10 "the link-local address" link_local
for where in "src=[fd00::1],dest=[fd00::1]:$port" "dest=[fd00::1]:$port" \
	"src=[$local%dummy0],dest=[$local%dummy0]:$port" \
	"dest=10.0.0.1:$port" "src=10.0.0.1:0,dest=10.0.0.1:$port"; do
	login_string() { echo "id_ext=$g,ioc_guid=$g,$where"; }
	login 0
	d=$(disk "$host" 0)
	dd if=$tmp/a of=$d bs=64k oflag=direct status=none || fail "write: $where"
	dd if=$d bs=64k count=16 iflag=direct status=none | cmp - $tmp/a || fail "data: $where"
	say "$where"
	logout "$host"
	clean
done
ok rxe
