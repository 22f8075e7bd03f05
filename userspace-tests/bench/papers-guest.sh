#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# papers-guest.sh rxe|siw micro|io|reads: what ci/papers.sh runs in a guest; the results are lines of the console.
case $2 in
micro)
	# The module does it when it is loaded.
	for kind in rxe siw; do
		modprobe -a dummy $([ $kind = siw ] && echo siw || echo rdma_rxe) || exit 1
		n=$((n + 1))
		ip link add dummy$n type dummy && ip addr add 10.0.$n.1/24 dev dummy$n && ip link set dummy$n up &&
			rdma link add ${kind}0 type $kind netdev dummy$n || exit 1
	done
	modprobe ib_srp && rmmod ib_srp
	;;
io|reads)
	. /srp/tests/lib.sh
	udevadm control --exit
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	begin 100000
	fabric 1
	target 0
	back_null disk0 256
	lun 0 0 disk0
	dd if=/dev/zero of=${backdev[disk0]} bs=1M oflag=direct status=none 2>/dev/null
	python3 -B /srp/papers-io.py $2 "$(add_target 0)" "$(login_string 0)" || fail "papers-io.py"
	;;
esac
