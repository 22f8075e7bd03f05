#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# papers-guest.sh rxe|siw|vfab micro|io|reads|far|wss|xor|cost|scale|ipoib: runs a part of ci/papers.sh in a guest. The
# results are lines on the console.
#
# deadline: 100000
# cable: creates two hosts with the addresses of fabric_pair, and a router between them that delays packets. A delay in
# a host's own queue would count towards rxe's limit of unsent packets.
cable() {
	local at
	ip netns add $ns && ip netns add cable && ip netns exec cable sysctl -qw net.ipv4.ip_forward=1 || fail "no router"
	for at in v w; do
		ip link add ${at}0 mtu ${MTU:-1500} type veth peer name $at netns cable mtu ${MTU:-1500} &&
			ip -n cable link set $at up &&
			tc -n cable qdisc add dev $at root netem limit 10000 delay 0ms || fail "no cable $at"
	done
	ip link set w0 netns $ns
	ip addr add 10.0.0.1/24 dev v0 && ip link set v0 up
	ini ip link set lo up && ini ip addr add 10.0.0.2/24 dev w0 && ini ip link set w0 up
	ip -n cable route add 10.0.0.1/32 dev v && ip -n cable route add 10.0.0.2/32 dev w || fail "no route"
	ip neigh replace 10.0.0.2 lladdr $(mac ip -n cable link show v) dev v0
	ini ip neigh replace 10.0.0.1 lladdr $(mac ip -n cable link show w) dev w0
	ip -n cable neigh replace 10.0.0.1 lladdr $(mac ip link show v0) dev v
	ip -n cable neigh replace 10.0.0.2 lladdr $(mac ini ip link show w0) dev w
	paired=1
	rdma link add rxe0 type rxe netdev v0 || fail "cannot make rxe0"
	pair_device 0
	baseline
}
mac() { "$@" | sed -n 's/.*link.ether \([^ ]*\).*/\1/p'; }
length() {
	local at
	for at in v w; do tc -n cable qdisc change dev $at root netem limit 10000 delay ${1}us || fail "no delay of $1"; done
}

case $2 in
micro)
	chmod +x /srp/xor && /srp/xor instructions >/dev/kmsg || exit 1
	# The module measures when it is loaded.
	for kind in rxe siw; do
		modprobe -a dummy $([ $kind = siw ] && echo siw || echo rdma_rxe) || exit 1
		n=$((n + 1))
		ip link add dummy$n type dummy && ip addr add 10.0.$n.1/24 dev dummy$n && ip link set dummy$n up &&
			rdma link add ${kind}0 type $kind netdev dummy$n || exit 1
	done
	modprobe ib_srp && rmmod ib_srp
	;;
io|reads|far|wss|xor|cost|scale|ipoib)
	. /srp/tests/lib.sh
	udevadm control --exit
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	begin
	# Microseconds in each direction.
	delays=${FAR//,/ }
	# rxe has at most 128 packets in flight, which is a single command of 128 KiB with packets of 1 KiB.
	[[ $2 != @(far|wss) ]] || MTU=4200
	if [[ $2 = @(wss|xor|cost|scale) ]]; then
		. /srp/papers-$2.sh
		exit
	fi
	if [ $2 = far ]; then cable; else fabric 1; fi
	target 0
	back_null disk0 256
	lun 0 0 disk0
	dd if=/dev/zero of=${backdev[disk0]} bs=1M oflag=direct status=none 2>/dev/null
	if [ $2 = ipoib ]; then
		ipoib
		truncate -s 1M /dev/shm/served
		python3 -B /srp/papers-ipoib.py serve 10.0.0.1 /dev/shm/served >$tmp/served &
		within 20 "a listener" grep -q listens $tmp/served
		login 0
		quiet "$(disk $host 0)"
		ini python3 -B /srp/papers-ipoib.py measure 10.0.0.1 "$(disk $host 0)" || fail "papers-ipoib.py"
		logout $host
		unipoib
		exit
	fi
	if [ $2 != far ]; then
		python3 -B /srp/papers-io.py $2 "$(add_target 0)" "$(login_string 0)" || fail "papers-io.py"
		exit
	fi
	# Initiator ports of the clients.
	for acl in $(printf "${tpg[0]}/acls/0x%016x${gid:16}\n" 4 5 6 7 8 9); do
		mkdir $acl $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "cannot make the ACL $acl"
	done
	for delay in $delays; do
		length $delay
		ini python3 -B /srp/papers-io.py far=$delay "$(add_target 0)" "$(login_string 0)" || fail "papers-io.py"
	done
	;;
esac
