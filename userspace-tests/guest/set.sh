# SPDX-License-Identifier: GPL-2.0
# The redundant set in user space (storage/xorset): its client, a second client, and its five nodes, on
# the hosts of hosts.sh with these names, and etcd on the router.

modprobe -qa ib_uverbs rdma_ucm
program=$here/../xorset
[ -f "$program" ] || skip "xorset is not in this guest"
chmod +x "$program"

files=/dev/shm/xorset-files
undo() {
	unmake_hosts
	rm -rf $files
}
role() {
	local etcd
	etcd=$(etcd_of $1)
	case $1 in
	client*) serve $1 "$program" client "${nodes[@]}" --etcd $etcd --id-ext ab --ioc-guid cd ${lease:+--lease $lease} \
		${key:+--key $key} ;;
	n?) serve $1 "$program" node --file $files/$1 "${nodes[@]}" --etcd $etcd ${key:+--key $key} ;;
	esac
}
# new_file NUMBER [STRIPES]: creates a node's file of STRIPES (`stripes`, or 84) stripes of 768 KiB, in place of
# another.
new_file() {
	rm -f $files/n$1
	"$program" format --number $1 --file $files/n$1 --stripes ${2:-${stripes:-84}} --log 24 --thin >$tmp/format ||
		fail "format: $(<$tmp/format)"
}
# Prints the client's current map: u, o or r with an epoch for each node.
map() { grep '^map ' $tmp/client | tail -n 1; }
# open PATTERN: returns whether the client serves I/O with a map that matches.
open() { [[ "$(map)" == $1 ]] && [[ "$(grep -E '^map |is open$' $tmp/client | tail -n 1)" == *"is open" ]]; }
whole() { open "map * used u* u* u* u* u*"; }
out() { open "map * used $1"; }
login_string() { echo "id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=10.0.${number[client]}.2:5555${2-}"; }

# make_nodes: starts etcd and the nodes. make_set: also the client, and waits until the set is whole.
make_nodes() {
	local i
	mkdir -p $files
	nodes=()
	for i in 0 1 2 3 4; do nodes+=(--node 10.0.${number[n$i]}.2:5560); done
	# Another set needs another map.
	rm -rf $files/etcd
	start_etcd $files/etcd
	for i in 0 1 2 3 4; do
		new_file $i
		role n$i
	done
}
make_set() {
	make_nodes
	role client
	within 60 "an open set" whole
}
# end_set [HOST[-ROLE]...]: stops these, or the client, and all others; none may have panicked.
end_set() {
	local h
	for h in ${*:-client} n0 n1 n2 n3 n4 etcd; do
		kill ${serving[$h]}
		reap 20 "$h" ${serving[$h]} || [ $h = etcd ] || fail "$h ended with status $?: $(tail -n 5 $tmp/$h)"
		unset "serving[$h]"
		! says $h 'panicked' || fail "$h: $(grep -A 3 panicked $tmp/$h)"
	done
}
