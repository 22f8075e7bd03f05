#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The redundant set in user space (storage/xorset): five nodes and a client, each a host of its own, as is the
# initiator, and etcd. Verified I/O; the bytes that each link carries; hostile roles at the nodes, which end their own
# connections only; two nodes crash and are rebuilt; all lose power; of two clients the active one sleeps, then the
# other one crashes. In the long set a node is also down for a moment, two others crash, and the set is three times as
# large, with packets of 1 KiB.
#
# deadline: 900 1200
# takes: 175
# runs: rxe kasan long
# runs: rxe kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/hosts.sh"

begin
[ $kind = rxe ] || skip "siw goes by one namespace only"
. "$here/set.sh"
rounds 1 3
stripes=$((28 * rounds))
[ $rounds = 3 ] || MTU=4200
# Seconds: in parallel with other guests this one sometimes waits for its CPUs for 3 s.
lease=10
# A client that cannot renew its lease in time must end. If it lacked a CPU for that, there is no verdict. Called by
# fail.
excuse() {
	local end
	tail -n 3 $tmp/client 2>/dev/null | grep 'the key of the client may be' >/dev/null || return 0
	end=$(stat -c %.6Y $tmp/client)
	end=${end/./}
	without_cpu $((end - lease * 1000000)) $end
	say "the client ended, as it did not reach etcd ($(ms $stolen) of its last $lease s without CPU)"
	[ $stolen -lt $((lease * 250000)) ] || too_slow "the client could not hold its key"
}
# becomes SECONDS WHAT COMMAND...: waits for what only the client can bring about. It must not end.
becomes() {
	within "$1" "$2" or_ended ${serving[client]} "${@:3}"
	! ended ${serving[client]} || fail "$2: the client has ended"
}
make_hosts ini client n0 n1 n2 n3 n4 client2
mkdir -p $files
key=$files/key
(umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >$key)
make_set
login 0
# The other client may need some time to take over.
echo off >/sys/class/srp_remote_ports/port-${host#host}:1/fast_io_fail_tmo || fail "fast_io_fail_tmo"
dev=$(disk $host 0)
quiet $dev
equal "size" "$(blockdev --getsize64 $dev)" $((stripes * 12 << 16))
within 20 "/dev/srp0" test -b /dev/srp0
say "login: /dev/srp0 is $dev; $(map)"
! "$program" node --file $files/n0 "${nodes[@]}" --etcd 10.0.2.1:2379 >$tmp/second 2>&1 ||
	fail "two processes have one file"
grep -q -- 'it is in use: another process' $tmp/second || fail "a second process: $(<$tmp/second)"

verify_io 200 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=$((4 * rounds))m --verify_backlog=64 \
	>/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
verify_io 200 $dev --rw=write --bs=1m --iodepth=2 --offset=$((8 * rounds))m --size=$((4 * rounds))m --fsync=4 \
	>/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
! log_has 'abort of a command' || fail "a command got no answer"

# all_nodes SENT|GOT: prints the sum.
all_nodes() {
	local -n of=$1
	echo $((of[n0] + of[n1] + of[n2] + of[n3] + of[n4]))
}
# about WHAT KIB TIMES: at least TIMES the written data, and at most a sixth more.
about() { [ $2 -ge $((6144 * $3)) ] && [ $2 -lt $((6144 * $3 * 7 / 6)) ] || fail "$1: $2 KiB, not $3 times 6144"; }
dd if=/dev/urandom of=$tmp/data bs=768k count=8 status=none
carry "written" 6144 dd if=$tmp/data of=$dev bs=768k oflag=direct status=none
about "the initiator sent" ${sent[ini]} 1
about "the client sent" ${sent[client]} 1
about "the nodes sent" $(all_nodes sent) 2
about "the nodes got" $(all_nodes got) 3
same() {
	echo 3 >/proc/sys/vm/drop_caches
	cmp -n 6291456 $tmp/data <(dd if=$dev bs=256k count=24 iflag=direct status=none) || fail "the data is wrong: $1"
}
carry "read" 6144 same "with all nodes"
about "the nodes sent" $(all_nodes sent) 1

# begin_io: starts verified I/O for six seconds, unless something blocks it.
begin_io() {
	start_verify_io $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --offset=$((12 * rounds))m --size=$((6 * rounds))m \
		--rate=$((512 * rounds))k --verify_backlog=32
	fio=$!
	sleep 2
}
if [ $rounds = 3 ]; then
	# A node is down for a moment: it continues with its log.
	begin_io
	die n3
	sleep 1
	role n3
	io_ends $fio 200 "after n3 was away"
	becomes 60 "all nodes" whole
	say "n3 was away for a moment: $(map)"
fi

# Roles that violate the protocol (userspace-tests/hostile), amid I/O: each ends its own connections, and nothing else.
[ -f "$here/../srp-hostile" ] || fail "srp-hostile is not in this guest"
chmod +x "$here/../srp-hostile"
before=$(map)
for n in 0 $([ $rounds = 1 ] || echo 3); do
	timeout 300 nsenter --net=/run/netns/client2 "$here/../srp-hostile" node $n 10.0.${number[n$n]}.2:5560 ab cd $key \
		0x00000000000000000000000000000001 >$tmp/hostile 2>&1 &
	attacks=$!
	io_until $attacks $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --offset=$((12 * rounds))m --size=1m --rate=256k \
		--verify_backlog=32
	reap 20 "srp-hostile" $attacks
	status=$?
	while read -r line; do say "hostile to n$n: $line"; done <$tmp/hostile
	[ $status = 0 ] || fail "srp-hostile ended with status $status"
done
! log_has 'connection lost|abort of a command' || fail "an attack reached the session"
equal "the map after the attacks" "$(map)" "$before"
for h in client n0 n1 n2 n3 n4; do
	kill -0 ${serving[$h]} 2>/dev/null && ! says $h panicked || fail "$h: $(tail -n 5 $tmp/$h)"
done

# Two nodes crash with I/O in flight, permanently.
begin_io
die n1
die n4
io_ends $fio 200 "after n1 and n4 died"
becomes 60 "a set without n1 and n4" out "u* o* u* u* o*"
same "without n1 and n4"
say "n1 and n4 have died: no error, all data right; $(map)"
# A file of another size is refused, and the error names the wrong option.
new_file 4 20
role n4
! reap 60 "n4" ${serving[n4]} || fail "n4 ended with status 0"
unset "serving[n4]"
says n4 'file, which has --stripes 20 and not '$stripes || fail "n4: $(tail -n 5 $tmp/n4)"
out "u* o* u* u* o*" || fail "the map has changed: $(map)"
# The nodes return, one with a new file, and their cells are rebuilt, with I/O in flight.
new_file 4
begin_io
role n1
role n4
becomes 200 "n1 and n4 are made again" whole
io_ends $fio 200 "as n1 and n4 were made again"
say "n1 and n4 are made again: $(map)"

# The rebuilt data is correct: two other nodes crash.
if [ $rounds = 3 ]; then
	die n0
	die n2
	becomes 60 "a set without n0 and n2" out "o* u* o* u* u*"
	same "without n0 and n2"
	verify_io 200 $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --size=8m --offset=36m --verify_backlog=32 \
		>/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	role n0
	role n2
	becomes 200 "n0 and n2 are made again" whole
	same "with all nodes again"
	say "n0 and n2 have died and are made again: $(map)"
fi

# All nodes crash at once with I/O in flight, and are away for longer than a command may take: the initiator sends it
# again.
begin_io
for h in n0 n1 n2 n3 n4; do kill -KILL ${serving[$h]}; done
for h in n0 n1 n2 n3 n4; do reap 20 "$h" ${serving[$h]} 2>/dev/null; done
becomes 30 "a command that is sent again" says client 'is to be sent again: .* nodes \[0, 1, 2, 3, 4\]'
for h in n0 n1 n2 n3 n4; do role $h; done
io_ends $fio 200 "after all nodes died"
becomes 200 "all nodes" whole
same "after all nodes died"
say "all nodes have died and are back: $(map)"

# A second client waits for the set and names the first one, which has it. The first client sleeps with I/O in flight;
# it ends when it wakes up, because the second one has taken the set. Then the second client crashes, and the set and
# the session return to the first host.
number_of() { sed -n 's/^client \([0-9]*\) takes the set$/\1/p' $tmp/$1 | tail -n 1; }
waits() { says $1 "^client $(number_of $2) has the set: this one, [0-9]*, waits for its end\$"; }
role client2
within 20 "a client that waits" waits client2 client
one=$host
# Commands must wait for the end of a lease, a login and a write.
echo 90 >/sys/block/${dev#/dev/}/device/timeout
begin_io
mark
kill -STOP ${serving[client]}
within 60 "the second client has the set" says client2 'is open$'
login_string() { echo "id_ext=ab,ioc_guid=cd,initiator_ext=2,src=10.0.0.2,dest=10.0.${number[client2]}.2:5555"; }
login 0
second=$(disk $host 0)
quiet $second
dd if=/dev/urandom of=$tmp/more bs=256k count=4 status=none
dd if=$tmp/more of=$second bs=256k seek=$((80 * rounds)) oflag=direct status=none || fail "a write by the second client"
kill -CONT ${serving[client]}
! reap 20 "the first client" ${serving[client]} || fail "the client that slept ended with status 0"
unset "serving[client]"
says client 'the key of the client may be' || fail "the client that slept: $(tail -n 5 $tmp/client)"
logged 'connection lost'
logout $host
host=$one
: >$tmp/client
role client
within 20 "a client that waits" waits client client2
die client2
io_ends $fio 200 "after one client slept and the other one died"
within 100 "all nodes" whole
same "after both clients"
cmp -n 1048576 $tmp/more <(dd if=$dev bs=256k skip=$((80 * rounds)) count=4 iflag=direct status=none) ||
	fail "what the second client wrote is not there"
say "one client has slept, the other one has died: $(map)"

logout $host
clean
end_set
ok "$kind"
