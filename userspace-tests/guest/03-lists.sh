#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Odd scatter lists: pieces at offsets inside a page, with gaps, hundreds of them; first with the driver's default
# limits, then with long descriptor lists.
#
# deadline: 400
# takes: 68
# runs: rxe kasan fast
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long GAPS=2
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: vfab stock long DMA_BITS=32 swiotlb=force
# runs: rxe rt long LONG=
# runs: vfab arm64-16k arm64-64k long LONG= DMA_BITS=32 swiotlb=65536,force
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
rounds 3 15
fabric 1
# With several descriptors iblock may end a bio inside a block, and the command fails.
back_ram disk 64
target 0
lun 0 0 disk
for options in "" ,cmd_sg_entries=255,sg_tablesize=255,max_sect=4096 ,cmd_sg_entries=2,sg_tablesize=2 \
	,cmd_sg_entries=12,sg_tablesize=2048,allow_ext_sg=1,max_sect=8192; do
	login 0 "$options"
	dev=$(disk "$host" 0)
	q=/sys/block/${dev#/dev/}/queue
	cat $q/max_hw_sectors_kb >$q/max_sectors_kb
	said=$(timeout 200 python3 $here/odd-io.py $dev $rounds $RANDOM 2>&1) || fail "${options:-defaults}: $said"
	limits="max_segments $(cat $q/max_segments), max_sectors_kb $(cat $q/max_sectors_kb)"
	say "${options:-defaults}: $said ($limits, virt_boundary $(cat $q/virt_boundary_mask 2>/dev/null))"
	logout "$host"
done
ok "$kind"
