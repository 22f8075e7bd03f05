# SPDX-License-Identifier: GPL-2.0
# Shared by the guest tests: begin and end of a test, and from lib/ soft RDMA devices, an LIO target, logins and checks.
# A test sources this file, calls `begin`, and ends with `ok TEXT`. However a test ends, the guest is left as it was
# found. In the long set LONG is 1: more rounds. The header of a test says where it runs, and how long
# (ci/lab/headers.py).
set -uo pipefail

kind=${1:-rxe}				# rxe, siw or vfab; `+user` selects the user-space target
user=${kind#"${kind%+user}"}
kind=${kind%+user}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$(basename "$0" .sh)
cfg=/sys/kernel/config
tmp=
watchdog=
for part in "$here"/lib/*.sh; do . "$part"; done
[ -z "$user" ] || . "$here/user-target.sh"

# Messages reach the console even if the output of the command is redirected.
exec {console}>&1
say() { printf '%s: %s\n' "$name" "$*" >&$console; }
skip() { say "skipped: $*"; exit 77; }
# end STATUS: ends the whole test, also from a subshell.
end() {
	[ $BASHPID = $$ ] || case $1 in 75) kill -USR1 $$ ;; *) kill -USR2 $$ ;; esac
	exit $1
}
# fio reports bad data like any other error.
bad_data() { grep -aqsE 'verify failed|verify: bad|err=84' $tmp/fio* $tmp/bad; }

# where: prints the line numbers of the callers.
where() { local i; for i in 1 2 3 4; do caller $i; done 2>/dev/null | tr '\n' ' '; }

fail() {
	# An excuse may find a reason to fail, such as a kernel report.
	[[ " ${FUNCNAME[*]} " == *" excuse "* ]] || ! declare -F excuse >/dev/null || excuse
	say "FAILED: $*"
	! bad_data || say "FAILED: data is wrong, says fio"
	say "at: $(where)"
	context >&$console
	end 1
}

processes() { ps -eo pid,ppid,stat,etimes,wchan:24,args 2>/dev/null | awk '$1 != 2 && $2 != 2' | tail -n 40; }
# Diagnostics after a failure.
context() {
	echo "--- ib_srp: refcnt $(cat /sys/module/ib_srp/refcnt 2>/dev/null || echo 'not loaded')"
	echo "--- hosts: $(hosts) disks: $(lsblk -dno NAME,SIZE,TRAN 2>/dev/null | tr '\n' ';')"
	echo "--- rdma resources: $(timeout 10 rdma resource show | tr '\n' ';')"; ours 2>&1 | head -n 20
	for k in /sys/class/infiniband/*; do
		echo "--- counters of ${k##*/}: $(rdma statistic show link "${k##*/}/1" 2>/dev/null)"
	done
	local h f d
	for f in $tmp/odd $tmp/target[0-9]; do [ ! -s $f ] || { echo "--- the target said:"; tail -n 20 $f; }; done
	for h in $(hosts); do
		echo "--- $h:$(for f in state host_busy req_lim zero_req_lim ch_count; do
			printf ' %s %s' $f "$(cat /sys/class/scsi_host/$h/$f 2>&1)"
		done)"
		for d in /sys/bus/scsi/devices/${h#host}:*/block/*; do
			grep -s . /sys/kernel/debug/block/${d##*/}/hctx*/{busy,dispatch}
		done
	done
	echo "--- tasks in D state:"; ps -eo pid,stat,wchan:32,args 2>/dev/null | awk '$2 ~ /^D/' | head -n 10
	echo "--- processes:"; processes
	echo "--- kernel log since the test began:"; log_since | grep -Ev "$chatter" | tail -n 60
	echo "---"
}

# Forks are the largest cost on the debug kernel under TCG, so frequent operations use bash builtins.
# is WHAT FILE WANTED: compares the first line of FILE.
is() {
	local got=
	read -r got <"$2" || [ -n "$got" ] || fail "$1: cannot read $2"
	[ "$got" = "$3" ] || fail "$1: $2 has '$got', wanted '$3'"
}

# rounds FAST LONG: sets `rounds` to FAST, or to LONG in the long set.
rounds() { rounds=$1; [ -z "${LONG-}" ] || rounds=$2; }

# equal WHAT GOT WANTED
equal() { [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"; }

# Sets `deadline` to that of the test's header.
read_deadline() {
	local field fast long
	deadline=
	while read -r _ field fast long; do
		[ "$field" != deadline: ] || { deadline=$fast; [ -z "${LONG-}" ] || deadline=${long:-$fast}; return; }
	done <"$0"
	fail "$0 has no deadline"
}

# begin: begins the test, and its deadline.
begin() {
	local deadline
	read_deadline
	began=$SECONDS
	mark
	tmp=$(mktemp -d /dev/shm/srp.XXXXXX)
	trap finish EXIT
	trap 'deadline "$BASH_COMMAND"' TERM
	trap 'exit 75' USR1
	trap 'exit 1' USR2
	(
		trap - EXIT TERM
		sleep $deadline &
		trap 'kill $!; exit' TERM
		wait $!
		kill -TERM $$
		# Clean up first; otherwise the next test fails too.
		sleep 120
		say "FAILED: it waits for a command since its deadline"
		processes >&$console
		kill -KILL $$
	) &
	watchdog=$!
	clock; test_begun=$now
	gauge_on
	load_target
	loaded ib_srp || load_srp
	say "$(driver), $kind$user, $(uname -r)"
}
# The deadline does not count for a guest that lacked its CPUs for half of the time.
deadline() {
	echo w >/proc/sysrq-trigger
	clock
	without_cpu $test_begun $now
	# A trap knows the function, but not the line.
	say "at the deadline: $1; at: $(where)"
	context >&$console
	[ $stolen -lt $(((now - test_begun) / 2)) ] ||
		too_slow "the deadline after $(ms $((now - test_begun))), $(ms $stolen) without CPU"
	say "FAILED: deadline ($(ms $stolen) without CPU)"
	exit 1
}

# Removes everything, in the required order.
finish() {
	local rc=$? h d
	trap - EXIT
	trap '' TERM USR1 USR2
	for d in "${!handler[@]}"; do rule "$d" pass; done
	for h in $(jobs -p); do [[ " $watchdog ${handler[*]} " == *" $h "* ]] || kill "$h" 2>/dev/null; done
	for d in /dev/mapper/srp-*; do [ ! -b "$d" ] || resume "$d"; done
	loaded ib_srp && for h in $(hosts); do delete_port "$h"; done
	! declare -F undo >/dev/null || undo
	! grep -q '\[counter\]' $tracing/trace_clock 2>/dev/null || unlisten
	for h in $(seq 100); do no_hosts && break; sleep 0.1; done
	[ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null
	[ -z "$gauge" ] || gauge_off
	ours_again
	untarget
	unback
	unfabric
	rm -rf "$tmp"
	# A test that exits early has checked nothing.
	[ $rc != 0 ] || [ -n "${said_ok-}" ] || [[ $name != [0-9][0-9]-* ]] || { say "FAILED: it has ended without ok"; rc=1; }
	case $rc in 0|75|77) ;; *) say "failed after $((SECONDS - began)) s" ;; esac
	exit $rc
} 2>/dev/null

# ok TEXT: the last command of a test that passed.
ok() {
	local h
	for h in $(hosts); do logout "$h"; done
	clean
	target_ends
	say "ok: ${1:-$kind} ($((SECONDS - began)) s)"
	said_ok=1
	exit 0
}
