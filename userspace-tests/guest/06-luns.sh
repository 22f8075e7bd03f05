#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# 64 logical units (fewer on siw in the fast set): all are found, and each has its own data after the next login.
#
# deadline: 600
# takes: 200
# runs: rxe stock long
# runs: rxe siw vfab rxe+user siw+user kasan long LONG=
. "$(dirname "$0")/lib.sh"

begin
rounds 16 64
n=$rounds
[ "$kind" = siw ] || n=64
fabric 1
target 0
for ((i = 0; i < n; i++)); do
	back_ram r$i 1
	lun 0 $i r$i
done
login 0
for ((i = 0; i < n; i++)); do
	d=$(disk "$host" $i)
	printf 'this is LUN %d' $i | dd of=$d bs=512 conv=sync oflag=direct status=none || fail "write to LUN $i"
done
equal "number of disks" "$(ls -d /sys/bus/scsi/devices/${host#host}:0:0:*/block/* | wc -l)" $n
logout "$host" 90
login 0
for ((i = 0; i < n; i++)); do
	d=$(disk "$host" $i)
	equal "first block of LUN $i" "$(dd if=$d bs=512 count=1 iflag=direct status=none | tr -d '\0')" "this is LUN $i"
done
logout "$host" 90
clean
ok "$n LUNs on $kind"
