# SPDX-License-Identifier: GPL-2.0
# The trace events of ib_srp.

tracing=/sys/kernel/tracing
events=$tracing/events/ib_srp
dev=

# hush: waits until nothing is in flight to the disks of the host of `dev`, and locks these disks, which keeps udev from
# reading them, until `unhush`.
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

# listen [EVENT]...: records these events from now on (default: all). The C driver has none.
listen() {
	local e
	rust_driver || return 0
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	[ -d $events ] || fail "no events of ib_srp: $(ls $tracing/events)"
	# The first event of a command in flight would be missing.
	hush
	# This clock orders events across CPUs; User-Mode Linux's has a resolution of 10 ms.
	echo counter >$tracing/trace_clock
	echo 16384 >$tracing/buffer_size_kb
	echo >$tracing/trace
	for e in "${@:-}"; do echo 1 >$events/${e:+srp_$e/}enable || fail "no event srp_$e"; done
	unhush
}
# told RULE...: checks the events with traces.py. `ended`: every command sent has ended exactly once.
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
