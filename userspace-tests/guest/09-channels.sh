#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# on: stock test, rxe siw. time: 60
# One, two and four channels; all of them carry verified I/O.
. "$(dirname "$0")/lib.sh"

begin 300
fabric 1
back_null disk 64
target 0
lun 0 0 disk
cpus=$(nproc)
for n in 1 2 4; do
	login 0 ",ch_count=$n"
	for again in 1 2 3; do
		got=$(cat /sys/class/scsi_host/$host/ch_count)
		# siw breaks off one connection in 30; see login.
		[ $kind = siw ] && [ $got -lt $n ] && [ $got -lt $cpus ] || break
		logout "$host"
		login 0 ",ch_count=$n"
	done
	dev=$(disk "$host" 0)
	# More channels than CPUs are of no use; a driver may then take fewer.
	[ "$got" = $n ] || { [ $n -gt $cpus ] && [ "$got" -ge $cpus ]; } || fail "ch_count=$n gave $got channels"
	ends=2
	[ -z "$paired" ] || ends=1
	equal "queue pairs" $(($(qps) - idle_qps)) $((ends * got))
	queues=$(ls -d /sys/block/${dev#/dev/}/mq/[0-9]* | wc -l)
	timeout 100 fio --allow_file_create=0 --eta=never --name=a --filename=$dev --ioengine=libaio --iodepth=8 --direct=1 --rw=randwrite --bs=4k --size=4m \
		--numjobs=4 --offset_increment=8m --cpus_allowed=0-$((cpus - 1)) --cpus_allowed_policy=split \
		--verify=crc32c --verify_fatal=1 --group_reporting --output=$tmp/fio || { cat $tmp/fio; fail "fio over $n channels"; }
	say "ch_count=$n: $got channels, $queues hardware queues"
	logout "$host"
	clean
done
ok "$kind"
