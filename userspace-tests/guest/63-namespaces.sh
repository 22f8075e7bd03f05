#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# RDMA devices that belong to network namespaces (`rdma system set netns exclusive`): the ports are visible exactly
# where the C driver of the same kernel shows them. There are no logins: rxe loses its QP1, which connections need, when
# it moves to another namespace, and siw cannot move.
#
# deadline: 300
# takes: 12
# runs: rxe kasan fast long
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "there is nothing to compare the C driver with"
ours=${SRP_MODULE-}
[ -n "$ours" ] || ours=$(modinfo -n ib_srp)
theirs=$(find "/lib/modules/$(uname -r)/kernel" -name 'ib_srp.ko*')
[ -f "$theirs" ] || fail "this kernel has no C driver"

# far COMMAND...: runs COMMAND in the namespace `far`, with the /sys of that namespace.
far() { ip netns exec far "$@"; }
shared() { rdma system set netns shared; }
undo() {
	ip netns delete far
	ip netns delete near
	within 20 "RDMA devices for all namespaces" shared
}
rdma system set netns exclusive || fail "RDMA devices cannot belong to namespaces"
ip netns add far && ip netns attach near $$ || fail "cannot make a network namespace"
ip link add dummy0 type dummy && ip link set dummy0 up && rdma link add rxe0 type rxe netdev dummy0 &&
	ip link add dummy5 netns far type dummy && far ip link set dummy5 up &&
	nsenter --net=/run/netns/far rdma link add rxe5 type rxe netdev dummy5 &&
	rdma dev set rxe5 netns far || fail "cannot make the devices"
baseline
add=/sys/class/infiniband_srp/srp-rxe5-1/add_target

# Prints where the ports are visible.
show_ports() {
	echo "first: $(ls /sys/class/infiniband_srp | paste -sd' ')"
	echo "far: $(far ls /sys/class/infiniband_srp | paste -sd' ')"
}
# go WHERE NAMESPACE: moves the device from NAMESPACE to WHERE; its port moves too.
go() {
	nsenter --net=/run/netns/$2 rdma dev set rxe5 netns $1 || fail "the device cannot go from $2 to $1"
	show_ports
}
# all FILE
all() {
	! loaded ib_srp || unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
	insmod "$1" || fail "insmod $1"
	within 10 "the ports" far test -e $add
	show_ports
	go near far
	within 10 "the port of the first namespace" test -e $add
	go far near
	[ ! -e $add ] || return 0
	# Another device of the same name, if names are per namespace.
	ip link add dummy6 type dummy && ip link set dummy6 up && rdma link add rxe6 type rxe netdev dummy6 &&
		rdma dev set rxe6 name rxe5 || fail "no second rxe5"
	within 10 "the port of the second rxe5" test -e $add
	show_ports
	far rdma dev set rxe5 name rxe7 || fail "no other name"
	show_ports
	far rdma dev set rxe7 name rxe5 && rdma link delete rxe5 && ip link delete dummy6 || fail "the second rxe5 stays"
}
all $theirs >$tmp/c || exit 1
all $ours >$tmp/said || exit 1
say "$(paste -sd, $tmp/said)"
cmp $tmp/c $tmp/said || { diff $tmp/c $tmp/said; fail "the drivers show the ports in other places"; }
grep -q '^far: .*srp-rxe5-1' $tmp/said || fail "the port is not seen in its namespace"
ok "ports are in the namespace of their device where the C driver's are: $(head -n 2 $tmp/c | paste -sd,)"
