#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The initiator's RDMA device is deleted at random moments, 20 times in the long
# set: under I/O, during the scan, during the login. Everything ends, nothing stays.
. "$(dirname "$0")/lib.sh"

begin 600 900
rounds 6 20
[ "$kind" = rxe ] || rounds 5 20
n=$rounds
fabric_pair 1
back_null disk 32
target 0
lun 0 0 disk
RANDOM=${SEED:-$$}
slowest=0
listen send done
for ((i = 1; i <= n; i++)); do
	fio=
	if ((i % 5 == 0)); then
		# In the middle of a login; it may succeed or fail, but it returns.
		write_login 0 "$(login_string 0 ,tl_retry_count=2)" >$tmp/said &
		writer=$!
		wait=$((RANDOM % 1500))
		what=login
	else
		login 0 ,tl_retry_count=2
		dev=$(disk "$host" 0)
		fio --allow_file_create=0 --eta=never --name=a --filename=$dev --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=16k --size=16m --runtime=60 --time_based --output=$tmp/fio >/dev/null 2>&1 &
		fio=$!
		wait=$((500 + RANDOM % 1500))
		what=I/O
	fi
	sleep $((wait / 1000)).$(printf %03d $((wait % 1000)))
	t=${EPOCHREALTIME/./}
	timeout 60 rdma link delete $(initiator 0) || fail "rdma link delete, round $i"
	[ -z "$fio" ] || { within 30 "end of fio after the device went, round $i" eval "! kill -0 $fio 2>/dev/null"; wait $fio 2>/dev/null; }
	[ $what = I/O ] || { within 30 "end of the login after the device went, round $i" eval "! kill -0 $writer 2>/dev/null"; wait $writer 2>/dev/null; }
	within 30 "hosts gone, round $i" no_hosts
	t=$(((${EPOCHREALTIME/./} - t) / 1000))
	[ $t -le 10000 ] || fail "round $i, $what: all had gone after $t ms only"
	[ $t -le $slowest ] || slowest=$t
	within 10 "nothing of ours, round $i" nothing_ours
	[ ! -e "$(add_target 0)" ] || fail "the class device outlived its RDMA device"
	pair_device 0
done
dev=
told ended
# And all works after that.
login 0
dev=$(disk "$host" 0)
timeout 60 fio --allow_file_create=0 --eta=never --name=a --filename=$dev --ioengine=libaio --iodepth=8 --direct=1 --rw=randwrite --bs=16k --size=4m --verify=crc32c --verify_fatal=1 --output=$tmp/fio ||
	{ cat $tmp/fio; fail "I/O after $n removals"; }
logout "$host"
clean
ok "$kind: $n removals, slowest $slowest ms"
