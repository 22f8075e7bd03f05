# SPDX-License-Identifier: GPL-2.0
# `sessions` sessions from vfab1 with target 0, and I/O on all of them by many.py (PID `many`).

# own_ports: creates an initiator port for each session, with initiator_ext from 0x100 and LUN 0.
own_ports() {
	local i acl
	gid vfab1
	for ((i = 0; i < sessions; i++)); do
		printf -v acl '%s/acls/0x%016x%s' ${tpg[0]} $((0x100 + i)) ${gid:16}
		mkdir $acl $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "no ACL $i"
	done
}
# log_in_each OPTION [SECONDS]: logs in all at once, with that option, within that time. Sets `devices` to their disks.
log_in_each() {
	local i s to tries=()
	s=$(login_string 0 ,$1) to=$(add_target 0)
	for ((i = 0; i < sessions; i++)); do
		printf -v to_write '%s,initiator_ext=%x' "$s" $((0x100 + i))
		{ printf %s "$to_write" >$to || say "login $i failed"; } &
		tries+=($!)
	done
	reap ${2-120} "$sessions logins" "${tries[@]}"
	within 120 "$sessions disks" there
}
# there: returns whether each session has its disk.
there() {
	local h d
	find_hosts
	set -- $list
	[ $# = $sessions ] || return
	devices=()
	for h; do
		has_disk $h 0 || return
		d=(/sys/bus/scsi/devices/"${h#host}:0:0:0"/block/*)
		devices+=(/dev/${d##*/})
	done
}
# all_since TIME: returns whether each session has completed I/O since TIME; sets `at`.
all_since() { at=$(awk -v t=$1 '$2 >= t {print $1; exit}' $tmp/many); [ -n "$at" ]; }
