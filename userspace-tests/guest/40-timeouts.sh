#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fast_io_fail_tmo and dev_loss_tmo expire in time, and the remote port makes only legal state transitions.
#
# deadline: 400 900
# takes: 67
# runs: rxe kasan fast long
# runs: siw kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/rport.sh"

begin
fabric_pair 2
for i in 0 1; do
	back_null d$i 16
	target $i
	lun $i 0 d$i
done

# A path fails in two ways: the target ends the session and refuses logins, or all packets are lost and reconnect
# attempts hang.
refuse() { if [ $2 = off ]; then echo 0; else echo 1; fi >${tpg[$1]}/enable || fail "cannot switch target $1 $2"; }
# An unplugged rxe puts its queue pair for CM messages into a permanent error state. So on rxe the incoming packets are
# dropped instead.
link() {
	if [ $kind = siw ]; then
		if [ $2 = off ]; then
			ip link set v$1 down
		else
			ip link set v$1 up && neighbours $1
		fi || fail "cannot switch v$1 $2"
	elif [ $2 = off ]; then
		nft "$(dropping v$1)" && ini nft "$(dropping w$1)" || fail "cannot drop what v$1 and w$1 get"
	else
		undo
		neighbours $1
	fi
}
dropping() {
	echo "add table netdev cut; add chain netdev cut in { type filter hook ingress device $1 priority 0; };" \
		"add rule netdev cut in drop"
}
undo() { nft delete table netdev cut; [ $kind = siw ] || ini nft delete table netdev cut; } 2>/dev/null

# enter I RECONNECT_DELAY FAST_IO_FAIL DEV_LOSS: logs in, records the states, and starts a reader that ends at the first
# failed read and records the time.
declare -A reader=() watching=()
enter() {
	login $1 ,tl_retry_count=2,ch_count=2
	# The new host may have the number of the slow session's host, which is gone: rename the records of that session.
	if [ "${slow-}" = $host ]; then
		slow=slow
		watching[slow]=${watching[$host]} reader[slow]=${reader[$host]}
		mv $tmp/states.$host $tmp/states.slow
		mv $tmp/reader.$host $tmp/reader.slow
	fi
	dev=$(disk "$host" 0)
	udevadm settle -t 10
	timeouts $host $2 $3 $4
	watch_states $host
	watching[$host]=$watcher
	rm -f $tmp/reader.$host
	python3 $here/reader.py $dev >$tmp/reader.$host 2>$tmp/err &
	reader[$host]=$!
	within 40 "the first read" or_ended ${reader[$host]} grep -qs reading $tmp/reader.$host
	reads $host || fail "reading $dev: $(cat $tmp/err)"
}
# read_failed HOST: measures the time from the state blocked to the failed read.
read_failed() {
	local end
	end=$(tail -n 1 $tmp/reader.$1)
	least= most=
	[ "$end" = reading ] || read -r least most since until < <(awk -v end="$end" \
		'$3 == "blocked" {printf "%d %d %.0f %.0f\n", (end - $2) * 1000, (end - $1) * 1000, $1 * 1e6, end * 1e6; exit}' \
		$tmp/states.$1)
}
reads() { ! ended ${reader[$1]}; }

# cut HOW I: breaks the path of `host`, and waits until the driver notices.
cut() {
	local t=${EPOCHREALTIME/./}
	$1 $2 off
	within 30 "the loss is seen ($1)" not in_state $host running
	say "$host: $1 was seen after $(((${EPOCHREALTIME/./} - t) / 1000)) ms"
}
# expired HOST WHAT FAST LOSS: checks all transitions until the removal.
expired() {
	local h=$1 what=$2 fast=$3 loss=$4
	within $((loss + 30)) "$h removed, dev_loss_tmo $loss" ended ${watching[$h]}
	legal_states $h
	said="$what, fast_io_fail_tmo $fast, dev_loss_tmo $loss"
	if [ $fast = off ]; then
		! between $h blocked fail-fast || fail "$said: $(states $h)"
	else
		between $h blocked fail-fast
		expires fail-fast $fast
		within 5 "end of the reader of $h" ended ${reader[$h]}
		read_failed $h
		expires "end of a read" $fast
	fi
	# The port may be removed before the state lost is seen.
	between $h blocked 'lost|gone'
	expires lost $loss
	within 20 "$h removed" gone $h
	say "$said"
}
expiry() {
	local how=$1
	shift
	enter 0 1 $1 $2
	cut $how 0
	expired $host $how $1 $2
	$how 0 on
}

dev=
listen send done
# The session with the long timeout waits in parallel with the others.
enter 1 1 5 30
slow=$host
cut refuse 1

expiry refuse 1 2
# The C driver holds the transport class's mutex during an attempt, so no timeout expires.
if [ $kind = siw ] || ! rust_driver; then hangs=0; else hangs=1; fi
[ $hangs = 0 ] || expiry link 1 2
expiry refuse off 3
if [ -n "${LONG-}" ]; then
	[ $hangs = 0 ] || expiry link 5 30
	expiry refuse 10 11
	expiry refuse 0 1
fi

# dev_loss_tmo off: the disk stays in fail-fast, and recovers.
enter 0 1 1 off
cut refuse 0
within 10 "fail-fast" in_state $host fail-fast
sleep 4
in_state $host fail-fast || fail "with dev_loss_tmo off: $(states $host)"
said="dev_loss_tmo off"
between $host blocked fail-fast
expires fail-fast 1
failures=/sys/class/srp_remote_ports/$(rport $host)/failed_reconnects
[ "$(<$failures)" -gt 0 ] || fail "no reconnect was counted as failed"
refuse 0 on
within 30 "running again" in_state $host running
is "after the reconnect" $failures 0
dd if=$dev of=/dev/null bs=4k count=16 iflag=direct status=none || fail "read after the reconnect"
logout $host
within 5 "end of the noted states" ended $watcher
legal_states $host
say "$said: $(states $host)"

# The target returns before fast_io_fail_tmo: no error is visible.
enter 0 1 20 30
cut refuse 0
within 10 "blocked" in_state $host blocked
sleep 2
refuse 0 on
within 18 "running again" in_state $host running
sleep 1
reads $host || fail "a read failed though the target came back in time"
between $host blocked running
say "back in time: blocked for $least to $most ms"
kill ${reader[$host]}
logout $host
within 5 "end of the noted states" ended $watcher
legal_states $host

# With both timeouts off nothing expires, and reconnects continue. I/O waits until an attempt fails; then the transport
# class fails the I/O.
enter 0 1 off off
refuse 0 off
sleep 5
in_state $host running || in_state $host fail-fast || fail "both timeouts off: $(states $host)"
refuse 0 on
reads_again() { in_state $host running && dd if=$dev of=/dev/null bs=4k count=1 iflag=direct status=none 2>/dev/null; }
within 30 "running again" reads_again
logout $host
within 5 "end of the noted states" ended $watcher
legal_states $host
say "both off: $(states $host)"

expired $slow refuse 5 30
refuse 1 on
dev=
told ended
clean
ok "$kind"
