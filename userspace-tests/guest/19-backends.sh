#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Other back ends: a file, memory, scsi_debug with blocks of 512 and of 4096 bytes.
#
# deadline: 300
# takes: 100
# runs: rxe stock long
# runs: siw vfab kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
for size in 512 4096; do
	target 0
	back_file file 16
	back_ram ram 16
	back_debug debug 16 sector_size=$size
	lun 0 0 file
	lun 0 1 ram
	lun 0 2 debug
	login 0
	for i in 0 1 2; do
		d=$(disk "$host" $i)
		bs=$(blockdev --getss $d)
		[ $i != 2 ] || equal "block size of scsi_debug" $bs $size
		verify_io 100 $d --iodepth=8 --rw=randwrite --bsrange=$bs-64k --blockalign=$bs --size=6m ||
			{ cat $tmp/fio; fail "fio on LUN $i, blocks of $bs"; }
	done
	logout "$host"
	clean
	untarget
	unback
done
ok "$kind"
