#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Two paths to one disk under dm-multipath with multipathd. One path after the
# other fails and comes back; above dm nothing of it is seen. LONG: 60 failures.
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

failures=${LONG:+60}
failures=${failures:-6}
begin 500 2400
fast_io_fail=1 dev_loss=600
rig 2
cat >/etc/multipath.conf <<-EOF
	defaults {
		find_multipaths no
		polling_interval 1
		max_polling_interval 1
		user_friendly_names yes
		detect_prio no
		prio const
		path_checker tur
		no_path_retry queue
		path_grouping_policy multibus
		path_selector "round-robin 0"
	}
	blacklist {
		devnode "^(vd|nullb|sr)"
	}
EOF
mkdir -p /run/udev/rules.d
cp /usr/share/udev-aside/*multipath.rules /run/udev/rules.d/
udevadm control --reload
modprobe -a dm_multipath dm_round_robin || fail "no dm-multipath in this kernel"
multipathd -d -s >$tmp/multipathd 2>&1 &
multipathd_answers() { multipathd show daemon >/dev/null 2>&1; }
within 20 multipathd multipathd_answers

attach 0; host0=$host
attach 1; host1=$host
two() { map=$(dmsetup ls --target multipath | awk 'NR == 1 {print $1}'); [ -n "$map" ] && [ "$map" != No ] && paths_are 2; }
# Paths that the kernel uses: the letter behind major:minor.
paths_are() { [ "$(dmsetup status "$map" | grep -oE '[0-9]+:[0-9]+ A' | wc -l)" = "$1" ]; }
within 60 "a map of two paths: $(multipathd show paths; tail $tmp/multipathd)" two
say "$(dmsetup status $map)"
dev=
# Its checkers would have a command out while events are switched on or off.
pause() { kill -STOP $(pgrep -x multipathd); sleep 1; }
go_on() { kill -CONT $(pgrep -x multipathd); }
pause
listen send done lost
go_on
journal /dev/mapper/$map

ways=(target switch)
[ $kind = rxe ] || ways+=(cable)
slowest_fail=0 slowest_back=0
for ((n = 0; n < failures; n++)); do
	i=$((n % 2)) way=${ways[n / 2 % ${#ways[@]}]}
	clock; t0=$now
	case $way in
	target) echo 0 >${tpg[$i]}/enable ;;
	switch) hole both $i ;;
	cable) cable down $i ;;
	esac
	within $((15 * factor / 1000)) "path $i failed ($way, $n)" paths_are 1
	clock; [ $((now - t0)) -le $slowest_fail ] || slowest_fail=$((now - t0))
	bound "failover ($way, $n)" $t0 $now 10
	# The other path alone carries the I/O.
	acked
	within 10 "I/O on the other path ($way, $n)" has_acked $((acked + 1))
	clock; t0=$now
	case $way in
	target) echo 1 >${tpg[$i]}/enable ;;
	switch) heal $i ;;
	cable) cable up $i ;;
	esac
	within $((25 * factor / 1000)) "path $i back ($way, $n)" paths_are 2
	clock; [ $((now - t0)) -le $slowest_back ] || slowest_back=$((now - t0))
	bound "return ($way, $n)" $t0 $now 10
done
alive 1
errors
[ $errors = 0 ] || fail "$errors errors above dm"
settle
udevadm settle -t 20
pause
told ended lost=
go_on
# udev looks at a device that somebody has closed.
udevadm settle -t 20
within 20 "multipath -f" multipath -f $map
multipathd shutdown >/dev/null
wait %2 2>/dev/null
rm -f /run/udev/rules.d/*multipath.rules
ok "$kind: $failures failures, slowest $(ms $slowest_fail), back in $(ms $slowest_back)"
