#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# insmod and rmmod, 20 times in the long set, half of them with a session; rmmod under I/O.
#
# deadline: 400 600
# takes: 56
# runs: rxe kasan fast long kmemleak=on
# runs: siw vfab rxe+user siw+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
rounds 8 20
[ "$kind" = rxe ] || rounds 4 20
n=$rounds
fabric 1
back_null disk 32
target 0
lun 0 0 disk

# An open disk holds a reference to the module.
login 0
dev=$(disk "$host" 0)
start_io $dev --iodepth=16 --rw=randrw --bs=4k --size=16m --runtime=20 --time_based
fio=$!
# Returns whether fio makes progress. Only writes count, because udev reads, too.
writing() { read -r _ _ _ _ writes _ </sys/block/${dev#/dev/}/stat && [ $writes -gt 50 ]; }
within 30 "fio writes" writing
for i in 1 2 3 4 5; do
	if unload_srp; then fail "rmmod was allowed under I/O"; fi
	grep -q 'in use' $tmp/rmmod || fail "rmmod under I/O: $(cat $tmp/rmmod)"
	sleep 0.2
done
kill -0 $fio || fail "fio ended early"
reap 60 "fio" $fio || { cat $tmp/fio; fail "I/O failed while rmmod was refused"; }
udevadm settle -t 10
within 20 "rmmod with the disk closed, logged in" unload_srp
[ ! -d /sys/module/ib_srp ] || fail "the module is still there"
within 10 "nothing of ours" nothing_ours
no_reports

for ((i = 1; i <= n; i++)); do
	load_srp
	[ -e "$(add_target 0)" ] || fail "no add_target after load $i"
	if ((i % 2)); then
		login 0
		# Unload sometimes when the disk is ready, sometimes during the scan.
		((i % 4 == 3)) || disk "$host" 0 >$tmp/d
		within 20 "rmmod $i while logged in" unload_srp
		within 10 "nothing of ours after unload $i" nothing_ours
	else
		unload_srp || fail "rmmod $i"
	fi
	[ ! -e /sys/class/infiniband_srp ] || fail "the class is still there after unload $i"
done
no_reports
load_srp
login 0
disk "$host" 0 >$tmp/d
logout "$host"
clean
ok "$kind: $n cycles"
