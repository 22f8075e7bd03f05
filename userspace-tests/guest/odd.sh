# SPDX-License-Identifier: GPL-2.0
# Our own target at device 0 of a pair, which misbehaves on orders (userspace-tests/odd-target): `--help` lists them.
# Source it after lib.sh.

odd_port=5556 odd_answers=5557

odd_target() {
	modprobe -qa ib_uverbs rdma_ucm
	fabric_pair 1
	from 0
	[ -f "$here/../odd-target" ] || skip "odd-target is not in this guest"
	within 10 "/dev/infiniband" test -c /dev/infiniband/rdma_cm
	mkfifo $tmp/told
	exec {telling}<>$tmp/told
	odd=${dest#[}
	"$here/../odd-target" ${odd%]} $odd_port $odd_answers <&$telling >$tmp/odd 2>&1 &
	odd=$!
	heard=0
	hears "the target" listens
	baseline
}
# odd_ib: the same with the InfiniBand CM. `a` receives messages to port 1 of vfab0, `b` is a second queue pair there,
# and `c` is at port 1 of vfab2. Their addresses are in `qpn_a`, `lid_a`, `gid_a` and so on.
odd_ib() {
	local line name
	[ -f "$here/../odd-target" ] || skip "odd-target is not in this guest"
	mkfifo $tmp/told
	exec {telling}<>$tmp/told
	"$here/../odd-target" ib a:vfab0 b:vfab0 c:vfab2 <&$telling >$tmp/odd 2>&1 &
	odd=$!
	heard=0
	hears "the target" listens
	for name in a b c; do
		line=$(grep " at=$name " $tmp/odd)
		declare -g qpn_$name=$(word qpn "$line") lid_$name=$(word lid "$line") gid_$name=$(word gid "$line")
	done
	at_port vfab0 cm $qpn_a
	at_port vfab2 cm $qpn_c
	baseline
}
# word NAME LINE: prints the word after `NAME=` in LINE.
word() { local all=" $2 "; all=${all#* $1=}; echo "${all%% *}"; }

login_string() { from $1; echo "id_ext=00000000000000aa,ioc_guid=00000000000000aa,src=$src,dest=$dest:$odd_port${2-}"; }

# tell LINE: sends an order. Earlier output of the target is ignored from now on.
tell() {
	mark_said
	echo "$*" >&$telling
	hears "'$*'" "did $*\$"
}
mark_said() { heard=$(wc -l 2>/dev/null <$tmp/odd) || heard=0; }
has_said() { tail -n +$((heard + 1)) $tmp/odd | grep -E -- "$1" >/dev/null; }
# hears WHAT REGEX [SECONDS]: waits for output since the last `tell`.
hears() {
	within "${3-20}" "the target to say: $1" or_ended $odd has_said "$2"
	has_said "$2" || fail "the target ended before it said: $1"
}
# times REGEX: prints how many lines since the last `tell` match.
times() { tail -n +$((heard + 1)) $tmp/odd | grep -cE -- "$1"; }

rport_of() { echo /sys/class/srp_remote_ports/port-${1#host}:1; }
# stayed WHY: checks that there was no new login since the last `tell`.
stayed() { equal "logins since $1" "$(times 'login multi')" 0; running || fail "$1 ended the session"; }
# Checks that the target understood all orders.
no_complaints() { ! grep FAILED $tmp/odd || fail "the target complains"; }
running() { read -r now_state <"$(rport_of $host)/state" && [ "$now_state" = running ]; }

# enter [OPTION]: logs in; sets `dev` to the first disk. Reconnects a second after the target violated the protocol.
enter() {
	login 0 "${1-}"
	echo 1 >$(rport_of $host)/reconnect_delay || fail "reconnect_delay"
	dev=$(disk $host 0)
	quiet $dev
	heard=$(wc -l <$tmp/odd)
}
# Short command timeouts, so that a missing response is noticed soon.
impatient() {
	echo 2 >/sys/block/${dev#/dev/}/device/timeout
	echo 2 >/sys/block/${dev#/dev/}/device/eh_timeout
}
# verified SECONDS [OPTION]...: runs fio with verification.
verified() {
	verify_io 100 $dev --rw=randrw --bs=4k --iodepth=8 --size=4m --time_based --runtime=$1 --verify_backlog=32 "${@:2}" \
		>/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
}
# violated ACTION [CONDITION]...: makes a response violate the protocol, and checks that the session reconnects, that
# CONDITION holds (see `within`), and that the command is completed exactly once.
violated() {
	mark
	listen
	tell on 28 $1
	block read
	logged 'connection lost: protocol violation: tag 0x[0-9a-f]* is not outstanding'
	within 10 "running after an answer $1" running
	[ $# = 1 ] || within "${@:2}"
	block read
	told ended lost="protocol violation"
	no_reports
	sleep 1.5
}
# block write|read: 4 KiB, with a new text each time. A read returns the last text written.
block() {
	if [ $1 = write ]; then
		yes $RANDOM | head -c 4096 >$tmp/wrote
		timeout 60 dd if=$tmp/wrote of=$dev bs=4k count=1 oflag=direct conv=notrunc 2>$tmp/dd || fail "write: $(<$tmp/dd)"
	else
		timeout 60 dd if=$dev of=$tmp/read bs=4k count=1 iflag=direct 2>$tmp/dd || fail "read: $(<$tmp/dd)"
		cmp -s $tmp/wrote $tmp/read || fail "what was read is wrong"
	fi
}
