#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Names that hold: two sessions through one port have different by-path names, which a rename of the adapter does not
# change, nor its files in targets.d. `srpctl` shows these names, not those of systemd (vfab has a parent device).
#
# deadline: 240
# takes: 25
# runs: rxe kasan fast long
# runs: rxe stock long
# runs: vfab kasan fast long
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

rule=/run/udev/rules.d/60-rdma-persistent-naming.rules
renamed=
undo() {
	rm -f $rule
	umount /etc/srp
	[ -z "$renamed" ] || rdma dev set "$renamed" name "$device"
}
begin
fabric 1
target 0
back_null d 16
lun 0 0 d
mkdir -p /etc/srp
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"

device=$(initiator 0)
read -r node_guid </sys/class/infiniband/$device/node_guid
node_guid=0x${node_guid//:/}
guid=$(service_guid)
target=${guid#0x}-${guid#0x}
by=/dev/disk/by-path
srpctl() { said=$(timeout -k 5 100 /srp/srpctl "$@" 2>&1) || fail "srpctl $*: status $?: $said"; }
settled() { udevadm settle -t 60 || fail "udev does not settle"; }
changed() { udevadm trigger --action=change --subsystem-match=block; settled; }
# leads NAME DISK
leads() { equal "$1" "$(readlink -f $by/$1)" "$2"; }
# shown HOST: prints the by-path name in srpctl's list.
shown() {
	/srp/srpctl list --json | python3 -c '
import json, sys
sessions = [s for s in json.load(sys.stdin) if "host%d" % s["host"] == sys.argv[1]]
print(*(d["by_path"] for s in sessions for d in s["disks"]))' $1
}

login 0
a=$host
login 0 ,initiator_ext=2
b=$host
disk_a=$(disk $a 0) disk_b=$(disk $b 0)
settled
[ $disk_a != $disk_b ] || fail "one disk: $disk_a"
name_a=srp-$node_guid-1-$target-lun-0
name_b=srp-$node_guid-1-0000000000000002-$target-lun-0
names_hold() {
	leads $name_a $disk_a
	leads $name_b $disk_b
	equal "the name of $a $1" "$(shown $a)" $by/$name_a
	equal "the name of $b $1" "$(shown $b)" $by/$name_b
}
for i in 1 2 3; do
	names_hold "in round $i"
	# Both sessions have the same path by the adapter's name. The session without an initiator_ext gets it.
	leads srp-$device-1-$target-lun-0 $disk_a
	changed
done
equal "the number of names" "$(cd $by && ls -d srp-* | wc -l)" 3
logout $a
settled
leads srp-$device-1-$target-lun-0 $disk_b
login 0
a=$host
disk_a=$(disk $a 0)
settled
names_hold "after another login"
leads srp-$device-1-$target-lun-0 $disk_a
logout $b

# --save writes the GUID of the adapter. A file may also have its name.
options=()
IFS=, read -ra pairs <<<"$(login_string 0 ,initiator_ext=2)"
for p in "${pairs[@]}"; do n=${p%%=*}; options+=(--${n//_/-} "${p#*=}"); done
srpctl connect --device $device "${options[@]}" --save d
file=/etc/srp/targets.d/d.conf
grep -qx "device = \"$node_guid\"" $file || fail "the adapter in the file: $(<$file)"
sed "/^device/s/$node_guid/$device/" $file >${file/d.conf/old.conf}
srpctl disconnect d
srpctl connect old
srpctl disconnect old

# rdma-core's rule renames adapters on PCI by their slot. By the GUID, which its page suggests, it renames any adapter,
# except soft ones.
if [ $kind = vfab ]; then
	rules=/usr/lib/udev/rules.d/${rule##*/}
	grep -q '^[^#]*rdma_rename %k NAME_' $rules || fail "rdma-core's rule: $(<$rules)"
	mkdir -p ${rule%/*}
	sed '/^[^#]*rdma_rename/s/NAME_[A-Z]*/NAME_GUID/' $rules >$rule
	udevadm control --reload
	udevadm trigger --action=add --subsystem-match=infiniband --sysname-match=$device
	settled
	for d in /sys/class/infiniband/*; do [ "0x$(tr -d : <$d/node_guid)" != $node_guid ] || renamed=${d##*/}; done
	[ $renamed != $device ] || fail "the rule of rdma-core does not rename $device"
else
	rdma dev set $device name rocep1s0 || fail "no rename"
	renamed=rocep1s0
fi
within 20 "the renamed class device" test -e /sys/class/infiniband_srp/srp-$renamed-1/add_target
srpctl connect d
[[ $said == *"through $renamed/1"* ]] || fail "not through the renamed adapter: $said"
find_hosts
for h in $list; do [ $h = $a ] || b=$h; done
disk_b=$(disk $b 0)
changed
names_hold "after the rename"
leads srp-$renamed-1-$target-lun-0 $disk_a
[ ! -e $by/srp-$device-1-$target-lun-0 ] || fail "the old name of the adapter is still there"
srpctl connect d
[[ $said == *"already logged in"* ]] || fail "another session: $said"
! said=$(/srp/srpctl connect old 2>&1) || fail "an adapter that is not there: $said"
[[ $said == *"no RDMA port $device/1; available: "*"$renamed/1"* ]] || fail "$said"
srpctl disconnect d
logout $a
settled
equal "names after the logout" "$(cd $by && ls -d srp-* 2>/dev/null)" ""
rm -f $rule
udevadm control --reload
rdma dev set $renamed name $device || fail "no rename back"
renamed=
clean
ok
