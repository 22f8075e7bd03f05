#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logins and logouts with four targets at once, as many as possible: none fails, nothing leaks. Not run on siw, where
# ib_srpt allocates 100 MB per login and frees them late.
#
# deadline: 400 3900
# takes: 100
# runs: rxe kasan fast
# runs: rxe stock long
# runs: vfab rxe+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
cycles=10000
rounds 45 3300
seconds=$rounds
rounds 20 $cycles
least=$rounds
fabric 4
pairs=()
for i in 0 1 2 3; do
	back_null d$i 4
	head -c 512 /dev/urandom | dd of=${backdev[d$i]} bs=512 oflag=direct status=none
	target $i
	lun $i 0 d$i
	target_up $i
	# On the debug kernel a login is expensive: one memory region per command.
	pairs+=("$(initiator $i)" "$(login_string $i ,queue_size=8,ch_count=1)")
done

# loop SECONDS CYCLES: sets done, took, in, out.
loop() {
	local run=()
	[ -z "$paired" ] || [ $kind = siw ] || run=("${in_ns[@]}")
	# udevd is slower than the loop, and its queued events would fill the memory.
	udevadm control --exit --timeout=60 || fail "udevd does not end"
	timeout $(($1 + 100)) "${run[@]}" python3 $here/login-loop.py "$1" "$2" "${pairs[@]}" >$tmp/said 2>&1
	rc=$?
	/usr/lib/systemd/systemd-udevd --daemon 2>/dev/null || fail "udevd does not start"
	[ $rc = 0 ] || fail "$(cat $tmp/said)"
	read -r done took in out <$tmp/said
	within 20 "no SCSI host" no_hosts
	within 20 "nothing of ours" nothing_ours
}

# Caches and pools are full after some cycles.
loop 30 40
slab_objects; before=$objects
clock; since=$now
loop $seconds $cycles
clock
slab_objects; after=$objects
# Converts the shortfall to time.
[ $done -ge $least ] || exceeded $(((now - since) * (least - done) / least)) $since $now "only $done cycles in $took s"
[ $((after - before)) -le 2048 ] || {
	sort -k3nr /proc/slabinfo | head -n 20
	fail "slab grew by $((after - before)) KiB in $done cycles"
}
clean
slowest="slowest login $in ms, logout $out ms"
ok "$kind: $done cycles in $took s ($((done * 60 / took)) a minute), $slowest, slab $before to $after KiB"
