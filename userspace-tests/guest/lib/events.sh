# SPDX-License-Identifier: GPL-2.0
# What the trace events of ib_srp tell.

tracing=/sys/kernel/tracing
events=$tracing/events/ib_srp
dev=

# hush: nothing is in flight to the disks of the host of `dev`, and udev sends nothing either, as it leaves a disk alone
# that somebody has locked, until `unhush`.
hush() {
	local d fd
	hushed=()
	[ -b "$dev" ] || return 0
	quiet $dev
	d=$(readlink -f /sys/block/${dev#/dev/}/device)
	for d in "${d%/target*}"/target*/*/block/*; do
		{ exec {fd}</dev/${d##*/}; } 2>/dev/null || continue
		hushed+=($fd)
		flock -w 20 $fd || fail "cannot lock ${d##*/}"
	done
	within 20 "nothing in flight on $dev" nothing_in_flight $dev
}
unhush() { local fd; for fd in "${hushed[@]}"; do exec {fd}<&-; done; }

# listen [EVENT]...: notes these events from now on, or all of them. The C driver has none.
listen() {
	local e
	rust_driver || return 0
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	[ -d $events ] || fail "no events of ib_srp: $(ls $tracing/events)"
	# What was sent before would be seen to end only.
	hush
	# The order across CPUs; User-Mode Linux has a clock of 10 ms.
	echo counter >$tracing/trace_clock
	echo 16384 >$tracing/buffer_size_kb
	echo >$tracing/trace
	for e in "${@:-}"; do echo 1 >$events/${e:+srp_$e/}enable || fail "no event srp_$e"; done
	unhush
}
# told RULE...: what traces.py finds in it. `ended`: every command that was sent has ended, once.
told() {
	local found
	rust_driver || return 0
	hush
	cat $tracing/trace >$tmp/trace
	unhush
	found=$(python3 "$here/traces.py" $tmp/trace "$@" 2>&1) || fail "events: $found $(tail -n 30 $tmp/trace)"
	say "$found"
}
unlisten() {
	[ ! -d $events ] || echo 0 >$events/enable
	echo >$tracing/trace
	echo 1408 >$tracing/buffer_size_kb
	echo local >$tracing/trace_clock
} 2>/dev/null
