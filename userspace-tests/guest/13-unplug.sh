#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Deletes the initiator's RDMA device at random times, 20 times in the long set: under I/O, while the error handler
# waits, during a reconnect, during a login. Everything ends, nothing leaks, and acknowledged data is preserved.
#
# deadline: 600 900
# takes: 93
# runs: rxe kasan fast long kmemleak=on
# runs: siw vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug arm64-16k arm64-64k long LONG=
# runs: rxe kasan long LONG= CM=ib
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
rounds 4 20
[ "$kind" = rxe ] || rounds 5 20
n=$rounds
fabric_pair 1
short_tcp
back_held disk 32
target 0
lun 0 0 disk
RANDOM=${SEED:-$$}
slowest=0
# nap LEAST MOST: sleeps for a random time, in ms.
nap() {
	local t=$(($1 + RANDOM % ($2 - $1)))
	sleep $((t / 1000)).$(printf %03d $((t % 1000)))
}
listen send done task
for ((i = 1; i <= n; i++)); do
	journal=
	if ((i % 5 == 0)); then
		# The login may succeed or fail, but must return.
		what=login
		write_login 0 "$(login_string 0 ,tl_retry_count=2)" >$tmp/said &
		writer=$!
		nap 0 1500
	else
		login 0 ,tl_retry_count=2
		dev=$(disk "$host" 0)
		udevadm settle -t 10
		echo 2 >/sys/block/${dev#/dev/}/device/timeout
		echo 2 >/sys/block/${dev#/dev/}/device/eh_timeout
		journal $dev --rport port-${host#host}:1
		case $((i % 5)) in
		2)
			what="error handler"
			hold disk
			nap 3000 8000
			;;
		3)
			what="lost connection"
			clock; t0=$now
			hole both 0
			until_event 20 $t0 '^state blocked$'
			nap 0 3000
			;;
		*)
			what=I/O
			nap 0 1500
			;;
		esac
	fi
	t=${EPOCHREALTIME/./}
	device_goes 0 || fail "the device does not go, round $i"
	[ "$what" != login ] || reap 30 "the login after the device went, round $i" $writer 2>/dev/null
	within 30 "hosts gone, round $i" no_hosts
	clock
	in_time "round $i, $what: the end of all" $t $now $((10000000 + ipoib_ms * 1000))
	t=$(((now - t) / 1000))
	[ $t -le $slowest ] || slowest=$t
	within 10 "nothing of ours, round $i" nothing_ours
	[ ! -e "$(add_target 0)" ] || fail "the class device outlived its RDMA device"
	[ "$what" != "error handler" ] || let_go disk
	heal 0
	if [ "$what" = "lost connection" ] || stops_first; then
		# The target was not notified, and would take a new connection for the old one.
		echo 0 >${tpg[0]}/enable && echo 1 >${tpg[0]}/enable || fail "cannot end the target's connections"
	fi
	[ -z "$journal" ] || settle
	say "round $i, $what: $t ms"
	pair_device 0
done
dev=
told ended asked=0x01
# Everything works afterwards.
login 0
dev=$(disk "$host" 0)
verify_io 60 $dev --iodepth=8 --rw=randwrite --bs=16k --size=4m || { cat $tmp/fio; fail "I/O after $n removals"; }
logout "$host"
clean
ok "$kind: $n removals, slowest $slowest ms"
