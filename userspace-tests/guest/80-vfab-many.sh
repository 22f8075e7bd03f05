#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Many sessions over InfiniBand: a cable out and in, a partition that goes and comes, a subnet manager that begins anew with other
# LIDs. All do I/O again, ours within a time, and nobody is asked more often for each session than a bound says.
# LONG: 64 sessions, and the C driver has its turn in the same guest.
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin 400 1200
rounds 16 64
sessions=$rounds
subnet 3 vfab2
back_null disk 32
target 0
lun 0 0 disk
# An initiator port for each.
gid vfab1
for ((i = 0; i < sessions; i++)); do
	printf -v acl '%s/acls/0x%016x%s' ${tpg[0]} $((0x100 + i)) ${gid:16}
	mkdir $acl $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "no ACL $i"
done
speed
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}

undo() { [ -z "${many-}" ] || kill -KILL $many; } 2>/dev/null
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
log_in_all() {
	local i s to tries=()
	s=$(login_string 0 ,ch_count=1) to=$(add_target 0)
	clock; t0=$now
	for ((i = 0; i < sessions; i++)); do
		printf -v to_write '%s,initiator_ext=%x' "$s" $((0x100 + i))
		{ printf %s "$to_write" >$to || say "login $i failed"; } &
		tries+=($!)
	done
	reap 200 "$sessions logins" "${tries[@]}"
	within 120 "$sessions disks" there
	clock
	note "$sessions logins: $(ms $((now - t0)))"
}
# all_since TIME: each has had a success since then; sets `at`.
all_since() { at=$(awk -v t=$1 '$2 >= t {print $1; exit}' $tmp/many); [ -n "$at" ]; }
# asked: what our end has sent since `begins`, for each session, in hundredths.
kinds="sa-path cm-req cm-dreq"
# How many for each session, in an act; ib_core asks 11 times if there is no answer.
declare -A most=([sa-path]=40 [cm-req]=3 [cm-dreq]=3)
begins() {
	local k
	note "$1"
	act=$1
	for k in $kinds; do mads vfab1 $k; before[$k]=$sent; done
	clock; t0=$now
}
declare -A before per
# again SECONDS TIMEOUT [all]: all do I/O again since `t1`; ours has a limit, and with `all` each has connected anew.
again() {
	local k said=
	within 150 "I/O of all sessions: $act" all_since $t1
	for k in $kinds; do
		mads vfab1 $k
		per[$k]=$(((sent - before[$k]) * 100 / sessions))
		printf -v said '%s, %d.%02d %s' "$said" $((per[$k] / 100)) $((per[$k] % 100)) $k
	done
	note "$act: the last of $sessions after $(ms $((at - t1)))$said for each"
	summary+="; $act $(ms $((at - t1)))$said"
	rust_driver || return 0
	bound "$act: the last" $t1 $at $1 ${2-}
	[ ${per[cm-req]} -ge 100 ] || [ -z "${3-}" ] || fail "$act: not all sessions have connected again"
	for k in $kinds; do [ ${per[$k]} -le $((most[$k] * 100)) ] || fail "$act: ${said:2} for each session"; done
}

# The target asks the ends of connections that were lost to let go, for a minute, and that is not to be the next one's.
forgotten() { sleep 2; nothing_ours; }

for which in $drivers; do
	summary=
	use_driver $which reconnect_delay=10 fast_io_fail_tmo=60 dev_loss_tmo=120
	within 10 "class device of vfab1" test -e "$(add_target 0)"
	log_in_all
	python3 "$here/many.py" $tmp/many "${devices[@]}" >$tmp/many.out 2>&1 &
	many=$!
	clock
	within 60 "first I/O of all" or_ended $many all_since $now

	begins "our cable out for 20 s"
	at_port vfab1 down
	sleep 20
	at_port vfab1 up
	clock; t1=$now
	again 10 5 all

	begins "8 s without the partition"
	at_port vfab1 pkey 0 0x8123
	sleep 8
	at_port vfab1 pkey 0 0xffff
	clock; t1=$now
	again 10 10 all

	lid vfab1
	begins "other LIDs"
	other_lids vfab2 $((lid + 20)) vfab1 vfab0
	# What was done before says nothing.
	clock; t1=$now
	again 10 10

	kill -TERM $many
	reap 60 "many.py" $many || fail "what was read is wrong: $(<$tmp/many.out)"
	many=
	read -r total <$tmp/many.out
	say "$(driver): $total$summary"
	[[ $total == *" errors=0 wrong=0 stuck=0" ]] || ! rust_driver || fail "not all I/O was good: $total"
	find_hosts
	for h in $list; do delete_port $h; done
	within 60 "no host" no_hosts
	within 120 "the target has no session any more" forgotten
done
ok "$kind: $sessions sessions"
