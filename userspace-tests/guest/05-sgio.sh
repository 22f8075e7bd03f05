#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# SCSI commands through SG_IO: no data, odd lengths and addresses, residuals, sense data.
#
# deadline: 120
# takes: 40
# runs: rxe+user kasan fast long
# runs: rxe stock long
# runs: rxe siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk
for options in "" ,cmd_sg_entries=128,sg_tablesize=128; do
	login 0 "$options"
	dev=$(disk "$host" 0)
	sg=/dev/$(basename /sys/block/${dev#/dev/}/device/scsi_generic/*)
	largest=$((($(cat /sys/block/${dev#/dev/}/queue/max_segments) - 1) * 4096))
	for d in $dev $sg; do
		said=$(timeout 60 python3 $here/sgio.py $d $largest 2>&1) || fail "$d ${options:-defaults}: $said"
		say "$d ${options:-defaults}: $said"
	done
	logout "$host"
done
ok "$kind"
