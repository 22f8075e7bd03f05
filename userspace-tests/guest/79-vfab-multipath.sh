#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# dm-multipath over two ports of an InfiniBand adapter, and over one port of each of two adapters: a cable is unplugged
# at our end and replugged, and the other one at the target's end, under I/O. Only our driver has time limits. LONG:
# also with the single adapter; the C driver also runs in the same guest, and there are more failures.
#
# deadline: 400 900
# takes: 133
# runs: vfab kasan long
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/multipath.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
adapters devices=3 ports=2
subnet_manager vfab2/2
all=(vfab{0,1,2}/{1,2})
within 60 "ACTIVE ports" all_active "${all[@]}"
baseline
back_null disk 32
speed
reconnect_delay=1 fast_io_fail=1 dev_loss=600
both_drivers
[ -n "${LONG-}" ] || drivers=${drivers%% *}
rounds 1 2
multipathd_for_tests

# back DEVICE/PORT: plugs its cable in, and waits until opensm has noticed.
back() {
	at_port $1 up
	within 60 "ACTIVE again" all_active $1
}
# by WHAT OURS OURS: uses these two initiator ports. Both target ports are on one adapter.
by() {
	local r host0 host1
	tport=([0]=vfab0/1 [1]=vfab0/2) iport=([0]=$2 [1]=$3)
	target 0
	target 1
	lun 0 0 disk
	lun 1 0 disk
	attach 0; host0=$host
	attach 1; host1=$host
	map_of_two
	journal /dev/mapper/$map --threads 4 --pause 0.1
	for ((r = 0; r < rounds; r++)); do
		lose "$1, our cable out" 5 8 at_port $2 down
		fails+=" $(ms $waited)"
		regain "$1, our cable in" 10 back $2
		backs+=" $(ms $took)"
		lose "$1, the target's cable out" 5 8 at_port vfab0/2 down
		silent+=" $(ms $waited)"
		regain "$1, the target's cable in" 10 back vfab0/2
		backs+=" $(ms $took)"
	done
	alive 1
	errors
	[ $errors = 0 ] || fail "$errors errors above dm"
	settle
	multipathd_off
	logout $host0
	logout $host1
	untarget
}
for which in $drivers; do
	use_driver $which
	unjudged=
	rust_driver || unjudged=90
	within 10 "class device of vfab2" test -e /sys/class/infiniband_srp/srp-vfab2-1
	fails= silent= backs=
	[ -z "${LONG-}" ] || { multipathd_on; by "one adapter" vfab1/1 vfab1/2; }
	multipathd_on
	by "two adapters" vfab1/1 vfab2/1
	say "$(driver): our cable$fails, the target's$silent, back$backs"
done
ok "$kind"
