# SPDX-License-Identifier: GPL-2.0
# Shared by the guest tests: how one begins and ends, and from lib/ soft RDMA devices, an LIO target, logins and checks.
# A test sources this file, calls `begin` with its deadline in seconds, and ends with `ok TEXT`. Whatever way it ends,
# the guest is left as it was found. In the long set LONG is 1: more rounds.
set -uo pipefail

kind=${1:-rxe}				# rxe, siw or vfab; with `+user` the target is that in user space
user=${kind#"${kind%+user}"}
kind=${kind%+user}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$(basename "$0" .sh)
cfg=/sys/kernel/config
tmp=
watchdog=
for part in "$here"/lib/*.sh; do . "$part"; done
[ -z "$user" ] || . "$here/user-target.sh"

# What a test says is seen, wherever the output of that command goes.
exec {console}>&1
say() { printf '%s: %s\n' "$name" "$*" >&$console; }
skip() { say "skipped: $*"; exit 77; }
# end STATUS: of the whole test, also from a subshell.
end() {
	[ $BASHPID = $$ ] || case $1 in 75) kill -USR1 $$ ;; *) kill -USR2 $$ ;; esac
	exit $1
}
# fio has an error like any other for it.
bad_data() { grep -aqsE 'verify failed|verify: bad|err=84' $tmp/fio* $tmp/bad; }

# where: the lines of the test and its functions where the function is called that asks.
where() { local i; for i in 1 2 3 4; do caller $i; done 2>/dev/null | tr '\n' ' '; }

fail() {
	! declare -F excuse >/dev/null || excuse
	say "FAILED: $*"
	! bad_data || say "FAILED: data is wrong, says fio"
	say "at: $(where)"
	context >&$console
	end 1
}

processes() { ps -eo pid,ppid,stat,etimes,wchan:24,args 2>/dev/null | awk '$1 != 2 && $2 != 2' | tail -n 40; }
# What one wants to see after a failure.
context() {
	echo "--- ib_srp: refcnt $(cat /sys/module/ib_srp/refcnt 2>/dev/null || echo 'not loaded')"
	echo "--- hosts: $(hosts) disks: $(lsblk -dno NAME,SIZE,TRAN 2>/dev/null | tr '\n' ';')"
	echo "--- rdma resources: $(timeout 10 rdma resource show | tr '\n' ';')"; ours 2>&1 | head -n 20
	for k in /sys/class/infiniband/*; do echo "--- counters of ${k##*/}: $(rdma statistic show link "${k##*/}/1" 2>/dev/null)"; done
	local h f d
	for f in $tmp/odd $tmp/target[0-9]; do [ ! -s $f ] || { echo "--- the target said:"; tail -n 20 $f; }; done
	for h in $(hosts); do
		echo "--- $h:$(for f in state host_busy req_lim zero_req_lim ch_count; do printf ' %s %s' $f "$(cat /sys/class/scsi_host/$h/$f 2>&1)"; done)"
		for d in /sys/bus/scsi/devices/${h#host}:*/block/*; do grep -s . /sys/kernel/debug/block/${d##*/}/hctx*/{busy,dispatch}; done
	done
	echo "--- tasks in D state:"; ps -eo pid,stat,wchan:32,args 2>/dev/null | awk '$2 ~ /^D/' | head -n 10
	echo "--- processes:"; processes
	echo "--- kernel log since the test began:"; log_since | grep -Ev "$chatter" | tail -n 60
	echo "---"
}

# Forks are what costs most on the debug kernel under TCG: where a test does
# something often, it uses what bash has.
# is WHAT FILE WANTED: the first line of FILE.
is() {
	local got=
	read -r got <"$2" || [ -n "$got" ] || fail "$1: cannot read $2"
	[ "$got" = "$3" ] || fail "$1: $2 has '$got', wanted '$3'"
}

# rounds FAST LONG: how often to do something in the fast and in the long set, in `rounds`.
rounds() { rounds=$1; [ -z "${LONG-}" ] || rounds=$2; }

# equal WHAT GOT WANTED
equal() { [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"; }

# begin SECONDS [LONG SECONDS]: the deadline of the whole test.
begin() {
	[ -z "${LONG-}" ] || [ $# = 1 ] || shift
	began=$SECONDS
	mark
	tmp=$(mktemp -d /dev/shm/srp.XXXXXX)
	trap finish EXIT
	trap 'deadline "$BASH_COMMAND"' TERM
	trap 'exit 75' USR1
	trap 'exit 1' USR2
	(
		trap - EXIT TERM
		sleep "$1" &
		trap 'kill $!; exit' TERM
		wait $!
		kill -TERM $$
		# What it has made goes first, else the next test fails, too.
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
# A guest that lacked its CPUs for half of the time cannot be held to it.
deadline() {
	echo w >/proc/sysrq-trigger
	clock
	without_cpu $test_begun $now
	# A trap knows the function, but not its line.
	say "at the deadline: $1; at: $(where)"
	context >&$console
	[ $stolen -lt $(((now - test_begun) / 2)) ] || too_slow "the deadline after $(ms $((now - test_begun))), $(ms $stolen) without CPU"
	say "FAILED: deadline ($(ms $stolen) without CPU)"
	exit 1
}

# Everything away, in the order in which it must go.
finish() {
	local rc=$? h d
	trap - EXIT
	trap '' TERM USR1 USR2
	for d in "${!handler[@]}"; do rule "$d" pass; done
	for h in $(jobs -p); do [[ " $watchdog ${handler[*]} " == *" $h "* ]] || kill "$h" 2>/dev/null; done
	for d in /dev/mapper/srp-*; do [ ! -b "$d" ] || dmsetup resume "$d"; done
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
	# A test that breaks off in its midst has checked nothing.
	[ $rc != 0 ] || [ -n "${said_ok-}" ] || [[ $name != [0-9][0-9]-* ]] || { say "FAILED: it has ended without ok"; rc=1; }
	case $rc in 0|75|77) ;; *) say "failed after $((SECONDS - began)) s" ;; esac
	exit $rc
} 2>/dev/null

# ok TEXT: the last line of a test that passed.
ok() {
	local h
	for h in $(hosts); do logout "$h"; done
	clean
	target_ends
	say "ok: ${1:-$kind} ($((SECONDS - began)) s)"
	said_ok=1
	exit 0
}
