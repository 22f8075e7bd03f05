#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest.sh rxe|vfab CPUS ROUNDS WORKLOAD,... measure|peers|path|curves|scale|cores [OPTION...]: sets up the target of
# the bench and runs the drivers in turns, by the program with these options. With peers.sh also the targets of the
# other initiators, which export the same disk. For scale.py, with curves instead of workloads, the target has one LUN,
# and there are eight targets on vfab. The output goes to the second disk. COMPLETE_TYPE is the attribute of disk0's
# back end, MODERATION on or off for completion queues of the initiator's adapter.
#
# deadline: 100000
. /srp/tests/lib.sh

cpus=$2 rounds=$3 only=$4 program=$5
options=("${@:6}")
modules=/lib/modules/$(uname -r)
# udev would read each disk that was open for writing, during the next run.
udevadm control --exit
# Buffers consist of single pages, regardless of the kernel's default: this measures the handling of scattered memory,
# and is reproducible.
echo never >/sys/kernel/mm/transparent_hugepage/enabled
begin
targets=1 luns=16
[ $program != scale ] || luns=1
if [ $program/$kind = scale/vfab ]; then
	# The ports of four adapters are targets; an adapter with two ports is the initiator.
	targets=8
	adapters devices=5 ports=2
	subnet_manager vfab4
	for ((i = 0; i < targets; i++)); do
		tport[$i]=vfab$((i / 2))/$((i % 2 + 1)) iport[$i]=vfab4/1
	done
	within 60 "ACTIVE ports" all_active "${tport[@]}" vfab4/{1,2}
	within 10 "class device of vfab4" test -e "$(add_target 0)"
else
	fabric $targets
fi
[ -z "${MODERATION-}" ] || rdma dev set $(initiator 0) adaptive-moderation $MODERATION || fail "adaptive-moderation"
back_null disk0 256
[ -z "${COMPLETE_TYPE-}" ] || echo $COMPLETE_TYPE >${backdir[disk0]}/attrib/complete_type || fail "complete_type"
for ((i = 0; i < targets; i++)); do
	target $i
	lun $i 0 disk0
done
if [ -e /srp/peers.sh ]; then
	luns=1
	. /srp/peers.sh
fi
for ((i = 1; i < luns; i++)); do
	back_null disk$i 16
	lun 0 $i disk$i
done
# Allocate the memory of the target's disks.
for d in "${backdev[@]}"; do dd if=/dev/zero of=$d bs=1M oflag=direct status=none 2>/dev/null; done
unload_srp || fail "rmmod ib_srp"
[ $program = cores ] || options+=(--workloads /srp/workloads.tsv --cpus $cpus)
python3 -B /srp/$program.py --driver c=$modules/kernel/drivers/infiniband/ulp/srp/ib_srp.ko \
	--driver rust=$modules/updates/ib_srp.ko \
	--add-target "$(add_target 0)" --login "$(login_string 0)" \
	--rounds $rounds --only "$only" "${options[@]}" --out /dev/vdb || fail "$program.py"
# The other targets are not removed, because the guest ends now.
[ $program = measure ] || trap - EXIT
