#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The target's machine is paused for a while, and is powered off and on under I/O: acknowledged data is on its disk.
# Without the machine, the module can be unloaded in time.
#
# deadline: 600
# takes: 200
# runs: rxe test long memory=2048 peer=peer
# runs: siw test long memory=2048 LONG= peer=peer
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

grep -q 'peer=' /proc/cmdline || skip "no second guest"
begin
fast_io_fail=300 dev_loss=600
modprobe virtio_net
within 20 "the network card" test -e /sys/class/net/eth0
python3 -u -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9))
while s.recv(64): print(time.time_ns() // 1000)' >$tmp/ready &
ip addr add 10.0.0.2/24 dev eth0
ip addr add fd00:0:0:0::2/64 dev eth0 nodad
ip link set eth0 up
ip neigh replace 10.0.0.1 lladdr 52:54:00:00:00:01 dev eth0
ip neigh replace fd00:0:0:0::1 lladdr 52:54:00:00:00:01 dev eth0
sysctl -qw net.ipv4.tcp_retries2=2 net.ipv4.tcp_rto_max_ms=1000
undo() { ip addr flush dev eth0; }
rdma link add ${kind}0 type $kind netdev eth0 || fail "cannot make ${kind}0"
within 10 "class device" test -e "$(add_target 0)"
baseline
order() { echo "<1>::peer $1" >/dev/kmsg; }
login_string() {
	guid=505400fffe000001 src=10.0.0.2 dest=10.0.0.1
	[ $kind = rxe ] || { src="[fd00:0:0:0::2]"; dest="[fd00:0:0:0::1]"; }
	echo "id_ext=$guid,ioc_guid=$guid,src=$src,dest=$dest:$port${2-}"
}
# restarted: waits until the target's machine has started and is ready; sets `at`.
restarted() {
	local n
	n=$(wc -l <$tmp/ready)
	order start
	within 240 "the other guest is ready" more_lines $tmp/ready $n
	at=$(tail -n 1 $tmp/ready)
}
restarted
speed
attach 0
trace $host
journal $dev --rport port-${host#host}:1 --grace 60
alive 2

note "the target is paused"
hit order pause
detected pause
sleep 3
order resume
clock; t1=$now
until_event 40 $t1 '^ok'
bound "pause: I/O resumed" $t1 $at 10
alive 2

for ((i = 0; i < ${LONG:+4} + 1; i++)); do
	note "the target is switched off"
	hit order kill
	detected "switched off"
	sleep 2
	clock; t0=$now
	restarted
	t1=$at
	# The machine may accept logins before it reports that it is ready.
	until_event 40 $t0 '^ok'
	bound "switched on: I/O resumed" $t1 $at 10
	alive 2
done
errors
[ $errors = 0 ] || fail "$errors errors"
backdev[disk]=$dev
settle
once

note "the target is switched off and stays off"
order kill
sleep 1
clock; t0=$now
unload_srp || fail "rmmod ib_srp: $(cat $tmp/rmmod)"
clock
bound "rmmod without the target" $t0 $now 20
load_srp
ok "$kind"
