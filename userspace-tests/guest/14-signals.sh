#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A signal 0 to 1 s after the start of a login, every 50 ms in the long set, ends the login in time: with a target that
# responds, with an unused address, and with a target that has gone silent.
#
# deadline: 600 900
# takes: 59
# runs: rxe kasan fast long kmemleak=on
# runs: siw vfab rxe+user siw+user kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt long LONG=
# runs: rxe kasan long LONG= CM=ib
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
rounds 200 50
step=$rounds
fabric_pair 1
back_ram disk 4
target 0
lun 0 0 disk
logout_all() {
	local h
	for h in $(hosts); do logout $h; done
	within 60 "nothing of ours" nothing_ours
}

from 0
absent=10.0.0.77 silent=10.0.0.99
[ $kind != siw ] || { absent="[fd00::77]"; silent="[fd00::99]"; }

# One login to warm up and to measure its duration.
t=${EPOCHREALTIME/./}
login 0
took=$(((${EPOCHREALTIME/./} - t) / 1000))
# The limit is a second plus, for a slow machine, the duration of a login: the work done so far must be undone.
limit=$((1000 + took))
say "a login takes $took ms, so a signal must end it within $limit ms"
logout_all

in_host=()
[ $kind = siw ] || in_host=("${in_ns[@]}")
run() {
	local what=$1 string=$2 from=$3 to=$4 step=$5 t said count=0 most=0 began
	for ((t = from; t <= to; t += step)); do
		clock; began=$now
		said=$(timeout 100 "${in_host[@]}" python3 $here/login-signal.py "$(add_target 0)" "$string" $t) ||
			fail "$what, signal after $t ms: $said"
		read -r ms result <<<"$said"
		# The C driver waits for the end of address resolution.
		clock
		[ $ms -le $limit ] || { ! rust_driver && [ $ms -le 5000 ]; } ||
			exceeded $(((ms - limit) * 1000)) $began $now "$what: login returned $ms ms after the signal at $t ms ($result)"
		[ $ms -le $most ] || most=$ms
		[ "$result" = done ] || count=$((count + 1))
		logout_all
	done
	say "$what: $count logins interrupted, the slowest returned $most ms after the signal"
	no_reports
}
run "a target that answers" "$(login_string 0)" $((RANDOM % 50)) 1000 $step
run "no host at that address" "id_ext=$(service_guid),ioc_guid=$(service_guid),src=$src,dest=$absent:$port" 0 1000 \
	$((step * 2))
# The neighbour is known, but packets are dropped: the connection request hangs.
string="id_ext=$(service_guid),ioc_guid=$(service_guid),src=$src,dest=$silent:$port"
if [ $kind = vfab ]; then
	silence 0
	string=$(login_string 0)
else
	ini ip neigh replace ${silent//[][]/} lladdr 02:00:00:00:00:99 dev w0
fi
run "a silent target" "$string" 0 1000 $((step * 2))
[ $kind != vfab ] || silence 0 0

login 0
disk "$host" 0 >$tmp/d
logout "$host"
clean
ok "$kind"
