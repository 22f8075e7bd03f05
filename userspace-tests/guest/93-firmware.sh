#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A login as the firmware has made it: QEMU has an ACPI table sBFT (sbft.hex) of a login of vfab1 at the target on
# vfab0, at its LUN 1. `srpctl firmware` shows it, `srpctl connect --firmware` waits for adapter, subnet and target,
# `srpctl doctor` knows the session. A saved login is that of the table.
#
# deadline: 300
# takes: 60
# runs: vfab stock long table=sbft
. "$(dirname "$0")/lib.sh"

table=/sys/firmware/acpi/tables/sBFT
undo() { umount /etc/srp; }
begin
[ "$kind" = vfab ] || skip "vfab only"
rust_driver || skip "srpctl names the C driver's sessions by their record only"
mkdir -p /etc/srp
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"
equal "the length of the table" "$(wc -c <$table)" 136

# ends STATUS TEXT ARGUMENT...: runs srpctl, sets `said`, and checks its status and output.
ends() {
	local status=0
	said=$(timeout -k 5 100 /srp/srpctl "${@:3}" 2>&1) || status=$?
	say "# srpctl ${*:3}"
	sed 's/^/  /' <<<"$said"
	[ $status = "$1" ] && [[ $said == *"$2"* ]] || fail "srpctl ${*:3}: status $status, wanted $1 and '$2': $said"
}

# Neither adapter, subnet nor target is there yet.
ends 0 '"port": null' firmware --json
timeout -k 5 200 /srp/srpctl connect --firmware --retry 180 >$tmp/connect 2>&1 &
login=$!
fabric 1
for d in 0 1; do back_null d$d 16; done
target 0 off
lun 0 0 d0
lun 0 1 d1
target_on 0
reap 200 "the login of the firmware" $login
say "$(<$tmp/connect)"
find_hosts
host=${list% }
disk=$(disk $host 1)
equal "the service of the target" "$(service_guid)" 0x5eed000000000100
equal "the partition" "$(cat /sys/class/scsi_host/$host/pkey)" 0xffff
by=/dev/disk/by-path/srp-0x5eed000000000200-1-5eed000000000100-5eed000000000100-lun-1
grep -qxF "  the firmware has booted from $by" $tmp/connect || fail "the disk: $(<$tmp/connect)"
equal "$by" "$(readlink -f $by)" $disk
head -c 1M /dev/urandom >$tmp/a
dd if=$tmp/a of=$by bs=64k oflag=direct status=none &&
	dd if=$by bs=64k count=16 iflag=direct status=none | cmp - $tmp/a ||
	fail "what was read is wrong"

ends 0 "vfab1/1" firmware
[[ $said == *"session  $host"* && $said == *"disk     $by"* ]] || fail "not the session: $said"
ends 0 "already logged in" connect --firmware=sBFT
said=$(/srp/srpctl doctor 2>&1)
[[ $said == *"ok      firmware  sBFT: $host has the disk $by"* ]] || fail "doctor: $said"
logout $host
said=$(/srp/srpctl doctor 2>&1)
[[ $said == *"warning firmware  sBFT: not logged in"* ]] || fail "doctor: $said"

# The command that is printed makes the same login, as does the file.
read -ra words < <(/srp/srpctl firmware --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["login"])')
ends 0 "through vfab1/1" "${words[@]:1}"
find_hosts
logout ${list% }
ends 0 "$by" connect --firmware --save root
find_hosts
logout ${list% }
ends 0 "$by" connect root
grep -qx 'dgid = "fe800000000000005eed000000000101"' /etc/srp/targets.d/root.conf ||
	fail "the file: $(</etc/srp/targets.d/root.conf)"
find_hosts
logout ${list% }
clean
ok
