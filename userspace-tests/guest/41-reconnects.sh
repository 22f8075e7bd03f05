#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Many reconnects under verified I/O: no data is lost, nothing leaks, and the queue depth stays the same.
#
# deadline: 400 3600
# takes: 111
# runs: rxe kasan fast long
# runs: siw vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
. "$(dirname "$0")/lib.sh"
. "$here/rport.sh"
. "$here/faults.sh"

begin
rounds 45 3000
seconds=$rounds
rounds 20 1000
least=$rounds
rounds=1000
fabric_pair 1
back_held disk 64
target 0
lun 0 0 disk
login 0 ,tl_retry_count=2,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 10
timeouts $host 1 60 120
watch_states $host
trace $host

# Prints the summary line of the initiator's RDMA device.
objects() { resources | grep " $(initiator 0):" | sed 's/^[0-9]*: //'; }
# Prints the names of this device's memory regions. On siw the target has so many that listing them takes minutes.
regions() {
	if [ $kind = rxe ]; then resources mr | grep "dev $(initiator 0) " | grep -o 'mrn [0-9]*' | sort; else echo unknown; fi
}
as_before() { [ "$(objects)" = "$first" ]; }
memory() { shrink; awk '$1 == "SUnreclaim:" {s = $2} $1 == "MemAvailable:" {a = $2} END {print s, a}' /proc/meminfo; }
credits() { cat /sys/class/scsi_host/$host/req_lim; }
any_credits() { [ "$(credits)" -gt 0 ]; }
have_credits() { [ "$(credits)" = "$1" ]; }

# Sets `depth` to the number of commands in flight at the target, once it has not changed for a second.
full() {
	local last=$depth
	sleep 1
	read -r depth _ </sys/block/${dev#/dev/}/inflight
	[ $depth -gt 0 ] && [ $depth = $last ]
}
burst() {
	local p
	quiet $dev
	hold disk
	start_io $dev --iodepth=100 --rw=randread --bs=4k --size=16m --number_ios=400 --numjobs=2 --cpus_allowed=0,1 \
		--cpus_allowed_policy=split
	p=$!
	depth=0
	# fio may start slowly; a command has 30 s.
	within 60 "the first command of a burst" or_ended $p not nothing_in_flight $dev
	within 20 "all commands of a burst" or_ended $p full
	! ended $p || fail "fio has ended in a burst: $(<$tmp/fio)"
	let_go disk
	io_ends $p 60 "a burst"
}

burst
deep=$depth
# The bursts use more than one channel.
! rust_driver || [ $deep -gt 62 ] || fail "only $deep commands at once"
within 5 "all credits" any_credits
start=$(credits)
first=$(objects)
names=$(regions)
[ -n "$names" ] || fail "no memory region has a name"
# Reset without I/O, after which regions are recreated if their invalidation was not seen. The region for the static
# memory of each channel is always recreated, and the C driver recreates all.
quiet $dev
timeout 60 sg_reset -H $dev >$tmp/reset 2>&1 || fail "sg_reset -H: $(cat $tmp/reset)"
within 30 "running" in_state $host running
new=$(comm -13 <(echo "$names") <(regions) | wc -l)
! rust_driver || [ $new -le 2 ] || fail "$new memory regions of $(echo "$names" | wc -l) are new"
say "at the start: $deep commands at once, req_lim $start, $first"

# The caller of a reset is woken late, when the connection is back. In the meantime the midlayer sends nothing.
for i in 1 2 3; do
	timeout 5 taskset -c 0 chrt -f 1 sh -c 'while :; do :; done' &
	hog=$!
	timeout 60 taskset -c 0 sg_reset -H $dev >$tmp/reset 2>&1 || fail "sg_reset -H that runs late: $(cat $tmp/reset)"
	within 30 "running" in_state $host running
	kill $hog 2>/dev/null || true
	reap 10 "the hog" $hog || true
done

# Verified I/O, one run after the other until $tmp/stop exists.
(
	last=$((SECONDS + seconds + 60))
	while [ ! -e $tmp/stop ] && [ $SECONDS -lt $last ]; do
		verify_io 120 $dev --iodepth=16 --rw=randwrite --bs=4k --size=2m >$tmp/err 2>&1 || {
			cat $tmp/err $tmp/fio >$tmp/bad
			exit 1
		}
		echo >>$tmp/runs
	done
) &
writer=$!

# Each round must end with the driver's own log line, except after a loss that is not logged: ours logs ten a minute.
timeout $((seconds + 200)) dmesg --follow |
	grep --line-buffered -E 'ib_srp.* (connection lost: |reconnected, |reconnect succeeded)' >$tmp/said &
follower=$!
sleep 1
lines() { grep -c "$1" $tmp/said || true; }
unlogged() { echo $(($(cat /sys/class/scsi_host/$host/statistics/connections_lost) - $(lines 'connection lost'))); }
ends() { echo $(($(lines reconnect) + $(rust_driver && unlogged || echo 0))); }
before=$(ends)
all_said() { [ $(($(ends) - before)) -ge $done ]; }

slowest=0 done=0 memory=
clock; since=$now
end=$((SECONDS + seconds))
while [ $done -lt $rounds ] && [ $SECONDS -lt $end ]; do
	[ ! -e $tmp/bad ] || { head -n 30 $tmp/bad; fail "I/O error after $done reconnects"; }
	t=${EPOCHREALTIME/./}
	if ((done % 10 == 9)); then
		echo 0 >${tpg[0]}/enable
		within 20 "the loss is seen, round $done" not in_state $host running
		echo 1 >${tpg[0]}/enable
	else
		timeout 60 sg_reset -H $dev >$tmp/reset 2>&1 || fail "sg_reset -H, round $done: $(cat $tmp/reset)"
	fi
	within 30 "running again, round $done" in_state $host running
	t=$(((${EPOCHREALTIME/./} - t) / 1000))
	[ $t -le $slowest ] || slowest=$t
	done=$((done + 1))
	# Caches and pools are full now.
	[ $done != 20 ] || memory=$(memory)
done
took=$((seconds + SECONDS - end))
clock; until=$now
touch $tmp/stop
reap 130 "the verified I/O" $writer || { head -n 30 $tmp/bad; fail "I/O error after $done reconnects"; }
within 5 "a log line for each of $done reconnects" all_said
kill $follower
say "$done reconnects in $took s, the slowest took $slowest ms, $(wc -l <$tmp/runs) runs of fio"
# Converts the shortfall to time.
[ $done -ge $least ] ||
	exceeded $(((until - since) * (least - done) / least)) $since $until "only $done reconnects in $took s"
equal "state of the disk" "$(cat /sys/block/${dev#/dev/}/device/state)" running

within 20 "RDMA objects as at the start: $(objects)" as_before
within 5 "req_lim as at the start" have_credits $start
burst
equal "commands at once after $done reconnects" $depth $deep
within 5 "req_lim as at the start after a burst" have_credits $start
once
read -r slab free <<<"$memory"
read -r slab2 free2 < <(memory)
say "after round 20: $slab KiB slab, $free KiB free; after round $done: $slab2, $free2"
[ $((slab2 - slab)) -le 3072 ] || {
	sort -k3nr /proc/slabinfo | head -n 20
	fail "slab grew by $((slab2 - slab)) KiB in $done reconnects"
}

logout $host
within 5 "end of the noted states" ended $watcher
legal_states $host
clean
ok "$kind: $done reconnects, slowest $slowest ms"
