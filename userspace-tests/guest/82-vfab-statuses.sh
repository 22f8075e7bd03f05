#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Each completion status in each state of a slot (rust/ib_srp/srp/logic/slot_state.rs), for each completion possible
# there: the session reconnects, the command ends exactly once, and no data is wrong. The trace events show that the
# slot was in the state. Nothing can arrive in Responded: the callback of the response leaves this state, and callbacks
# are serialized. LONG: all combinations, with reads and writes; otherwise a random eighth.
#
# deadline: 1200 2400
# takes: 133
# runs: vfab kasan long
# runs: vfab arm64-16k arm64-64k long LONG= DMA_BITS=32 swiotlb=65536,force
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
fabric 1
back_held disk 16
target 0
lun 0 0 disk
parameter=/sys/module/ib_srp/parameters/keep_alive
undo() { ! rust_driver || echo 5 >$parameter; }
# The probe of a connection that is idle for 5 s would take the fault.
! rust_driver || echo 0 >$parameter || fail "keep_alive"
login 0 ,ch_count=1
dev=$(disk "$host" 0)
port=/sys/class/srp_remote_ports/port-${host#host}:1
echo 1 >$port/reconnect_delay || fail "reconnect_delay"
running() { [ "$(cat $port/state)" = running ]; }

# Completion statuses as NAME=NUMBER.
statuses="local-length=1 local-operation=2 local-protection=4 flushed=5 bind=6 bad-response=7 local-access=8
	remote-invalid-request=9 remote-access=10 remote-operation=11 retries=12 rnr-retries=13 remote-abort=16 fatal=19
	response-timeout=20 general=21"
# STATE KIB REQUEST HELD ORDER: the state, the size of the command, the completion that reports the loss, whether the
# back end holds the command, and the fault. `die` affects the next receive request while the command is in that state.
# In Failed the flushed completions have the status, because the queue pair has already died.
cells=(
	"free 64 receive - die"
	"building 64 receive - receive 1 STATUS map"
	"posted 64 send - fail 1 STATUS reg-mr"
	"posted 64 send - error 1 STATUS reg-mr"
	"posted 64 receive - receive 1 STATUS reg-mr"
	"posted 4 send - fail 1 STATUS message"
	"posted 64 send - fail 1 STATUS message"
	"posted 4 send - error 1 STATUS message"
	"posted 64 send - error 1 STATUS message"
	"posted 4 receive - receive 1 STATUS message"
	"posted 4 receive - error 1 STATUS recv"
	"posted 64 receive - error 1 STATUS recv"
	"posted 4 receive held die"
	"posted 64 receive held die"
	"invalidating 64 invalidation - fail 1 STATUS local-inv"
	"invalidating 64 invalidation - error 1 STATUS local-inv"
	"invalidating 64 receive - receive 1 STATUS local-inv"
	"invalidating 64 receive - swallow 1 local-inv"
	"aborting 64 send held fail 1 STATUS message"
	"aborting 64 send held error 1 STATUS message"
	"aborting 64 receive held die"
	"failed 64 receive held error 8 STATUS flushed-recv"
	"failed 64 receive - error 1 STATUS flushed-send"
)

# The expected content of the disk. Writes also go there.
head -c 16M /dev/urandom >$tmp/image
dd if=$tmp/image of=$dev bs=1M oflag=direct status=none || fail "the first write"
# begin_io read|write KIB: starts one command in the background, at a random offset.
begin_io() {
	at=$((RANDOM % (16384 / $2)))
	if [ $1 = write ]; then
		head -c ${2}k /dev/urandom >$tmp/new
		dd if=$tmp/new of=$tmp/image bs=${2}k seek=$at conv=notrunc status=none
		timeout 100 dd if=$tmp/new of=$dev bs=${2}k seek=$at count=1 oflag=direct conv=notrunc status=none 2>$tmp/dd &
	else
		timeout 100 dd if=$dev of=$tmp/got bs=${2}k skip=$at count=1 iflag=direct status=none 2>$tmp/dd &
	fi
	io=$!
}
# told_of EVENT: returns whether this event has occurred. The C driver has no events, so it gets some time instead.
told_of() { if rust_driver; then grep -q " srp_$1: " $tracing/trace; else sleep 0.2; fi; }
timed_out() { [ $(($(cat /sys/block/${dev#/dev/}/device/iotmo_cnt))) -gt $((timeouts)) ]; }
# The C driver may reconnect once more.
connected() { qpn=$(awk '$7 == 3 {print $1}' /sys/kernel/debug/ib_vfab/vfab1/qps); [ -n "$qpn" ]; }
die() { within 30 "a connected queue pair" connected; at_port vfab1 die $qpn "$@"; }
# at_loss STATE WHY NUMBER: checks that the connection was lost once, with that reason and status, when the slot was in
# STATE.
at_loss() {
	local want=$1
	case $want in
	building) want=free ;;
	failed) want=posted ;;
	esac
	cat $tracing/trace >$tmp/trace
	awk -v want=$want -v why="why=\"$2 failed: .*\\($3\\)\"" '
		BEGIN {state = "free"}
		/ srp_send: / {state = "posted"}
		/ srp_task: / {state = "aborting"}
		/ srp_invalidate: / {state = "invalidating"}
		/ srp_done: / {state = "free"}
		/ srp_lost: / && ++lost {
			if (state != want) wrong = "the slot was " state
			if ($0 !~ why) wrong = wrong " " $0
		}
		END {
			if (lost != 1) wrong = wrong " " lost + 0 " losses"
			if (wrong) {print wrong; exit 1}
		}' $tmp/trace || fail "$what: $(grep -v '^#' $tmp/trace | tail -n 20)"
	python3 "$here/traces.py" $tmp/trace ended >$tmp/said 2>&1 || fail "$what: $(<$tmp/said)"
}

n=0 all=0
declare -A tried=()
# one STATUS NUMBER read|write CELL
one() {
	local status=$1 number=$2 way=$3 state kib request held order word before
	read -r state kib request held order <<<"$4"
	order=${order/STATUS/$status}
	word=${order%% *}
	what="'$status' in state $state, $way of $kib KiB, $order"
	quiet $dev
	listen
	timeouts=$(cat /sys/block/${dev#/dev/}/device/iotmo_cnt)
	faulted vfab1 $word
	before=$times
	[ $held = - ] || hold disk
	case "$state $word" in
	*" die" | aborting*) ;;
	*) fault vfab1 $order ;;
	esac
	# The lost packet keeps the message in the send queue.
	[[ $order != *flushed-send ]] || fault vfab1 loss 1 1000
	[ $state != aborting ] || echo 1 >/sys/block/${dev#/dev/}/device/timeout
	begin_io $way $kib
	case "$state $word" in
	"free die") reap 60 "the I/O before $what" $io || fail "$(<$tmp/dd) before $what" ;;
	"posted die" | aborting* | failed*) within 10 "command of $what" told_of send ;;
	"invalidating swallow") within 10 "invalidation of $what" told_of invalidate ;;
	esac
	if [ $state = aborting ]; then
		[ $word = die ] || fault vfab1 $order
		within 20 "timeout of $what" timed_out
		within 20 "abort of $what" told_of task
		echo 30 >/sys/block/${dev#/dev/}/device/timeout
	fi
	case "$state $word" in
	*" die" | *" swallow") die $status ;;
	failed*) die; number=5 ;;
	esac
	[[ $order != *flushed-send ]] || fault vfab1 loss 1 0
	[ $held = - ] || let_go disk
	[ $state = free ] || reap 60 "the I/O with $what" $io || fail "$(<$tmp/dd) with $what"
	within 60 "connection after $what" running
	if [ $word != die ]; then
		faulted vfab1 $word
		equal "how often it happened: $what" $((times - before)) 1
	fi
	if rust_driver; then
		quiet $dev
		at_loss $state $request $number
	fi
	[ $way = read ] || dd if=$dev of=$tmp/got bs=${kib}k skip=$at count=1 iflag=direct status=none ||
		fail "read after $what"
	cmp $tmp/got <(dd if=$tmp/image bs=${kib}k skip=$at count=1 status=none) || fail "data is wrong: $what"
	n=$((n + 1))
	tried[$state]=$((${tried[$state]-0} + 1))
}
for cell in "${cells[@]}"; do
	# The C driver does not request the completion of an invalidation.
	rust_driver || [[ $cell != *swallow* ]] || continue
	for status in $statuses; do
		for way in read write; do
			all=$((all + 1))
			[ -n "${LONG-}" ] || [ $((RANDOM % 8)) = 0 ] || continue
			one ${status%=*} ${status#*=} $way "$cell"
		done
	done
	say "$cell: $n so far, $((SECONDS - began)) s"
done
quiet $dev
cmp $dev $tmp/image || fail "a write came late"
logout "$host"
said=
for state in "${!tried[@]}"; do said+=", $state ${tried[$state]}"; done
ok "$n of $all (${said#, }): each time the session is back, the command ended once, and no data is wrong"
