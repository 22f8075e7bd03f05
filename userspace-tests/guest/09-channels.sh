#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# One, two and four channels: all of them carry verified I/O, and their completion vectors start at comp_vector.
#
# deadline: 300
# takes: 54
# runs: rxe kasan fast long LONG=
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
# runs: rxe arm64-16k arm64-64k long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk
cpus=$(nproc)
each=1
for n in 1 2 4; do
	login 0 ",ch_count=$n"
	for again in 1 2 3; do
		got=$(cat /sys/class/scsi_host/$host/ch_count)
		# siw breaks one connection in 30; see login.
		[ $kind = siw ] && [ $got -lt $n ] && [ $got -lt $cpus ] || break
		logout "$host"
		login 0 ",ch_count=$n"
	done
	dev=$(disk "$host" 0)
	# A driver may use fewer channels if there are fewer CPUs.
	[ "$got" = $n ] || { [ $n -gt $cpus ] && [ "$got" -ge $cpus ]; } || fail "ch_count=$n gave $got channels"
	ends=2
	[ -z "$paired" ] || ends=1
	equal "queue pairs" $(($(qps) - idle_qps)) $((ends * got))
	# Each channel adds its queue depth, even for one disk; not with the C driver.
	! rust_driver || each=$got
	is "the disk's queue" /sys/block/${dev#/dev/}/device/queue_depth $((62 * each))
	queues=$(ls -d /sys/block/${dev#/dev/}/mq/[0-9]* | wc -l)
	verify_io 100 $dev --iodepth=8 --rw=randwrite --bs=4k --size=4m --numjobs=4 --offset_increment=8m --group_reporting \
		--cpus_allowed=0-$((cpus - 1)) --cpus_allowed_policy=split || { cat $tmp/fio; fail "fio over $n channels"; }
	say "ch_count=$n: $got channels, $queues hardware queues"
	logout "$host"
	clean
done

# The C driver ignores comp_vector.
if rust_driver && [ $cpus -gt 1 ]; then
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	# A soft device has a vector for each CPU, except that one that resembles vmw_pvrdma has a single one.
	IFS=- read -r _ last </sys/devices/system/cpu/possible
	for first in 0 1; do
		wanted="$first $(((first + 1) % (last + 1)))"
		[ "${PERSONALITY-}" != vmw_pvrdma ] || wanted=0
		echo >$tracing/trace
		echo 1 >$tracing/events/rdma_core/cq_alloc/enable || fail "no event cq_alloc"
		login 0 ",ch_count=2,comp_vector=$first"
		echo 0 >$tracing/events/rdma_core/cq_alloc/enable
		# Skip the completion queues of the target, which a kworker allocates.
		vectors=$(sed -n '/kworker/d; s/.* comp_vector=\([0-9]*\) .*/\1/p' $tracing/trace | uniq | head -n 2 | paste -sd' ')
		equal "the vectors of two channels with comp_vector=$first" "$vectors" "$wanted"
		logout "$host"
	done
	clean
fi
ok "$kind"
