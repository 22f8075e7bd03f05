#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Each status that a completion may have, in the place of a send completion (a command, a registration, an invalidation) and of
# a response, for each way that data takes: the session comes back, and data is right.
# LONG: all of them; otherwise a quarter, at random.
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin 300 1200
fabric 1
back_null disk 16
target 0
lun 0 0 disk
login 0
dev=$(disk "$host" 0)
port=/sys/class/srp_remote_ports/port-${host#host}:1
echo 1 >$port/reconnect_delay || fail "reconnect_delay"
running() { [ "$(cat $port/state)" = running ]; }

statuses="local-length local-operation local-protection flushed bind bad-response local-access remote-invalid-request remote-access
	remote-operation retries rnr-retries remote-abort fatal response-timeout general"
# What 64 commands do: small ones by static memory and immediate data, others by a region.
head -c 4M /dev/urandom >$tmp/a
dd if=$tmp/a of=$dev bs=64k oflag=direct status=none || fail "the first write"
some() {
	case $1 in
	read) dd if=$dev of=$tmp/b bs=$2 count=64 iflag=direct status=none || fail "read with $3" ;;
	write)
		head -c 4M /dev/urandom >$tmp/a
		dd if=$tmp/a of=$dev bs=$2 count=64 oflag=direct status=none || fail "write with $3"
		dd if=$dev of=$tmp/b bs=$2 count=64 iflag=direct status=none || fail "read after $3"
		;;
	esac
	cmp -n $(stat -c %s $tmp/b) $tmp/a $tmp/b || fail "what was read is wrong with $3"
	# The rest is as the other commands want it.
	[ $1 = read ] || dd if=$tmp/a of=$dev bs=64k oflag=direct status=none || fail "write after $3"
}
n=0 all=0
for way in "read 4k" "read 64k" "write 4k" "write 64k"; do
	for status in $statuses; do
		for end in send recv; do
			all=$((all + 1))
			[ -n "${LONG-}" ] || [ $((all % 4)) = $((RANDOM % 4)) ] || continue
			nth=$((RANDOM % 4 + 1))
			what="'$status' in completion $nth ($end), $way"
			faulted vfab1 error
			before=$times
			fault vfab1 error $nth $status $end
			some $way "$what"
			faulted vfab1 error
			[ $times = $((before + 1)) ] || fail "$what happened $((times - before)) times"
			within 30 "connection after $what" running
			n=$((n + 1))
		done
	done
done
some write 64k "nothing"
logout "$host"
ok "$n of $all: each time the session is back, and no data is wrong"
