#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# IP over InfiniBand between two virtual adapters, with the kernel's ib_ipoib and groups that opensm creates: ping,
# multicast, TCP; a login by RDMA/CM over it, and a cable unplugged under I/O.
#
# deadline: 400
# takes: 133
# runs: vfab kasan long GAPS=2
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
modinfo ib_ipoib >/dev/null 2>&1 || skip "this kernel has no ib_ipoib"
begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk

packets=(timeout -k 5 120 python3 "$here/ipoib.py")
# ping BYTES ADDRESS: runs on the initiator's host.
ping() { said=$(ini "${packets[@]}" ping "$2" "$1" 2>&1) || fail "$said"; }

# Twice, because ib_ipoib must leave nothing behind.
for round in 1 2; do
	ipoib
	ping 56 10.0.0.1
	ping 1900 10.0.0.1
	ping 1000 fd00::1
	[ $round = 2 ] || unipoib
done

# The administrator has the all-hosts group.
tool saquery -g
grep -qi 'MGID\.*ff12:401b:ffff::ffff:ffff' <<<"$said" || fail "no group of all hosts: $said"

# A user's group, used through its GID and not through broadcast.
has_group() { tool saquery -g; grep -qi 'MGID\.*ff12:401b:ffff::f01:203' <<<"$said"; }
ini "${packets[@]}" hear 239.1.2.3 10.0.0.2 5000 >$tmp/heard &
hearer=$!
within 20 "group of 239.1.2.3" has_group
"${packets[@]}" tell 239.1.2.3 10.0.0.1 5000 "to all of them" &
teller=$!
within 40 "a datagram to 239.1.2.3" ended $hearer
kill $teller
equal "what was heard" "$(<$tmp/heard)" "to all of them"

"${packets[@]}" echo 10.0.0.1 5001 >$tmp/echo &
within 20 "a listener" grep -q listens $tmp/echo
said=$(ini "${packets[@]}" talk 10.0.0.1 5001 $((8 << 20)) 2>&1) || fail "TCP: $said"

CM=rdma paired=1 login 0 ,ch_count=2
rport=/sys/class/srp_remote_ports/port-${host#host}:1
running() { [ "$(<$rport/state)" = running ]; }
dev=$(disk "$host" 0)
verify_io 120 $dev --rw=randwrite --bs=64k --size=32M --iodepth=4 || fail "verified I/O"

# A cable is unplugged for longer than a connection survives, but not long enough for I/O errors.
echo 100 >$rport/fast_io_fail_tmo
start_verify_io $dev --rw=randwrite --bs=16k --size=24M --iodepth=4 --rate=1m
io=$!
sleep 3
ended $io && fail "I/O ended before the cable was pulled"
at_port vfab1 down
within 60 "loss of the connection" not running
at_port vfab1 up
within 60 "ACTIVE again" all_active vfab0 vfab1
within 60 "connection after the cable" running
io_ends $io 120 "cable pulled"
ping 56 10.0.0.1

# A new subnet manager knows no group until all members have joined again.
subnet_manager_ends vfab0
subnet_manager vfab0
within 60 "a new manager" manager_is vfab0 MASTER
ini ip neigh flush dev $inner
ping 56 10.0.0.1
verify_io 120 $dev --rw=randwrite --bs=4k --size=2M --iodepth=4 || fail "verified I/O after the manager"
logout "$host"
unipoib
ok "IPoIB on vfab"
