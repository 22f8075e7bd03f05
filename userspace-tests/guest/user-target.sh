# SPDX-License-Identifier: GPL-2.0
# The user-space target (storage/srp-target) instead of LIO, for kinds like rxe+user: the functions of
# lib/target.sh, and what lib/backend.sh needs of LIO. Sourced by lib.sh. `srp-target` gets its logical units on the
# command line, in order, so it starts at the first login. Two targets may have one file.

program=$here/../srp-target
port=5557
declare -A units=()			# target -> its --lun options

load_target() {
	modprobe -qa dummy veth rdma_rxe siw rdma_cm ib_uverbs rdma_ucm sd_mod sg
	modprobe -q null_blk nr_devices=0
	mountpoint -q $cfg || mount -t configfs configfs $cfg
	[ "$kind" != siw ] || loaded siw || skip "this kernel has no siw"
	[ -f "$program" ] || skip "srp-target is not in this guest"
	chmod +x "$program"
	within 10 "/dev/infiniband" test -c /dev/infiniband/rdma_cm
}
service_guid() { echo 0x00000000000000ab; }

target() {
	units[$1]=
	[ "${2-}" != off ] || : >$tmp/target$1.pid
}
lun() {
	[ "$(wc -w <<<"${units[$1]}")" = $((2 * $2)) ] || fail "srp-target has no LUN $2 without those before it"
	units[$1]+=" --lun ${backdev[$3]}"
}
# May be called from a subshell. The target is no job of this shell, because `finish` would end it before the sessions.
target_on() {
	local said=$tmp/target$1 src dest
	[ ! -s $said.pid ] || ended "$(<$said.pid)" || return 0
	from $1
	# Discard the output of the previous target.
	: >$said
	("$program" ${units[$1]} --shared --listen "$dest:$port" --id-ext ab --ioc-guid ab >$said 2>&1 & echo $! >$said.pid)
	within 20 "srp-target" or_ended "$(<$said.pid)" grep -q ^listens $said
	grep -q ^listens $said || fail "srp-target: $(<$said)"
}
# Kills the target without notice, like LIO when its port is disabled. The kernel closes the connections.
target_off() {
	kill -KILL "$(<$tmp/target$1.pid)"
	within 10 "the end of srp-target" ended "$(<$tmp/target$1.pid)"
	target_behaved $1
	: >$tmp/target$1.pid
}
target_up() { [ -e $tmp/target$1.pid ] || target_on $1; }

# Output that must never appear.
target_bad='panicked|session ended'
target_behaved() { ! grep -E "$target_bad" $tmp/target$1 >/dev/null || fail "srp-target: $(<$tmp/target$1)"; }
target_ends() {
	local i
	for i in "${!units[@]}"; do
		[ -s $tmp/target$i.pid ] || continue
		kill "$(<$tmp/target$i.pid)"
		within 15 "the end of srp-target" ended "$(<$tmp/target$i.pid)"
		target_behaved $i
		grep -q ^ended $tmp/target$i || fail "srp-target did not say that it ended: $(<$tmp/target$i)"
		: >$tmp/target$i.pid
	done
}
untarget() {
	local f
	for f in $tmp/target*.pid; do [ ! -s $f ] || kill -KILL "$(<$f)"; done
	units=()
}

core() { :; }
# Flush first, because the target would otherwise respond from the page cache.
hold() {
	blockdev --flushbufs "${backdev[$1]}" && dm suspend --nolockfs "srp-$1" || fail "cannot hold back end $1"
}
back_ram() { back_file "$@"; }
back_user() { fail "srp-target has no such back end"; }
