#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Requests of 4 MiB: more pages than one memory region holds, so they need several regions and an indirect table. With
# long and with short descriptor lists.
#
# deadline: 300
# takes: 100
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long GAPS=2
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: vfab stock long DMA_BITS=32 swiotlb=force
# runs: rxe arm64-16k arm64-64k long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk
head -c 32M /dev/urandom >$tmp/data
for options in ,max_sect=8192,cmd_sg_entries=255,sg_tablesize=2048,allow_ext_sg=1 \
	,max_sect=8192,cmd_sg_entries=12,sg_tablesize=1024 \
	,max_sect=16384,ch_count=1,queue_size=4; do
	login 0 "$options"
	dev=$(disk "$host" 0)
	q=/sys/block/${dev#/dev/}/queue
	# The target reports an optimal size, but this test needs the driver's maximum.
	cat $q/max_hw_sectors_kb >$q/max_sectors_kb
	kb=$(cat $q/max_sectors_kb)
	dd if=/dev/zero of=$dev bs=4M count=8 oflag=direct status=none || fail "zero $options"
	before=$(awk '{print $5}' /sys/block/${dev#/dev/}/stat)
	timeout 100 dd if=$tmp/data of=$dev bs=4M oflag=direct status=none || fail "write $options"
	requests=$(($(awk '{print $5}' /sys/block/${dev#/dev/}/stat) - before))
	timeout 100 dd if=$dev bs=4M count=8 iflag=direct status=none | cmp - $tmp/data ||
		fail "what was read differs: $options"
	dd if=${backdev[disk]} bs=4M count=8 iflag=direct status=none | cmp - $tmp/data ||
		fail "the back end differs: $options"
	say "$options: max_sectors_kb $kb, max_segments $(cat $q/max_segments), 32 MiB in $requests requests"
	logout "$host"
done
ok "$kind"
