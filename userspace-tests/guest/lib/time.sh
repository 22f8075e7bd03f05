# SPDX-License-Identifier: GPL-2.0
# Time limits. All times are in microseconds of EPOCHREALTIME.

gauge=

# An exceeded limit is a failure, unless the host kept the guest from its CPUs during that time for at least as long as
# the excess (gauge.py). Then there is no verdict, and ci/guests.sh runs the test again, alone.
too_slow() {
	! bad_data || fail "data is wrong, says fio"
	no_reports
	say "skipped: machine too slow: $*"
	end 75
}

ms() { echo "$(($1 / 1000)) ms"; }
clock() { now=${EPOCHREALTIME/./}; }

gauge_on() {
	setsid python3 "$here/gauge.py" run $tmp/gauge &
	gauge=$!
	disown
}
# Stops the gauge, because a suspended guest does not count as lacking CPU time.
gauge_off() { kill -KILL -- -$gauge; gauge=; }

# without_cpu FROM TO: sets `stolen` to how long the guest lacked a CPU in that time.
without_cpu() { stolen=$(python3 "$here/gauge.py" stolen $tmp/gauge $1 $2 2>/dev/null) || stolen=0; }

# lacked SECONDS REGEX: sets `stolen` for the SECONDS before the first line of the log that matches REGEX. Returns false
# if there is no such line.
lacked() {
	local stamp up
	stamp=$(log_since | grep -E -- "$2" | sed -n '1s/^\[ *\([0-9]*\)\..*/\1/p')
	[ -n "$stamp" ] || return 1
	read -r up _ </proc/uptime
	clock
	now=$((now - (${up%.*} - stamp) * 1000000))
	without_cpu $((now - $1 * 1000000)) $now
}

# exceeded OVER FROM TO WHAT: reports that an action between FROM and TO exceeded its limit by OVER.
exceeded() {
	without_cpu $2 $3
	[ $1 -le 0 ] || [ $stolen -lt $1 ] || too_slow "$4 ($(ms $stolen) without CPU)"
	fail "$4 ($(ms $stolen) without CPU)"
}
# in_time WHAT FROM TO LIMIT: fails if WHAT took longer than LIMIT.
in_time() {
	local over=$(($3 - $2 - $4))
	[ $over -le 0 ] || exceeded $over $2 $3 "$1 took $(ms $(($3 - $2))), at most $(ms $4)"
}

# within SECONDS WHAT COMMAND...: waits until COMMAND succeeds. If the guest lacked a CPU, it waits that much longer;
# then a timeout gives no verdict.
within() {
	local begun=${EPOCHREALTIME/./} most=$(($1 * 1000000)) what=$2 over stolen
	shift 2
	until "$@"; do
		over=$((${EPOCHREALTIME/./} - begun - most))
		if [ $over -ge 0 ]; then
			without_cpu $begun $((begun + most + over))
			[ $stolen -gt $over ] || fail "not within $(ms $most): $what ($(ms $stolen) without CPU)"
			sleep 0.5
		fi
		sleep 0.05
	done
	[ -z "${stolen-}" ] ||
		too_slow "$what after $(ms $((${EPOCHREALTIME/./} - begun))), wanted within $(ms $most), $(ms $stolen) without CPU"
}

# Conditions for `within`. They see its local variables.
not() { ! "$@"; }
# ended PID: the process has ended.
ended() { ! kill -0 "$1" 2>/dev/null; }
# or_ended PID COMMAND...: COMMAND succeeds, or it never will because the process has ended.
or_ended() { "${@:2}" || ended "$1"; }
all_ended() { local p; for p; do ended "$p" || return; done; }
# reap SECONDS WHAT PID...: waits for these children to end. Returns the status of the last one that failed.
reap() {
	local p status=0
	within "$1" "end of $2" all_ended "${@:3}"
	for p in "${@:3}"; do wait "$p" || status=$?; done
	return $status
}
# more_lines FILE N: returns whether FILE has more than N lines.
more_lines() { [ "$(wc -l <"$1")" -gt "$2" ]; }
