# SPDX-License-Identifier: GPL-2.0
# RDMA devices, in one host or two.

# For vfab: the number of targets, and with two hosts a pattern for the initiator's devices.
ns=ini
paired=
targets=1
initiators=

# fabric N: creates N devices, device i on its own dummy netdev (with MTU if set) at 10.0.i.1. The MAC address, of which
# the device makes its GUID, is fixed, as an adapter's is. Each is both the initiator's and the target's port. siw
# listens only on its own netdev, and traffic to a local address never passes it, so siw gets two hosts; and IPv6,
# because the target's only listener is an IPv6 socket, on which siw does not support IPv4. On vfab target i has adapter
# i, and its initiator adapter N+i.
fabric() {
	local i
	[ $kind != vfab ] || { targets=$1; subnet $(($1 * 2)); return; }
	[ $kind = rxe ] || { fabric_pair "$1"; return; }
	for ((i = 0; i < $1; i++)); do
		ip link add dummy$i mtu ${MTU:-1500} address 02:53:52:50:00:$(printf %02x $i) type dummy &&
			ip addr add 10.0.$i.1/24 dev dummy$i && ip link set dummy$i up || fail "cannot make dummy$i"
		rdma link add rxe$i type rxe netdev dummy$i || fail "cannot make rxe$i"
		within 10 "class device of rxe$i" test -e "$(add_target $i)"
	done
	baseline
}

# fabric_pair N: creates two hosts. Target device i has 10.0.i.1 and fd00:0:0:i::1; initiator device 10+i has 10.0.i.2
# and fd00:0:0:i::2, with a veth pair between them. The initiator's host is a network namespace. But siw opens its
# sockets in the namespace of the connecting task, which for a kernel thread is the first namespace. So with siw there
# is one host, which sends to itself over the pair. On vfab the hosts are connected by IP over InfiniBand.
fabric_pair() {
	local i
	[ $kind != vfab ] || { fabric $1; ipoib; paired=$1 initiators=vfab[$1-$(($1 * 2 - 1))]; baseline; return; }
	paired=$1
	if [ $kind = siw ]; then
		ip -6 rule add pref 100 lookup local && ip -6 rule del pref 0 || fail "this kernel has no routing rules"
	else
		ip netns add $ns || fail "cannot make a network namespace"
		ini ip link set lo up
	fi
	for ((i = 0; i < $1; i++)); do
		ip link add v$i address 02:53:52:50:00:$(printf %02x $i) type veth \
			peer name w$i address 02:53:52:50:01:$(printf %02x $i) || fail "cannot make a veth pair"
		[ $kind = siw ] || ip link set w$i netns $ns
		ip addr add 10.0.$i.1/24 dev v$i && ip link set v$i up
		ini ip addr add 10.0.$i.2/24 dev w$i && ini ip link set w$i up
		if [ $kind = siw ]; then
			ip addr add fd00:0:0:$i::1/128 dev v$i nodad && ip addr add fd00:0:0:$i::2/64 dev w$i nodad
			ip -6 rule add pref 10 iif lo from fd00:0:0:$i::2 to fd00:0:0:$i::1 lookup $((1000 + i))
			ip -6 rule add pref 10 iif lo from fd00:0:0:$i::1 to fd00:0:0:$i::2 lookup $((2000 + i))
		fi
		rdma link add $kind$i type $kind netdev v$i || fail "cannot make $kind$i"
		pair_device $i
		neighbours $i
	done
	baseline
}

# ini COMMAND...: runs COMMAND on the initiator's host. Its /sys is still that of the first namespace, which has the
# RDMA devices.
in_ns=(nsenter --net=/run/netns/$ns)
ini() { if [ $kind = siw ]; then "$@"; else "${in_ns[@]}" "$@"; fi; }

# Adds static neighbour entries: address resolution in a loaded guest can take longer than the second that RDMA/CM
# allows. Routes disappear with the link.
neighbours() {
	local v w
	# The pair disappears with the namespace of either end.
	[ -e /sys/class/net/v$1/address ] || return 0
	read -r v </sys/class/net/v$1/address
	w=$(ini ip -o link show w$1 | sed 's/.*link.ether \([^ ]*\).*/\1/')
	ip neigh replace 10.0.$1.2 lladdr $w dev v$1
	ini ip neigh replace 10.0.$1.1 lladdr $v dev w$1
	[ $kind = siw ] || return 0
	ip -6 route replace fd00:0:0:$1::1 dev w$1 table $((1000 + $1))
	ip -6 route replace fd00:0:0:$1::2 dev v$1 table $((2000 + $1))
	ip neigh replace fd00:0:0:$1::2 lladdr $w dev v$1
	ip neigh replace fd00:0:0:$1::1 lladdr $v dev w$1
}
pair_device() {
	if [ $kind = vfab ]; then
		adapter add $((targets + $1))
		within 60 "an ACTIVE port" all_active "$(initiator $1)"
		within 10 "class device of $(initiator $1)" test -e "$(add_target "$1")"
		return
	fi
	ini rdma link add ${kind}1$1 type $kind netdev w$1 || fail "cannot make ${kind}1$1"
	within 10 "class device of ${kind}1$1" test -e "$(add_target "$1")"
}

# Whether an adapter like PERSONALITY stops before a removal: no disk can be flushed, and the target learns nothing.
stops_first() { [[ ${PERSONALITY-} =~ ^(ionic|qedr|ocrdma)$ ]]; }
# How long a removal takes IPoIB, which real ones of these adapters do not have, in ms: with ionic's, whose verbs fail,
# it waits for its receives and for the subnet manager.
ipoib_ms=0
[ "${PERSONALITY-}" != ionic ] || ipoib_ms=12000
# Removes the initiator's device of path I, until `pair_device I`.
device_goes() {
	if [ $kind = vfab ]; then adapter remove $((targets + $1)); else timeout 100 rdma link delete $(initiator $1); fi
}

# The ends of path I as DEVICE or DEVICE/PORT, if they differ from the default of `kind`.
declare -A tport=() iport=()
# port_of DEVICE[/PORT]: sets `device` and `number` (default 1).
port_of() { device=${1%/*} number=1; [[ $1 != */* ]] || number=${1#*/}; }

# Prints the initiator's RDMA device for target I, and its add_target file.
initiator() {
	if [ -n "${iport[$1]-}" ]; then echo ${iport[$1]}; elif [ $kind = vfab ]; then echo vfab$((targets + $1)); else echo \
		$kind${paired:+1}$1; fi
}
add_target() {
	local device number
	port_of "$(initiator $1)"
	echo "/sys/class/infiniband_srp/srp-$device-$number/add_target"
}

# Sets `gid` to the 16 bytes of GID 0 of DEVICE[/PORT] as hex digits.
gid() {
	local device number
	port_of $1
	read -r gid </sys/class/infiniband/$device/ports/$number/gids/0
	gid=${gid//:/}
}

unfabric() {
	local d
	[ $kind != vfab ] || unsubnet
	for d in /sys/class/infiniband/{rxe,siw}[0-9]*; do
		[ ! -e "$d" ] || timeout 60 rdma link delete "$(basename "$d")"
	done
	for d in /sys/class/net/dummy*; do [ ! -e "$d" ] || ip link delete "$(basename "$d")"; done
	[ $kind != vfab ] || return 0
	for ((d = 0; d < ${paired:-0}; d++)); do ip link delete v$d; done
	[ -z "$paired" ] || [ $kind = siw ] || ip netns delete $ns
	[ -n "$paired" ] && [ $kind = siw ] || return 0
	ip -6 rule add pref 0 lookup local
	ip -6 rule del pref 100
	for ((d = 0; d < 2 * paired; d++)); do ip -6 rule del pref 10; done
}
