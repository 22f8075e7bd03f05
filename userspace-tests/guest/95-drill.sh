#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The drill of docs/srpctl.md on two ports, with README's multipath.conf and timeouts: a map of two sessions
# completes all writes while the interface of either path is down, and uses both paths again afterwards.
#
# deadline: 400
# takes: 110
# runs: rxe kasan long
# runs: siw kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/multipath.sh"

begin
# pasted PATTERN: prints the line of the page that matches, as an administrator pastes it.
pasted() {
	local found; found=$(grep -E "^    $1" "$here/../srpctl.md")
	[ -n "$found" ] && [ "$(wc -l <<<"$found")" = 1 ] || fail "docs/srpctl.md has for '$1': '$found'"
	echo "${found#    }"
}
loop=$(pasted 'while .*dd ') || exit 1
# The loss of a path is known after 20 s.
outage=$(pasted 'ip link set eth1 down; sleep 60; ip link set eth1 up') || exit 1
outage=${outage/60/30}
mount_point=/srv/srp drill= slow=

undo() {
	kill -- "-$drill"
	dm message "$map" 0 fail_if_no_path
	rm -f $mount_point/drill
	undo_faults
} 2>/dev/null

testbed 2
multipathd_for_tests
sed -n '/multipath.conf <<EOF$/,/^    EOF$/s/^    //p' "$here/../README.md" | sed '1d;$d' >/etc/multipath.conf
[ -s /etc/multipath.conf ] || fail "README has no multipath.conf"
fast_io_fail=5 dev_loss=600 reconnect_delay=10
hosts=()
for i in 0 1; do attach $i; hosts+=($host); done
multipathd_on
map_of_two
# No file system: lockdep takes the writeback to the map for one to a path that is removed.
mkdir -p $mount_point && ln -s /dev/mapper/$map $mount_point/drill || fail "no $mount_point"

# What must hold before the drill.
both_active() { [ "$(multipath -ll | grep -c 'active ready running')" = 2 ]; }
/srp/srpctl list --json | python3 -c '
import json, sys
paths = [disk["paths"] for session in json.load(sys.stdin) for disk in session["disks"]]
assert len(paths) == 2 and all(len(p) == 2 for p in paths), paths' || fail "srpctl list: not two paths"
within 30 "two active paths: $(multipath -ll)" both_active

/srp/srpctl events >$tmp/srpctl-events 2>&1 & watching=$!
within 20 "srpctl events" grep -q 'sessions: 2' $tmp/srpctl-events
setsid bash -c "$loop" >$tmp/drill 2>&1 & drill=$!

event() { awk -v from=$1 'NR > from' $tmp/srpctl-events | grep -q "Z ${hosts[$2]} .*: $3"; }
back_again() {
	/srp/srpctl show ${hosts[$1]} --json | python3 -c '
import json, sys
session, = json.load(sys.stdin)
assert session["losses"][-1]["end"] == "reconnected", session["losses"]' 2>$tmp/losses
}
for i in 0 1; do
	mapfile -t before < <(wc -l <$tmp/srpctl-events; wc -l <$tmp/drill)
	clock; t0=$now
	note "${outage//eth1/w$i}"
	ini bash -c "${outage//eth1/w$i}" || fail "the commands of the page"
	neighbours $i
	within 60 "two active paths: $(multipath -ll)" both_active
	within 20 "the loss in srpctl events: $(tail $tmp/srpctl-events)" event ${before[0]} $i "connection lost: "
	within 20 "its end in srpctl events: $(tail $tmp/srpctl-events)" event ${before[0]} $i "reconnected after "
	within 20 "the loss in srpctl show: $(cat $tmp/losses)" back_again $i
	! ended $drill || fail "the loop has ended: $(cat $tmp/drill)"
	longest=$(awk -v from=${before[1]} 'NR > from && $1 > most {most = $1} END {print most + 0}' $tmp/drill)
	bound "w$i down: the longest write" $t0 $((t0 + longest * 1000)) 5 20
	[ $longest -lt 4000 ] || slow=$i
done
# multipath may use only one of the paths.
[ -n "$slow" ] || fail "no write was on a path that was lost: $(cat $tmp/drill)"

kill -- -$drill
reap 20 "the loop" $drill || say "it has ended by the signal"
kill $watching
reap 20 "srpctl events" $watching || fail "srpctl events: status $?: $(tail $tmp/srpctl-events)"
sed 's/^/  /' $tmp/srpctl-events
rm $mount_point/drill
multipathd_off
for h in "${hosts[@]}"; do logout $h; done
ok
