#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Sessions end while the target is slow to complete SYNCHRONIZE CACHE: a logout and the removal of the device wait for a
# target that otherwise responds, at most as long as the midlayer. They do not wait for a dead target.
#
# deadline: 400
# takes: 121
# runs: rxe kasan fast long
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: siw kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fabric_pair 1
short_tcp
speed
# Flushed data is in a file.
back_user disk 16 cache
target 0
lun 0 0 disk

# enter: logs in and writes data without a flush.
enter() {
	local cache
	rule disk pass
	attach 0 ,ch_count=2
	udevadm settle -t 10
	queue=/sys/block/${dev#/dev/}
	for cache in /sys/bus/scsi/devices/${host#host}:0:0:0/scsi_disk/*/cache_type; do
		is "the disk" $cache "write back"
	done
	truncate -s 0 $tmp/disk.stable && truncate -s 16M $tmp/disk.stable || fail "cannot empty the file"
	journal $dev
	alive 1
	journal_ends
	quiet $dev
}
log_out() { echo 1 >$rport/delete || fail "cannot log out"; }
unplug() { device_goes 0 || fail "the device does not go"; }
# leave HOW SECONDS: the last flush is delayed by SECONDS. When the host is gone, all data must be in the file.
leave() {
	local checked
	note "$1, with a flush of $2 s"
	enter
	rule disk 'flush 1'
	sleep 0.5
	clock; t0=$now
	$1 &
	leaving=$!
	(sleep $2; rule disk pass) &
	within $(($2 + 30)) "$host gone" gone $host
	clock
	checked=$(python3 "$here/journal.py" check $tmp/disk.stable $tmp/journal 2>$tmp/check) ||
		fail "$1: acknowledged data was lost with the cache, $(ms $((now - t0))) after the start:" \
			"$checked $(head -n 3 $tmp/check)"
	say "$1: $(ms $((now - t0))), $checked"
	bound "$1" $t0 $now 3 $2
	again $1
}
# again HOW: waits for the end of the teardown, and brings the device back.
again() {
	reap 60 "$1" $leaving || fail "$1"
	[ $1 = log_out ] || { within 30 "the device gone" test ! -e "$(add_target 0)"; pair_device 0; }
}
leave log_out 15
# A deleted rxe closes its socket before its clients are notified.
[ $kind = rxe ] || stops_first || leave unplug 7

# never HOW: the target responds to everything except a flush. Finally the midlayer's error handler ends the connection.
never() {
	note "$1, without an end of the flush"
	enter
	echo 2 >$queue/device/timeout
	echo 5 >$queue/device/eh_timeout
	rule disk 'flush 1'
	sleep 0.5
	clock; t0=$now
	$1 &
	leaving=$!
	within 60 "$host gone" gone $host
	clock
	bound "$1" $t0 $now 6 25
	rule disk pass
	again $1
}
if [ $kind = rxe ] || stops_first; then never log_out; else never unplug; fi

# silent HOW SECONDS WHY...: the target stops responding because of the command WHY.
silent() {
	note "$1, from a target that answers nothing: ${*:3}"
	enter
	rule disk 'flush 1'
	sleep 0.5
	"${@:3}"
	sleep 0.5
	clock; t0=$now
	$1 &
	leaving=$!
	within $(($2 + 30)) "$host gone" gone $host
	clock
	bound "$1" $t0 $now 4 $2
	heal 0
	rule disk pass
	again $1
	# The target was not notified, and would take a new connection for the old one.
	echo 0 >${tpg[0]}/enable && echo 1 >${tpg[0]}/enable || fail "cannot end the target's connections"
}
silent log_out 10 rule disk 'all 1'
silent unplug $((4 + ipoib_ms / 1000)) hole both 0
dev=
clean
ok "$kind"
