#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# realtime.sh vfab SECONDS: latency on a PREEMPT_RT kernel, of 4 KiB I/O one at a time by a normal task, alone, beside
# four busy tasks, and beside two of them and a real-time thread that is busy for 0.3 of each millisecond. Prints the
# percentiles of each in us, and how late the thread woke.
#
# deadline: 1000
. /srp/tests/lib.sh

seconds=$2
begin
realtime || fail "this kernel has no PREEMPT_RT: $(uname -v)"
fabric 1
back_null disk 64
target 0
lun 0 0 disk
login 0 ,ch_count=1
dev=$(disk "$host" 0)
quiet $dev
for beside in nothing "busy tasks" "a real-time thread"; do
	pids=()
	case $beside in
	busy*) for _ in {1..4}; do sha256sum /dev/zero & pids+=($!); done ;;
	a*)
		for _ in {1..2}; do sha256sum /dev/zero & pids+=($!); done
		chrt -f 80 python3 /srp/realtime.py $((2 * seconds)) >$tmp/cyclic &
		cyclic=$!
		;;
	esac
	for rw in randread randwrite; do
		timeout $((10 * seconds)) fio --allow_file_create=0 --eta=never --filename=$dev --ioengine=io_uring --direct=1 \
			--rw=$rw --bs=4k --iodepth=1 --time_based --runtime=$seconds --clat_percentiles=0 --lat_percentiles=1 \
			--percentile_list=50:99:99.9:99.99 --output-format=json --name=x >$tmp/out || fail "fio beside $beside"
		say "$rw beside $beside: $(python3 /srp/realtime.py <$tmp/out)"
	done
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}"
	case $beside in a*) reap 60 "the real-time thread" $cyclic || fail "realtime.py"; say "$(cat $tmp/cyclic)" ;; esac
done
logout "$host"
ok vfab
