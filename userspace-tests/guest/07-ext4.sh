#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A file system: mkfs, a tree of files, fsck; the tree is intact after a new login.
#
# deadline: 300
# takes: 31
# runs: rxe kasan fast
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_null disk 128
target 0
lun 0 0 disk
login 0
dev=$(disk "$host" 0)
timeout 60 mkfs.ext4 -q -F $dev || fail mkfs
mkdir $tmp/m
mount $dev $tmp/m || fail mount
from=$(ls -d /usr/lib/python3.*/ | head -n 1)
mkdir $tmp/m/tree
(cd $from && find . -maxdepth 1 -name '*.py' -print0 | xargs -0 cp -t $tmp/m/tree)
head -c 20M /dev/urandom >$tmp/m/tree/big
(cd $tmp/m/tree && find . -type f -print0 | sort -z | xargs -0 sha256sum) >$tmp/sums
timeout 60 umount $tmp/m || fail umount
timeout 60 fsck.ext4 -fn $dev >$tmp/fsck 2>&1 || fail "fsck: $(tail -n 3 $tmp/fsck)"
logout "$host"
login 0
dev=$(disk "$host" 0)
mount -o ro $dev $tmp/m || fail "mount after the new login"
(cd $tmp/m/tree && sha256sum --quiet -c $tmp/sums) || fail "files differ"
say "$(wc -l <$tmp/sums) files, $(du -sh $tmp/m/tree | cut -f1)"
umount $tmp/m
logout "$host"
timeout 60 fsck.ext4 -fn ${backdev[disk]} >$tmp/fsck 2>&1 || fail "fsck of the back end: $(tail -n 3 $tmp/fsck)"
clean
ok "$kind"
