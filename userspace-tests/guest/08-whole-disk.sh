#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Writes random data to the whole disk, reads it, and compares with the back end.
#
# deadline: 300
# takes: 100
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

mib=64
begin
fabric 1
back_null disk $mib
target 0
lun 0 0 disk
login 0
dev=$(disk "$host" 0)
head -c ${mib}M /dev/urandom >$tmp/data
timeout 100 dd if=$tmp/data of=$dev bs=1M oflag=direct status=none || fail "dd to the disk"
dd if=${backdev[disk]} bs=1M iflag=direct status=none | cmp - $tmp/data ||
	fail "the back end differs from what was written"
timeout 100 dd if=$dev bs=1M iflag=direct status=none | cmp - $tmp/data || fail "direct read differs"
echo 3 >/proc/sys/vm/drop_caches
timeout 100 dd if=$dev bs=64k status=none | cmp - $tmp/data || fail "buffered read differs"
logout "$host"
clean
ok "$kind: $mib MiB written, read twice, compared"
