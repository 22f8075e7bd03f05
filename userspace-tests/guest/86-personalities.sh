#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The initiator's adapter imitates each of ib_vfab's personalities: a login, scatter lists with arbitrary offsets, data
# of many sizes, the loss of one of two channels, a device reset under I/O with recovery, and a removal under I/O. No
# data is wrong, acknowledged data is preserved, and everything ends in time. PERSONALITIES selects some; by default the
# fast set uses three.
#
# deadline: 900 3400
# takes: 114
# runs: vfab kasan fast long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
PERSONALITY='' fabric 1
# A dead adapter does not notify the target, which keeps its queue pairs until it notices the death.
initiators=vfab1
baseline
back_held disk 64
target 0
lun 0 0 disk
vfab=/sys/kernel/debug/ib_vfab
names=${PERSONALITIES-}
names=${names//,/ }
if [ -z "$names" ]; then
	names="mlx5 irdma ionic"
	[ -z "${LONG-}" ] || names=$(awk '{print $1}' $vfab/personalities)
fi

# like NAME: makes adapter 1 exist with that personality.
like() {
	grep -q "^1 there $1\$" $vfab/devices || {
		! grep -q "^1 there" $vfab/devices || adapter remove 1
		adapter add 1 $1
	}
	grep -q "^1 there $1\$" $vfab/devices || fail "adapter 1 is not like $1: $(<$vfab/devices)"
	within 60 "ACTIVE ports of $1" all_active vfab0 vfab1
	within 10 "class device of $1" test -e "$(add_target 0)"
}
# The target keeps a connection until it notices that it is dead, and refuses another one from the same queue pair.
entered() { error=$(write_login 0 "$(login_string 0 ,ch_count=2)"); [ "$error" != "Connection reset by peer" ]; }
enter() {
	within 60 "the target lets $p go" entered
	equal "a login of $p" "$error" ""
	find_hosts
	host=${list% }
	dev=$(disk "$host" 0)
	port=/sys/class/srp_remote_ports/port-${host#host}:1
	echo 1 >$port/reconnect_delay || fail "reconnect_delay"
	udevadm settle -t 20
}
running() { [ "$(cat $port/state)" = running ]; }
# data WHEN: checks that data is read back as written, in requests of all sizes.
data() {
	verify_io 120 $dev --iodepth=16 --rw=randwrite --bsrange=512-256k --size=12m ||
		{ tail -n 20 $tmp/fio; fail "$p: I/O $1"; }
}
# goes VERB: resets or removes adapter 1 under I/O. All its objects are freed. A reset removes the device, except for
# ionic, which stays but does nothing until it is removed.
goes() {
	journal $dev --rport ${port##*/}
	sleep 0.$((RANDOM % 10))
	clock; t0=$now
	adapter $1 1
	if [ $1 = reset ] && [ $p = ionic ]; then
		within 20 "loss of the session, $p" lost
		adapter remove 1
	fi
	no_hosts || fail "$1 of $p: hosts outlive it: $list"
	clock
	took=$(ms $((now - t0)))
	within 10 "nothing of ours, $p" nothing_ours
	settle
}
lost() { ! running; }
more_connections() { [ $(log_since | grep -cE 'reconnected|reconnect succeeded') -gt $connections ]; }

passed=0
for p in $names; do
	note "personality $p"
	like $p
	read -r _ _ pages _ gaps < <(grep "^$p " $vfab/personalities)
	if [ $pages = 0 ]; then
		equal "a login where requests cannot register regions" "$(write_login 0 "$(login_string 0)")" \
			"Operation not supported"
		logged 'the RDMA device has no fast memory registration'
		passed=$((passed + 1))
		continue
	fi
	enter
	is "boundary of $p" /sys/block/${dev#/dev/}/queue/virt_boundary_mask $((gaps ? 0 : 4095))
	said=$(timeout 100 python3 $here/odd-io.py $dev 3 $RANDOM 2>&1) || fail "$p: $said"
	data "after the login"
	say "$p: $said"

	# Breaks one of two channels, which has commands: the back end holds them until then.
	qpn=$(awk '{print $1; exit}' $vfab/vfab1/qps)
	connections=$(log_since | grep -cE 'reconnected|reconnect succeeded')
	hold disk
	start_verify_io $dev --iodepth=8 --rw=randwrite --bsrange=4k-128k --size=12m
	io=$!
	within 20 "I/O on $dev" or_ended $io not nothing_in_flight $dev
	! ended $io || fail "$p: the I/O is over before a channel is lost"
	at_port vfab1 die $qpn
	let_go disk
	within 40 "another connection of $p" more_connections
	io_ends $io 120 "$p: a lost channel"
	within 20 "$p: running" running
	data "after a lost channel"

	goes reset
	ends="reset in $took"
	like $p
	enter
	data "after a reset"
	# The other adapters are also unregistered by a reset.
	if [ $p = ionic ] || [ -n "${LONG-}" ]; then
		goes remove
		ends+=", removal in $took"
		like $p
		enter
		data "after a removal"
	fi
	logout "$host"
	say "$p: passed, $ends"
	passed=$((passed + 1))
done
dev=
ok "$passed personalities"
