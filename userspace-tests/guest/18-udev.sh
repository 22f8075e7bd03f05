#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The udev names /dev/srp0, srp1, ... and those in /dev/disk/by-path are unique and stable.
#
# deadline: 400
# takes: 58
# runs: rxe kasan fast
# runs: rxe stock long
# runs: vfab kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
[ -e /usr/lib/udev/rules.d/60-srp.rules ] || [ -e /etc/udev/rules.d/60-srp.rules ] ||
	fail "the udev rules are not installed"
within 60 "udevd answers" udevadm control --ping --timeout=5
fabric 1
target 0
for i in 0 1 2 300; do back_null d$i $((16 + i % 100)); lun 0 $i d$i; done

links() { (cd /dev; for l in srp*; do [ -L "$l" ] && echo "$l=$(readlink -f $l)"; done) | sort; }
paths() { (cd /dev/disk/by-path 2>/dev/null && for l in srp-*; do [ -L "$l" ] && echo $l; done) | sort; }
settled() { udevadm settle -t 60 || fail "udev does not settle"; }
names() { links | cut -d= -f1 | tr '\n' ' '; }
owner() { readlink -f /dev/disk/by-path/srp-$(initiator 0)-1-*-lun-$1; }

login 0
for i in 0 1 2 300; do dev[i]=$(disk "$host" $i); done
settled
equal names "$(names)" "srp0 srp1 srp2 srp3 "
for i in 0 1 2; do equal "by-path name of LUN $i" "$(owner $i)" "${dev[i]}"; done
g=$(service_guid)
[ -L /dev/disk/by-path/srp-$(initiator 0)-1-${g#0x}-${g#0x}-lun-0x012c000000000000 ] ||
	fail "no by-path name of LUN 300: $(paths)"

# A partition on each of two disks.
for d in srp0 srp2; do
	printf 'label: gpt\nsize=4MiB\nsize=4MiB\n' | sfdisk -q /dev/$d >$tmp/err 2>&1 || fail "sfdisk: $(cat $tmp/err)"
done
settled
for d in srp0 srp2; do
	for p in 1 2; do
		equal "/dev/${d}p$p" "$(readlink -f /dev/${d}p$p)" "$(readlink -f /dev/$d)$p"
	done
done
equal "by-path names of partitions" "$(paths | grep -c -- '^srp-0x.*-part[12]$')" 4

# A repeated change event moves no name.
before=$(links; paths)
udevadm trigger --action=change --subsystem-match=block
settled
equal "names after udevadm trigger" "$(links; paths)" "$before"
udevadm trigger --action=add --subsystem-match=block
settled
equal "names after udevadm trigger --action=add" "$(links; paths)" "$before"

# The next disk gets the smallest free number; the others keep theirs.
gone=$(readlink -f /dev/srp1)
rest=$(links | grep -v '^srp1')
lun1=$(basename "$(readlink -f /sys/block/${gone#/dev/}/device)")
echo 1 >/sys/block/${gone#/dev/}/device/delete
settled
equal "names without srp1" "$(links)" "$rest"
echo "- - ${lun1##*:}" >/sys/class/scsi_host/$host/scan
within 20 "the disk again" has_disk "$host" ${lun1##*:}
settled
equal "disk of srp1" "$(readlink -f /dev/srp1)" "$(disk "$host" ${lun1##*:})"
equal "the others" "$(links | grep -v '^srp1')" "$rest"

# A new login gives the same by-path names; in between no name remains.
before=$(paths)
logout "$host"
settled
equal "names after the logout" "$(links; paths)" ""
login 0
for i in 0 1 2 300; do disk "$host" $i >/dev/null; done
four_disks() { [ "$(ls -d /sys/bus/scsi/devices/${host#host}:0:0:*/block/* | wc -l)" = 4 ]; }
within 10 "all disks probed" four_disks
settled
same_paths() { [ "$(paths)" = "$before" ]; }
within 30 "partitions again" same_paths
equal "numbers after the new login" "$(names | tr ' ' '\n' | grep -c '^srp[0-3]$')" 4

# Ten events at once: no duplicate number.
for i in 1 2 3 4 5 6 7 8 9 10; do udevadm trigger --action=change --subsystem-match=block; done
settled
equal "disks with a name" "$(links | grep '^srp[0-9]*=' | cut -d= -f2 | sort -u | wc -l)" 4
logout "$host"
settled
clean
ok
