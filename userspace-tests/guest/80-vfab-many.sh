#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Many sessions over InfiniBand: a cable is unplugged and replugged, a partition is removed and restored, the subnet
# manager restarts with other LIDs. All sessions resume I/O, with our driver within a time limit, and the number of MADs
# per session is limited. LONG: 64 sessions, and the C driver also runs in the same guest.
#
# deadline: 400 1200
# takes: 133
# runs: vfab kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/many.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
rounds 16 64
sessions=$rounds
subnet 3 vfab2
back_null disk 32
target 0
lun 0 0 disk
own_ports
speed
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}

undo() { [ -z "${many-}" ] || kill -KILL $many; } 2>/dev/null
log_in_all() {
	clock; t0=$now
	log_in_each ch_count=1 200
	clock
	note "$sessions logins: $(ms $((now - t0)))"
}
# The counted MADs. `per` has the number that our end has sent since `begins`, per session, in hundredths.
kinds="sa-path cm-req cm-dreq"
# Limits of one phase, in messages per session; ib_core retries up to 11 times without a response.
declare -A most=([sa-path]=40 [cm-req]=3 [cm-dreq]=3)
begins() {
	local k
	note "$1"
	phase=$1
	for k in $kinds; do mads vfab1 $k; before[$k]=$sent; done
	clock; t0=$now
}
declare -A before per
# again SECONDS TIMEOUT [all]: waits until all sessions have done I/O since `t1`. Our driver has a time limit, and with
# `all` each session must have reconnected.
again() {
	local k said=
	within 150 "I/O of all sessions: $phase" all_since $t1
	for k in $kinds; do
		mads vfab1 $k
		per[$k]=$(((sent - before[$k]) * 100 / sessions))
		printf -v said '%s, %d.%02d %s' "$said" $((per[$k] / 100)) $((per[$k] % 100)) $k
	done
	note "$phase: the last of $sessions after $(ms $((at - t1)))$said for each"
	summary+="; $phase $(ms $((at - t1)))$said"
	rust_driver || return 0
	bound "$phase: the last" $t1 $at $1 ${2-}
	[ ${per[cm-req]} -ge 100 ] || [ -z "${3-}" ] || fail "$phase: not all sessions have connected again"
	for k in $kinds; do [ ${per[$k]} -le $((most[$k] * 100)) ] || fail "$phase: ${said:2} for each session"; done
}

# For a minute the target sends DREQs for lost connections. These must not affect the next driver.
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
	# I/O before the new LIDs does not count.
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
	within 120 "no session at the target" forgotten
done
ok "$kind: $sessions sessions"
