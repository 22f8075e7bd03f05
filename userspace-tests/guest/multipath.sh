# SPDX-License-Identifier: GPL-2.0
# Shared by the tests of dm-multipath, which source it after faults.sh: Debian's multipathd and a map with two paths.

# multipathd_for_tests: starts multipathd. The daemon checks each path every second, distributes I/O over both, and
# queues I/O without a path.
multipathd_for_tests() {
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
			reservation_key file
		}
		blacklist {
			devnode "^(vd|nullb|sr)"
		}
	EOF
	mkdir -p /run/udev/rules.d
	cp /usr/share/udev-aside/*multipath.rules /run/udev/rules.d/
	udevadm control --reload
	modprobe -a dm_multipath dm_round_robin || fail "no dm-multipath in this kernel"
}
multipathd_answers() { multipathd show daemon >/dev/null 2>&1; }
multipathd_on() {
	multipathd -d -s >>$tmp/multipathd 2>&1 &
	multipathd=$!
	within 20 multipathd multipathd_answers
}
multipathd_off() {
	# udev reads a device that was closed.
	udevadm settle -t 20
	within 20 "multipath -f" multipath -f $map
	multipathd shutdown >/dev/null
	reap 20 "multipathd" $multipathd 2>/dev/null
}

# map_of_two: waits for the map with two paths; sets `map`.
map_of_two() {
	within 60 "a map of two paths: $(multipathd show paths; tail $tmp/multipathd)" two
	say "$(dmsetup status $map)"
}
two() {
	map=$(dmsetup ls --target multipath | awk 'NR == 1 {print $1}')
	[ -n "$map" ] && [ "$map" != No ] && paths_are 2
}
# paths_are N: returns whether the kernel uses N paths, which have an A after major:minor.
paths_are() { [ "$(dmsetup status "$map" | grep -oE '[0-9]+:[0-9]+ A' | wc -l)" = "$1" ]; }

# lose WHAT SECONDS TIMEOUT COMMAND...: COMMAND breaks a path. No I/O may take longer than SECONDS plus TIMEOUT, or it
# has no limit with `unjudged`. Sets `waited` to the longest.
unjudged=
lose() {
	clock; t0=$now
	"${@:4}"
	within $((${unjudged:-0} + $3 + 5 + $2 * factor / 1000)) "a path failed ($1)" paths_are 1
	# The I/O of the lost path has moved to the other path.
	acked
	within 10 "I/O on the other path ($1)" has_acked $((acked + 1))
	read -r at waited still < <(awk -v t=$t0 '$1 >= t && $2 == "waited" && $3 > waited {at = $1; waited = $3}
		$1 >= t && $2 == "ok" && $3 > still {still = $3}
		END {print at ? at : 0, waited + 0, still + 0}' $tmp/journal.events)
	note "$1: no I/O for $(ms $still), one took $(ms $waited)"
	[ -n "$unjudged" ] || bound "$1: one I/O" $((at - waited)) $at $2 $3
}
# regain WHAT SECONDS COMMAND...: COMMAND repairs a path. Sets `took` to the time this takes.
regain() {
	clock; t0=$now
	"${@:3}"
	within $((${unjudged:-0} + 15 + $2 * factor / 1000)) "the path is back ($1)" paths_are 2
	clock; took=$((now - t0))
	note "$1: back after $(ms $took)"
	[ -n "$unjudged" ] || bound "return ($1)" $t0 $now $2
}
