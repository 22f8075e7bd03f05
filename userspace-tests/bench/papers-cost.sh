# SPDX-License-Identifier: GPL-2.0
# The part cost of papers-guest.sh, which sources this: the instructions and stored bytes of each role for a command,
# which roles.c counts, beside LIO. Each host has its own device; packets have 4 KiB.
ns=client in_ns=(nsenter --net=/run/netns/client)
MTU=4200
. "$here/hosts.sh"
. "$here/set.sh"
. /srp/papers-own.sh
own wss srp-target xorset

# wants WAY: whether PARTS, if there is one, has it.
wants() { [[ ,${PARTS-$1}, == *,$1,* ]]; }
# measure WAY LOGIN [ROLE=PID]...
measure() {
	local roles="${*:3}"
	"${in_ns[@]}" python3 -B /srp/papers-io.py "cost=$1,${roles// /,}" "$(add_target 0)" "$2" || fail "papers-io.py $1"
}
# stop HOST...: ends their processes.
stop() {
	local h
	for h; do
		kill ${serving[$h]}
		within 20 "the end of $h" ended ${serving[$h]}
		unset "serving[$h]"
		: >$tmp/$h
	done
}
at() { echo 10.0.${number[$1]}.2:$2; }
# gid_of DEVICE ADDRESS: prints the index of the GID of this address, the end of it as hexadecimal digits.
gid_of() { grep -l "ffff:$2" /sys/class/infiniband/$1/ports/1/gids/* 2>/dev/null | sed 's,.*/,,' | head -n 1; }
# bare BYTES: a message each way by bare verbs and events, without SRP, disk or role.
bare() {
	local options="--size=$1 --iters=200 --mtu=4096 --events" took
	timeout 100 ibv_rc_pingpong --ib-dev=rxe0 --gid-idx=$(gid_of rxe0 0a00:0001) $options >$tmp/pong 2>&1 &
	within 20 "a listener" listening
	ini timeout 100 ibv_rc_pingpong --ib-dev=rxe10 --gid-idx=$(gid_of rxe10 0a00:0002) $options 10.0.0.1 \
		>$tmp/ping 2>&1 || fail "ibv_rc_pingpong: $(<$tmp/ping)"
	took=$(sed -n 's,.* = \([0-9.]*\) usec/iter,\1,p' $tmp/ping)
	echo "srp_bench: cost_bare bytes=$1 us=$took" >/dev/kmsg
}
listening() { ss -ltn | grep -q :18515; }
# ring BYTES: the same by RDMA WRITE with immediate into registered rings (rsockets), with a copy at each end.
ring() {
	local options="-T b -S $1 -C 1 -I 200 -B 524288" took
	timeout 100 rstream -b 10.0.0.1 $options >$tmp/pong 2>&1 &
	within 20 "a listener" rings
	ini timeout 100 rstream -b 10.0.0.2 -s 10.0.0.1 $options >$tmp/ping 2>&1 || fail "rstream: $(<$tmp/ping)"
	took=$(awk '$1 == "custom" { print $NF }' $tmp/ping)
	[ -n "$took" ] || fail "rstream: $(<$tmp/ping)"
	echo "srp_bench: cost_ring bytes=$1 us=$took" >/dev/kmsg
	reap 20 "rstream" $! || fail "rstream: $(<$tmp/pong)"
}
rings() { rdma resource show cm_id | grep -q 'state LISTEN.*:7471'; }

make_hosts client n0 n1 n2 n3 n4
mkdir -p $files
# The targets of one process have a device on the client's link.
rdma link add rxe0 type rxe netdev v0 || fail "cannot make rxe0"
if wants bare; then
	bare 4096
	bare 131072
	mkdir -p /etc/rdma/rsocket
	echo 0 >/etc/rdma/rsocket/polling_time
	ring 4096
	ring 131072
fi
if wants lio; then
	target 0
	back_null disk0 64
	lun 0 0 disk0
	guid=$(service_guid)
	measure lio "id_ext=$guid,ioc_guid=$guid,src=10.0.0.2,dest=10.0.0.1:$port"
fi

truncate -s 64M $files/plain $files/one
if wants target; then
	"$here/../srp-target" --lun $files/plain --id-ext ab --ioc-guid cd --listen 10.0.0.1:5556 >>$tmp/target 2>&1 &
	serving[target]=$!
	within 60 "srp-target" says target ^listens
	measure target id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=10.0.0.1:5556 srp-target=${serving[target]}
	stop target
fi

# wss WAY MIB [ANSWERS]: with a cache of that size, and other roles that answer.
wss() {
	wants $1 || return 0
	"$here/../wss" format --number 7 --object 0 --file $files/one --thin --relabel >/dev/null || fail "format"
	serve n2 "$here/../wss" rs --number 7 --file $files/one --id-ext ab --ioc-guid cd --listen $(at n2 5559)
	serve n0 "$here/../wss" se --rs $(at n2 5559) --lun 7/0 --id-ext ab --ioc-guid cd --listen $(at n0 5556)
	serve n1 "$here/../wss" ce --member 1 --se $(at n0 5556) --rs $(at n2 5559) --id-ext ab --ioc-guid cd \
		--cache $2 --listen $(at n1 5557)
	within 60 "the RS at the SE" says n0 'all RS are here'
	within 60 "the CE" says n1 'attached to RS 7'
	measure $1 "id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=$(at n0 5556),answers_from=$(at n1 5557)${3-}" \
		SE=${serving[n0]} CE=${serving[n1]} RS=${serving[n2]}
	stop n0 n1 n2
}
wss wss 64
# The cache has a sixteenth of the blocks, so that most lines are read once for it.
wss wss-cold 4
wss wss-direct 4 ",answers_from=$(at n2 5559)"

if wants xorset; then
	make_set
	measure xorset "$(login_string 0)" client=${serving[client]} nodes=${serving[n0]} nodes=${serving[n1]} \
		nodes=${serving[n2]} nodes=${serving[n3]} nodes=${serving[n4]}
	end_set
fi

# wss_on_set WAY MIB [ANSWERS]: as wss, with a set as the object of the RS.
wss_on_set() {
	wants $1 || return 0
	# What others have said there.
	rm -f $tmp/n?-*
	make_nodes
	serve n2-rs "$program" rs --number 7 "${nodes[@]}" --etcd $(etcd_of n2) --system wss --id-ext ab --ioc-guid cd \
		--listen $(at n2 5559)
	within 60 "the RS" says n2-rs 'listens at'
	serve n0-se "$here/../wss" se --rs $(at n2 5559) --lun 7/0 --etcd http://$(etcd_of n0) --system wss --id-ext ab \
		--ioc-guid cd --listen $(at n0 5556)
	serve n1-ce "$here/../wss" ce --member 1 --se $(at n0 5556) --rs $(at n2 5559) --id-ext ab --ioc-guid cd \
		--cache $2 --listen $(at n1 5557)
	within 60 "the RS at the SE" says n0-se 'all RS are here'
	within 60 "the CE" says n1-ce 'attached to RS 7'
	measure $1 "id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=$(at n0 5556),answers_from=$(at n1 5557)${3-}" \
		SE=${serving[n0-se]} CE=${serving[n1-ce]} RS=${serving[n2-rs]} nodes=${serving[n0]} nodes=${serving[n1]} \
		nodes=${serving[n2]} nodes=${serving[n3]} nodes=${serving[n4]}
	end_set n0-se n1-ce n2-rs
}
wss_on_set wss-set 64
wss_on_set wss-set-direct 4 ",answers_from=$(at n2 5559)"
