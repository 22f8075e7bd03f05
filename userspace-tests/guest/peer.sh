#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The other host of 38-crashes, in a guest of its own: a target on rxe and on siw, with a disk that survives the guest.
# Reports when it is ready, and waits.
. "$(dirname "$0")/lib.sh"

modprobe virtio_net
within 20 "the network card" test -e /sys/class/net/eth0
ip addr add 10.0.0.1/24 dev eth0
ip addr add fd00:0:0:0::1/64 dev eth0 nodad
ip link set eth0 up
ip neigh replace 10.0.0.2 lladdr 52:54:00:00:00:02 dev eth0
ip neigh replace fd00:0:0:0::2 lladdr 52:54:00:00:00:02 dev eth0
load_target
backdev[disk]=/dev/vdb
iblock disk
for kind in rxe siw; do
	loaded $kind || loaded rdma_$kind || continue
	rdma link add ${kind}0 type $kind netdev eth0 || fail "cannot make ${kind}0"
	gid ${kind}0
	t=$cfg/target/srpt/0x$gid/0x$gid
	mkdir -p $t/lun/lun_0 && ln -s "${backdir[disk]}" $t/lun/lun_0/disk || fail "cannot make target port $gid"
	# The initiator's port: on rxe derived from the address of its card, on siw zero.
	for a in $t/acls/0x0000000000000000{505400fffe000002,0000000000000000}; do
		mkdir -p $a/lun_0 && ln -s $t/lun/lun_0 $a/lun_0/l || fail "cannot let the initiator in"
	done
	echo 1 >$t/enable || fail "cannot enable target port $gid"
done
say "identifier $(service_guid)"
echo ready >/dev/udp/10.0.0.2/9
# Longer than the first guest may run.
sleep 7200
