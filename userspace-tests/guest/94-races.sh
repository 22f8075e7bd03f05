#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Data races, under KCSAN: I/O of 512 bytes to 256 KiB from all CPUs, while attributes are read, the disk and the host
# are reset, and the session ends.
#
# deadline: 900
# takes: 240
# runs: rxe vfab kcsan long
. "$(dirname "$0")/lib.sh"

begin
races=/sys/kernel/debug/kcsan
[ -e $races ] || skip "this kernel has no KCSAN"
count() { awk -F': *' -v name="$1" '$1 == name { print $2 }' $races; }
fabric 1
back_null disk 64
target 0
lun 0 0 disk
login 0 ,ch_count=2
dev=$(disk "$host" 0)
quiet $dev
before=$(count setup_watchpoints)
runtime=60
start_io $dev --iodepth=16 --rw=randrw --bsrange=512-256k --size=12m --numjobs=4 --offset_increment=12m \
	--runtime=$runtime --time_based
io=$!
for ((n = 0; n < 400; n++)); do
	! ended $io || break
	cat /sys/class/scsi_host/$host/* /sys/block/${dev#/dev/}/device/io*_cnt /sys/class/srp_remote_ports/*/* \
		/sys/kernel/debug/ib_srp/*/* >/dev/null 2>&1
	((n % 8)) || timeout 60 sg_reset -d $dev >/dev/null 2>&1 || fail "the disk's reset"
	((n % 8 != 4)) || timeout 60 sg_reset -H $dev >/dev/null 2>&1 || fail "the host's reset"
	sleep 0.5
done
reap 120 "I/O beside resets" $io || { cat $tmp/fio; fail "I/O beside resets"; }
start_io $dev --iodepth=16 --rw=randrw --bs=4k --numjobs=4 --runtime=$runtime --time_based
io=$!
sleep 2
logout $host
reap 60 "I/O of a session that has ended" $io
n=$(($(count setup_watchpoints) - before))
[ $n -ge 1000 ] || fail "KCSAN has watched $n accesses"
clean
ok "$kind: $n accesses watched, races of the kernel: $(count data_races)"
