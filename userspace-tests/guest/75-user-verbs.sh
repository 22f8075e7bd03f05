#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# User verbs of ib_vfab, with the library in Debian's ibverbs-providers: permitted and refused accesses of a process,
# memory that is deregistered while a peer writes to it, killed processes, a removed adapter; Debian's ping-pong
# programs.
#
# deadline: 300 600
# takes: 100
# runs: vfab kasan long
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
verbs=$here/../user-verbs
[ -x $verbs ] || skip "user-verbs is not in this guest"
command -v ibv_rc_pingpong >/dev/null || skip "ibverbs-utils is not in this guest"
begin
subnet

# run COMMAND...: runs user-verbs; sets `said` to its output.
run() { said=$(timeout -k 5 200 $verbs "$@" 2>&1) || fail "user-verbs $*: $said"; }
# starts DEVICE PEER: starts a process that writes; sets `pid`. Its output is in $tmp/DEVICE.
writes() { grep -q '^writing$' $tmp/$1; }
starts() {
	: >$tmp/$1
	$verbs write "$1" "$2" >$tmp/$1 2>&1 &
	pid=$!
	within 10 "writes of $1" or_ended $pid writes "$1"
	writes "$1" || fail "user-verbs write $*: $(cat $tmp/$1)"
}
# ends PID DEVICE WORD: the process ends successfully, with that word.
ends() {
	reap 20 "the process at $2" "$1" || fail "the process at $2: $(cat $tmp/$2)"
	equal "what the process at $2 says" "$(tail -n 1 $tmp/$2)" "$3"
}
# No object of a process and no pinned page remains.
pins() {
	echo 1 >/proc/sys/vm/stat_refresh
	awk '/^nr_foll_pin_acquired / { n += $2 } /^nr_foll_pin_released / { n -= $2 } END { print n }' /proc/vmstat
}
pinned=$(pins)
nothing_left() { [ "$(resources)" = "$idle" ] && [ "$(pins)" = "$pinned" ]; }

lid vfab1
tool ibv_devinfo -d vfab1
for line in "transport: InfiniBand (0)" "state: PORT_ACTIVE (4)" "active_mtu: 4096 (5)" "port_lid: $lid" \
	"link_layer: InfiniBand"; do
	tool_says "ibv_devinfo" "$line"
done

for pair in "vfab0 vfab1" "vfab1 vfab0" "vfab0 vfab0"; do
	run access $pair
	equal "accesses, $pair" "$said" "good 6, refused 39"
	within 10 "nothing left of accesses, $pair" nothing_left
done

ip link set lo up
listens() { ss -ltn | grep ':18515 ' >/dev/null; }
for command in "ibv_rc_pingpong -n 500" "ibv_rc_pingpong -n 500 -e -s 65536" "ibv_ud_pingpong -n 500" \
	"ibv_ud_pingpong -n 500 -e"; do
	timeout 60 $command -d vfab0 >$tmp/server 2>&1 &
	server=$!
	within 10 "a server of $command" or_ended $server listens
	tool $command -d vfab1 127.0.0.1
	reap 60 "a server of $command" $server || fail "$command, the server: $(cat $tmp/server)"
	[[ $said == *"500 iters in "* ]] || fail "$command: $said"
done
within 10 "nothing left of ping-pongs" nothing_left

rounds 60 600
run takeback vfab1 vfab0 $rounds
[[ $said =~ ^writes\ ([0-9]+)$ ]] && [ ${BASH_REMATCH[1]} -ge $rounds ] || fail "takeback: $said"
within 10 "nothing left of what was taken back" nothing_left

rounds 8 80
for ((n = 0; n < rounds; n++)); do
	starts vfab0 vfab1; first=$pid
	starts vfab1 vfab0
	! nothing_left || fail "processes have nothing"
	sleep 0.0$((n % 10))
	kill -KILL $first $pid
	reap 20 "killed processes" $first $pid 2>/dev/null
	within 10 "nothing left of killed processes" nothing_left
done

# An adapter is removed while processes have it open and its peer writes.
devices() {
	timeout -k 5 30 bash -c "echo $* >/sys/kernel/debug/ib_vfab/devices" ||
		fail "cannot $*: $(cat /sys/kernel/debug/ib_vfab/devices)"
}
rounds 2 10
for ((n = 0; n < rounds; n++)); do
	starts vfab0 vfab1; first=$pid
	starts vfab1 vfab0
	devices remove 1
	[ ! -e /sys/class/infiniband/vfab1 ] || fail "vfab1 is there still"
	ends $pid vfab1 gone
	ends $first vfab0 lost
	devices add 1
	within 60 "ACTIVE again" all_active vfab1
	udevadm settle -t 20
	run access vfab0 vfab1
	equal "accesses after vfab1 has come back" "$said" "good 6, refused 39"
done
[ "$(pins)" = "$pinned" ] || fail "$(pins) pages are pinned, $pinned before"

# The module is removed while a process has an adapter open.
starts vfab1 vfab0
subnet_manager_ends vfab0
timeout 60 rmmod ib_vfab || fail "rmmod ib_vfab beside a process"
ends $pid vfab1 gone
ok "user verbs"
