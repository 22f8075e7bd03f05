#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The sysfs files that srp_daemon reads disappear at logout, even while the host still waits for its last command.
#
# deadline: 100
# takes: 20
# runs: rxe kasan fast long kmemleak=on
# runs: rxe+user kasan fast long
# runs: siw vfab rxe+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_held disk 32
target 0
lun 0 0 disk
login 0
dev=$(disk "$host" 0)
quiet $dev
folder=/sys/class/scsi_host/$host
[ -s $folder/id_ext ] || fail "$folder/id_ext cannot be read"
hold disk
dd if=$dev of=/dev/null bs=4k count=1 iflag=direct status=none 2>$tmp/dd &
reader=$!
within 10 "the read" not nothing_in_flight $dev
delete_port $host || fail "delete"
within 3 "the files of a login gone" test ! -e $folder/id_ext
[ -e $folder/state ] || fail "the host has gone with a command in flight"
let_go disk
within 20 "$host removed" gone "$host"
reap 20 "the last read" $reader || fail "the last read: $(<$tmp/dd)"
clean
ok "$kind"
