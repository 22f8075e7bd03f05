#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module is unloaded while its adapter refuses to stop a queue pair, and the adapter's driver does not report what
# the adapter has done: the memory must be kept. Then the adapter is removed, and both end.
#
# deadline: 400
# takes: 61
# runs: vfab kasan fast long
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
rust_driver || skip "the C driver frees the memory"
PERSONALITY='' fabric 1
back_null disk 64
target 0
lun 0 0 disk

again() {
	within 60 "an ACTIVE port" all_active vfab1
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	login 0 ,ch_count=2
	dev=$(disk "$host" 0)
	udevadm settle -t 20
	verify_io 60 $dev --iodepth=8 --rw=randwrite --bsrange=4k-64k --size=8m || fail "I/O $1: $(tail -n 5 $tmp/fio)"
	quiet $dev
}

adapter remove 1
adapter add 1 erdma
again "before"
# Each attempt to stop a queue pair fails with ENODEV (19).
fault vfab1 stop 1 19 1000000
timeout -k 5 150 rmmod ib_srp 2>$tmp/rmmod &
unload=$!
sleep 7
ended $unload && fail "the module was unloaded with memory that the adapter may reach: $(<$tmp/rmmod)"
faulted vfab1 stop
[ "$times" -gt 3 ] || fail "the adapter was asked $times times"
logged 'a queue pair cannot be stopped'
clock; t0=$now
adapter remove 1
reap 60 "rmmod" $unload || fail "rmmod: $(<$tmp/rmmod)"
clock
in_time "the adapter and the module go" $t0 $now 20000000
load_srp
adapter add 1
again "with the next module"
logout "$host"
ok "$kind: gone in $(ms $((now - t0)))"
