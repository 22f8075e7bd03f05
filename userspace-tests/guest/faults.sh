# SPDX-License-Identifier: GPL-2.0
# Shared by the tests of faults, which source it after lib.sh: two hosts, one or two paths between them, faults of these
# paths, verified I/O (journal.py) and time limits. All times are in microseconds.

# The timeouts of the session, in seconds.
reconnect_delay=1 fast_io_fail=5 dev_loss=30 retries=2
# Seconds for the retries of the transport: on vfab two take 4.3 s by opensm's packet lifetime; elsewhere they are
# within the bounds.
retrying=
[ $kind != vfab ] || retrying=5

# Logs an event with the test's output and in the kernel log.
note() { say "$*"; echo "srp-test: $*" >/dev/kmsg; }

# Bounds are for a guest in which `work` takes no longer than on an idle machine with two cores, under TCG, with the
# test kernel. For a slower guest they are multiplied by `factor`, in thousandths, but a much slower guest proves
# nothing. CPU time stolen by other guests does not count.
work_reference=1500000
factor=1000
most_factor=4000
work() { local i; for ((i = 0; i < 60; i++)); do /bin/true; done; }
speed() {
	local t0 took
	clock; t0=$now
	work
	clock
	took=$((now - t0)) stolen=0
	[ $took -le $work_reference ] || without_cpu $t0 $now
	factor=$(((took - stolen) * 1000 / work_reference))
	[ $factor -ge 1000 ] || factor=1000
	[ $factor -le $most_factor ] || too_slow "60 forks take $(ms $took) instead of $(ms $work_reference)"
	say "the guest: $(ms $took), $(ms $stolen) without CPU, factor $((factor / 1000)).$(printf %03d $((factor % 1000)))"
}

# bound WHAT FROM TO SECONDS [TIMEOUT]: fails if WHAT took longer than SECONDS, multiplied by `factor`, plus TIMEOUT
# seconds, which do not depend on the speed of the guest.
bound() {
	note "$1: $(ms $(($3 > $2 ? $3 - $2 : 0)))," \
		"at most ${5:+$5 s + }$4 s * $((factor / 1000)).$(printf %03d $((factor % 1000)))"
	in_time "$1" $2 $3 $((${5:-0} * 1000000 + $4 * 1000 * factor))
}

# Ends a dead TCP connection after 1.4 s, as RoCE with tl_retry_count 2; or, if a busy guest has long round trips, after
# three transmissions at most a second apart.
short_tcp() { local i; for i in env ini; do $i sysctl -qw net.ipv4.tcp_retries2=2 net.ipv4.tcp_rto_max_ms=1000; done; }

# testbed [PATHS]: makes two hosts with this many pairs of devices, and back ends `disk` (LUN 0, the journal) and, with
# one path, `other` (LUN 1, for fio).
testbed() {
	local i
	fabric_pair "${1:-1}"
	short_tcp
	[ $kind = vfab ] || for i in env ini; do
		$i sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1 net.ipv6.conf.default.keep_addr_on_down=1
	done
	[ $kind = vfab ] || for ((i = 0; i < paired; i++)); do
		sysctl -qw net.ipv6.conf.v$i.keep_addr_on_down=1
		ini sysctl -qw net.ipv6.conf.w$i.keep_addr_on_down=1
	done
	back_null disk 32
	[ "${1:-1}" != 1 ] || back_null other 32
	for ((i = 0; i < paired; i++)); do
		target $i
		lun $i 0 disk
		[ "${1:-1}" != 1 ] || lun $i 1 other
	done
	speed
}

# attach I [,option=value]...: logs in with the timeouts; sets `host`, `rport`, `dev` and `dev2`.
attach() {
	login $1 ",tl_retry_count=$retries${2-}"
	rport=/sys/class/srp_remote_ports/port-${host#host}:1
	limits
	dev=$(disk "$host" 0)
	dev2=
	[ -z "${backdev[other]-}" ] || dev2=$(disk "$host" 1)
}
# limits: sets the timeouts, in an order in which no write is refused.
limits() {
	local f
	for f in "dev_loss_tmo off" "fast_io_fail_tmo $fast_io_fail" "dev_loss_tmo $dev_loss" \
		"reconnect_delay $reconnect_delay"; do
		echo "${f#* }" >"$rport/${f% *}" || fail "cannot write ${f#* } to ${f% *}"
	done
}
state() { read -r now_state <"$rport/state" && [ "$now_state" = "$1" ]; }

# cable down|up I: unplugs the cable of pair I at the target's port, or plugs it in. Not for rxe: it treats an error of
# the netdev as an error of the queue pair, and a queue pair 1 in error never sends again, with any initiator.
cable() {
	[ $kind != vfab ] || { at_port ${tport[$2]-vfab$2} $1; return; }
	ip link set v$2 $1 || fail "ip link set v$2 $1"
	[ $1 = down ] || neighbours $2
}

# hole DIRECTION I [MATCH]: drops the packets between the hosts of pair I, or those that match MATCH, on arrival: at the
# target, the initiator, or both. heal I ends it. On vfab it unplugs the cable at the target's end of the path, which
# the initiator's port does not notice.
hole() {
	[ $kind != vfab ] || { [ $1$# = both2 ] || skip "nothing in a subnet loses only some packets"; cable down $2; return; }
	local chain="add table netdev hole$2;
		add chain netdev hole$2 %s$2 { type filter hook ingress device %s$2 priority 0; };
		add rule netdev hole$2 %s$2 ${3-} drop"
	heal $2
	[ $1 = initiator ] || nft "${chain//%s/v}" || fail "nft at the target"
	[ $1 = target ] || ini nft "${chain//%s/w}" || fail "nft at the initiator"
}
# A RoCE packet for queue pair 1: a CM message.
cm_message='udp dport 4791 @th,104,24 1'
heal() {
	[ $kind != vfab ] || { cable up $1; return; }
	nft delete table netdev hole$1
	ini nft delete table netdev hole$1
	neighbours $1
} 2>/dev/null

# netem I OPTION...: configures netem on both sides of pair I. Call it before any traffic: a packet sent during the
# change of a qdisc fails, and with it rxe's queue pair. Without options the qdisc is removed.
netem() {
	[ $kind != vfab ] || skip "no network to be disturbed"
	local i=$1 how=(limit 10000 corrupt 0% reorder 0% rate 0bit) verb=add
	shift
	if [ $# = 0 ]; then
		tc qdisc del dev v$i root 2>/dev/null
		ini tc qdisc del dev w$i root 2>/dev/null
		return 0
	fi
	[[ $(tc qdisc show dev v$i root) != *netem* ]] || verb=change
	tc qdisc $verb dev v$i root netem "${how[@]}" "$@" && ini tc qdisc $verb dev w$i root netem "${how[@]}" "$@" ||
		fail "tc qdisc $verb netem $*"
}

# hung_after SECONDS: raises the limit of hung tasks to SECONDS until the end of the test.
hung=/proc/sys/kernel/hung_task_timeout_secs
hung_after() { read -r hung_s <$hung && echo $1 >$hung || fail "no limit of hung tasks"; }

# Called at the end of each test, also of a failed one, so that the next one starts clean.
undo() { undo_faults; }
undo_faults() {
	local i
	[ -z "${hung_s-}" ] || echo $hung_s >$hung
	echo 0 >/sys/module/slow_qp/parameters/times
	echo 5 >/sys/module/ib_srp/parameters/keep_alive
	! loaded slow_qp || rmmod slow_qp
	pkill multipathd
	pkill -CONT multipathd
	for i in $(dmsetup ls --target multipath | awk '/\(/ {print $1}'); do
		dm message $i 0 fail_if_no_path
		dm remove --retry $i
	done
	rm -f /run/udev/rules.d/*multipath.rules
	nft flush ruleset
	[ $kind = vfab ] || for ((i = 0; i < ${paired:-0}; i++)); do heal $i; netem $i; done
	udevadm control --start-exec-queue
	sysctl -qw net.ipv4.tcp_retries2=15 net.ipv4.tcp_rto_max_ms=120000
	untrace
} 2>/dev/null

# writes: prints the maximum length of writes in KiB. A siw that is told to disconnect while it waits for the response
# of an RDMA READ never completes that read, and the target waits for it forever. So on siw all writes fit into the
# command.
writes() { if [ $kind = siw ]; then echo 8; else echo 64; fi; }

# journal DEVICE [OPTION]...: starts the journal and waits for its first write.
journal() {
	# Data of an earlier journal must not be mistaken for that of this one.
	[ -z "${backdev[disk]-}" ] || dd if=/dev/zero of=${backdev[disk]} bs=1M count=8 oflag=direct status=none ||
		fail "cannot empty the back end"
	rm -f $tmp/journal.events
	python3 "$here/journal.py" run "$1" $tmp/journal --longest $(($(writes) / 4)) "${@:2}" >$tmp/journal.out \
		2>$tmp/journal.err &
	journal=$!
	within 20 "the first write" or_ended $journal grep -qs ' wrote$' $tmp/journal.events
	sleep 0.5
}
# until_event SECONDS SINCE PATTERN: waits for an event at or after SINCE that matches the extended regular expression;
# sets `at`.
until_event() {
	within $(($1 * factor / 1000)) "the event '$3' of the journal" or_ended $journal event_since $2 "$3"
	event_since $2 "$3" || fail "the journal ended: $(cat $tmp/journal.out $tmp/journal.err)"
}
event_since() {
	at=$(awk -v t=$1 -v p="$2" '$1 >= t {x = $1; $1 = ""; sub(/^ /, ""); if ($0 ~ p) {print x; exit}}' $tmp/journal.events)
	[ -n "$at" ]
}
# errors [FROM TO]: sets `errors` to the number of errors that the journal saw.
errors() {
	errors=$(awk -v a=${1:-0} -v b=${2:-9e18} '$2 == "error" && $1 >= a && $1 <= b' $tmp/journal.events | wc -l)
}

# acked: sets `acked` to the number of acknowledged writes. has_acked N: returns whether it is N or more.
acked() { acked=$(awk '$2 == "count" {n = $3} END {print n + 0}' $tmp/journal.events); }
has_acked() { acked; [ $acked -ge $1 ]; }

# goes_on SECONDS: waits for a new acknowledgement; sets `at`.
goes_on() {
	acked
	within $(($1 * factor / 1000)) "I/O goes on" has_acked $((acked + 1))
	clock; at=$now
}

# hit COMMAND...: causes the fault, which begins between `t0` and `hurt`.
hit() {
	clock; t0=$now
	"$@"
	clock; hurt=$now
}
# detected WHAT: checks that the port leaves the state running in time. A soft device that takes several commands to
# break may notice before the last one ends.
detected() {
	until_event 20 $t0 '^state (blocked|fail-fast)$'
	bound "$1: detected" $hurt $at 3 $retrying
}

# alive SECONDS: checks that the journal runs without an error for that long.
alive() {
	local t0 more
	clock; t0=$now
	acked; more=$((acked + 1))
	sleep $1
	within $((10 * factor / 1000)) "I/O on a good path" or_ended $journal has_acked $more
	kill -0 $journal 2>/dev/null || fail "the journal ended: $(cat $tmp/journal.out $tmp/journal.err)"
	errors $t0
	[ $errors = 0 ] || fail "$errors errors although the path is good"
}

# began WHAT: starts a phase.
began() {
	note "$1"
	phase=$1
	clock; t0=$now
}
# stood [SECONDS [TIMEOUT]]: ends the phase, and prints the longest time without I/O since its beginning. Our driver has
# a limit, see `bound`.
summary=
stood() {
	# The last count of the journal may be from before the phase.
	sleep 1
	goes_on 90
	# Wait until the journal has recorded it.
	alive 1
	gap=$(awk -v t=$t0 '$1 >= t && $2 == "ok" && $3 > m {m = $3} END {print m + 0}' $tmp/journal.events)
	summary+=$(printf '; %s %d.%d s' "$phase" $((gap / 1000000)) $((gap / 100000 % 10)))
	say "$phase: no I/O for $(ms $gap)"
	! rust_driver || [ -z "${1-}" ] || bound "$phase: no I/O" $t0 $((t0 + gap)) $1 ${2-}
}

# journal_ends: ends the journal. All data read must be correct, and each command must have ended.
journal_ends() {
	kill -TERM $journal
	# The journal waits up to 40 s for its commands.
	reap 60 "the journal" $journal ||
		fail "what was read is wrong: $(cat $tmp/journal.out $tmp/journal.err; grep wrong $tmp/journal.events | head)"
	[[ $(<$tmp/journal.out) == *" stuck=0" ]] ||
		fail "commands were lost or completed twice: some do not end: $(<$tmp/journal.out)"
}
# settle [NAME]: ends the journal and compares with the back end. All data read must be correct, and no acknowledged
# data may be lost.
settle() {
	journal_ends
	read -r total <$tmp/journal.out
	[[ $total != *"writes=0 "* ]] || fail "nothing was written: $total"
	checked=$(python3 "$here/journal.py" check "${backdev[${1:-disk}]}" $tmp/journal 2>$tmp/check) ||
		fail "the back end is wrong: $checked $(head -n 5 $tmp/check)"
	say "$total; back end: $checked"
}

# verify DEVICE: starts fio with its own verification in the background. verified: ends it; there must be no error.
verify() {
	start_verify_io $1 --iodepth=4 --rw=randrw --bsrange=4k-64k,4k-$(writes)k --size=16m --verify_backlog=32 \
		--time_based --runtime=900 --rate_iops=40
	fio=$!
}
verified() {
	kill -INT $fio
	reap 60 "fio" $fio
	# fio exits with 128 when interrupted. Its report has the result.
	grep -q 'err= 0' $tmp/fio || { cat $tmp/fio; fail "fio has errors"; }
}

# trace HOST: counts the commands of the host: started, refused, completed, timed out.
traced='start error done timeout'
trace() {
	local e d
	[ -d $tracing/instances ] || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	for e in $traced; do
		d=$tracing/instances/$e
		mkdir $d && echo 0 >$d/tracing_on && echo 64 >$d/buffer_size_kb &&
			echo "host_no == ${1#host}" >$d/events/scsi/scsi_dispatch_cmd_$e/filter &&
			echo 1 >$d/events/scsi/scsi_dispatch_cmd_$e/enable || fail "no trace event scsi_dispatch_cmd_$e"
	done
	# All events start while nothing is in flight; otherwise the counts would differ. udev reads new disks.
	udevadm settle -t 20
	udevadm control --stop-exec-queue
	kill -STOP $(jobs -p)
	within 20 "no command in flight" idle_host $1
	for e in $traced; do echo 1 >$tracing/instances/$e/tracing_on; done
	kill -CONT $(jobs -p)
	udevadm control --start-exec-queue
}
idle_host() { [ "$(</sys/class/scsi_host/$1/host_busy)" = 0 ]; }
count_trace() {
	local e
	declare -gA count
	for e in $traced; do
		count[$e]=$(awk '/^(entries|overrun):/ {n += $2} END {print n}' $tracing/instances/$e/per_cpu/cpu*/stats)
	done
}
untrace() { local e; for e in $traced; do rmdir $tracing/instances/$e; done; } 2>/dev/null
# once: checks that no command is outstanding, and that each accepted command has ended exactly once, according to the
# trace events of the host and the counters of its disks. A timed-out command may end without either.
once() {
	local d n sent=0 ended=0
	# udev reads a disk that was closed.
	udevadm settle -t 20
	within 10 "no command is left" idle_host $host
	count_trace
	untrace
	for d in /sys/bus/scsi/devices/"${host#host}":0:0:*; do
		read -r n <"$d/iorequest_cnt"; sent=$((sent + n))
		read -r n <"$d/iodone_cnt"; ended=$((ended + n))
	done
	say "commands: ${count[start]} sent, ${count[error]} not taken, ${count[done]} completed," \
		"${count[timeout]} timed out; disks: $sent sent, $ended completed"
	[ ${count[done]} -gt 100 ] && [ $sent -ge $ended ] && [ $((sent - ended)) -le ${count[timeout]} ] ||
		fail "commands were lost or completed twice"
	[ $((count[start] - count[error] - count[timeout])) -le ${count[done]} ] &&
		[ ${count[done]} -le $((count[start] - count[error])) ] ||
		fail "commands were lost or completed twice, by the trace events"
}
