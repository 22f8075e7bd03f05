# SPDX-License-Identifier: GPL-2.0
# The remote port of a session: its timeouts and states. Source it after lib.sh.

rport() { echo "port-${1#host}:1"; }

# timeouts HOST RECONNECT_DELAY FAST_IO_FAIL DEV_LOSS: seconds or off, written in an order that is valid regardless of
# the previous values.
timeouts() {
	local r
	r=/sys/class/srp_remote_ports/$(rport "$1")
	echo 10 >"$r/reconnect_delay" && echo off >"$r/fast_io_fail_tmo" &&
		echo "$4" >"$r/dev_loss_tmo" && echo "$3" >"$r/fast_io_fail_tmo" && echo "$2" >"$r/reconnect_delay" ||
		fail "cannot set the timeouts $2 $3 $4 of $1"
}

port_state() { cat "/sys/class/srp_remote_ports/$(rport "$1")/state" 2>/dev/null || echo gone; }
in_state() { [ "$(port_state "$1")" = "$2" ]; }

# watch_states HOST: records its states in $tmp/states.HOST from now on.
watch_states() {
	rm -f "$tmp/states.$1"
	python3 "$here/states.py" "$(rport "$1")" >"$tmp/states.$1" &
	watcher=$!
	within 20 "the first state of $1" test -s "$tmp/states.$1"
}

# legal_states HOST: checks that all recorded transitions exist in the transport class.
legal_states() {
	local bad
	bad=$(awk 'BEGIN {
			split("running>blocked running>fail-fast running>lost running>gone blocked>running blocked>fail-fast blocked>lost " \
				"blocked>gone fail-fast>running fail-fast>lost fail-fast>gone lost>gone", ok, " ")
			for (i in ok) legal[ok[i]] = 1
		}
		NR > 1 && !((last ">" $3) in legal) { print last " to " $3 }
		{ last = $3 }' "$tmp/states.$1")
	[ -z "$bad" ] || fail "illegal steps of the remote port: $bad; all: $(states "$1")"
}
states() { awk '{printf "%s%s", (NR > 1 ? " " : ""), $3}' "$tmp/states.$1"; }

# between HOST FROM TO: measures the time from the first time in state FROM to the first later time in state TO (a
# regular expression). Sets `least` and `most` to its limits in milliseconds, and `since` and `until` to timestamps in
# microseconds; empty if it never happened.
between() {
	read -r least most since until < <(awk -v a="$2" -v b="^($3)\$" '
		since == "" && $3 == a {since = $2; earliest = $1}
		since != "" && $3 ~ b {
			printf "%d %d %.0f %.0f\n", ($1 - since) * 1000, ($2 - earliest) * 1000, earliest * 1e6, $2 * 1e6
			exit
		}' "$tmp/states.$1")
	[ -n "$least" ]
}

# expires WHAT SECONDS: checks that `least` and `most` are consistent with SECONDS, plus up to a second. The kernel's
# timers may be a tick early.
expires() {
	[ -n "$least" ] || fail "$1: never"
	[ "$most" -ge $(($2 * 1000 - 50)) ] || fail "$said; $1 after $least to $most ms, wanted $2 s"
	[ "$least" -le $(($2 * 1000 + 1000)) ] ||
		exceeded $(((least - $2 * 1000 - 1000) * 1000)) $since $until "$said; $1 after $least to $most ms, wanted $2 s"
	said+="; $1 after $least to $most ms"
}
