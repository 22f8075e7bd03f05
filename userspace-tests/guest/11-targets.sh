#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Four targets on four devices at once; then four sessions with one target.
#
# deadline: 600
# takes: 200
# runs: rxe stock long
# runs: rxe siw vfab rxe+user kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 4
for i in 0 1 2 3; do
	back_null d$i 16
	target $i
	lun $i 0 d$i
done

hs=()
for i in 0 1 2 3; do login $i; hs[i]=$host; done
for i in 0 1 2 3; do
	dev[i]=$(disk ${hs[i]} 0)
	equal "device of ${hs[i]}" "$(cat /sys/class/scsi_host/${hs[i]}/local_ib_device)" "$(initiator $i)"
done
for i in 0 1 2 3; do printf '[t%d]\nfilename=%s\n' $i ${dev[i]}; done >$tmp/jobs
timeout 300 fio --allow_file_create=0 --eta=never --ioengine=libaio --direct=1 --iodepth=8 --rw=randwrite --bs=8k \
	--size=4m \
	--verify=crc32c --verify_fatal=1 --output=$tmp/fio $tmp/jobs ||
	{ cat $tmp/fio; fail "fio on four targets"; }
for i in 0 1 2 3; do
	head -c 64k /dev/urandom >$tmp/$i
	dd if=$tmp/$i of=${dev[i]} bs=64k oflag=direct status=none || fail "write to target $i"
done
for i in 0 1 2 3; do
	dd if=${backdev[d$i]} bs=64k count=1 iflag=direct status=none | cmp - $tmp/$i || fail "back end $i is wrong"
done

# One session ends; the others are not affected.
timeout 60 fio --allow_file_create=0 --eta=never --ioengine=libaio --direct=1 --iodepth=4 --rw=randrw --bs=4k \
	--size=8m \
	--runtime=4 --time_based --output=$tmp/fio --name=x --filename=${dev[0]} --name=y --filename=${dev[3]} &
fio=$!
sleep 1
logout ${hs[1]}
logout ${hs[2]}
reap 60 "fio" $fio || { cat $tmp/fio; fail "I/O on targets 0 and 3 while 1 and 2 went away"; }
logout ${hs[3]}
logout ${hs[0]}
clean

# Four initiator ports of one target.
login 0
d=$(disk "$host" 0)
dd if=$tmp/0 of=$d bs=64k oflag=direct status=none || fail "write to target 0"
logout "$host"
hs=()
for i in 0 1 2 3; do login 0 ",initiator_ext=000000000000000$i"; hs[i]=$host; done
for i in 0 1 2 3; do
	d=$(disk ${hs[i]} 0)
	dd if=$d bs=64k count=1 iflag=direct status=none | cmp - $tmp/0 || fail "what session $i reads is wrong"
done
for i in 2 0 3 1; do logout ${hs[i]}; done
clean
ok "$kind"
