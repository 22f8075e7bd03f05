#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# With a round trip of 600 ms four channels connect and reconnect in about the time of two: after the first one, which
# ends the target's older sessions, the others connect in parallel.
#
# deadline: 240
# takes: 113
# runs: rxe kasan long ncpus=4
. "$(dirname "$0")/lib.sh"
. "$here/rport.sh"
. "$here/faults.sh"

begin
rounds 3 6
[ "$(nproc)" -ge 4 ] || fail "four channels need four CPUs"
fabric_pair 1
netem 0 delay 300ms
back_null disk 16
target 0
lun 0 0 disk

# Measures from the target's first line about a login to the initiator's last one: the duration in ms, and its end.
connected() {
	local uptime
	read -r uptime _ </proc/uptime
	clock
	read -r took[$1] from[$1] to[$1] < \
		<(log_since | sed 's/^\[ *//' | awk -v now=$now -v up=$uptime '/Received SRP_LOGIN_REQ/ && !from {from = $1}
		/logged in at/ {printf "%d %.0f %.0f\n", ($1 - from) * 1000, now + (from - up) * 1e6, now + ($1 - up) * 1e6; exit}')
}
for n in 2 4; do
	mark
	login 0 ,ch_count=$n
	is channels /sys/class/scsi_host/$host/ch_count $n
	dev=$(disk "$host" 0)
	connected $n
	reset[$n]=999999
	for ((i = 0; i < rounds; i++)); do
		mark
		clock; t=$now
		timeout 30 sg_reset -H $dev >$tmp/reset 2>&1 || fail "sg_reset -H: $(cat $tmp/reset)"
		clock
		ms=$(((now - t) / 1000))
		[ $ms -gt ${reset[n]} ] || reset[$n]=$ms reset_from[$n]=$t reset_to[$n]=$now
		within 10 "running" in_state $host running
		logged "reconnected, $n of $n channels|reconnect succeeded"
	done
	logout "$host"
done
times="two and four channels: login ${took[2]} and ${took[4]} ms, reset ${reset[2]} and ${reset[4]} ms"
say "$times"
[ ${took[2]} -ge 600 ] && [ ${reset[2]} -ge 1200 ] || fail "faster than the network: $times"
# Sequentially, two more channels would take 1.2 s more.
if rust_driver; then
	why="channels wait for each other: $times"
	over=$((took[4] - took[2] - 600))
	[ $over -lt 0 ] || exceeded $((over * 1000 + 1)) ${from[4]} ${to[4]} "$why"
	over=$((reset[4] - reset[2] - 600))
	[ $over -lt 0 ] || exceeded $((over * 1000 + 1)) ${reset_from[4]} ${reset_to[4]} "$why"
fi
clean
ok "$kind: $times"
