#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logins through the InfiniBand CM over a path that the driver constructs itself, because RoCE has no subnet
# administrator: sysfs files, data, refusals, the end of a connection and a reconnect. On RoCE the target listens
# through rdma_cm only, at the service ID of its TCP port.
#
# deadline: 240
# takes: 37
# runs: rxe kasan fast long
# runs: rxe rt rtdebug long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = rxe ] || skip "rxe only"
begin
fabric_pair 1
rust_driver || skip "the C driver needs a subnet administrator"
back_null disk 64
target 0
lun 0 0 disk

within 20 "link-local addresses" link_local

guid=$(service_guid)
listener=$(listener)
gid rxe0
there=$gid
gid rxe10
here_gid=$gid
ids="id_ext=$guid,ioc_guid=$guid"
string() { echo "$ids,dgid=${dgid-$there},pkey=${pkey-ffff},service_id=${service-$listener}"; }
login_string() { echo "$(string)${2-}"; }
# colons DIGITS: converts a GID to the format of sysfs.
colons() { sed 's/..../&:/g; s/:$//' <<<"$1"; }

login 0 ,ch_count=2
dev=$(disk "$host" 0)
s=/sys/class/scsi_host/$host
is service_id $s/service_id 0x$listener
is pkey $s/pkey 0xffff
is dgid $s/dgid "$(colons $there)"
is orig_dgid $s/orig_dgid "$(colons $there)"
is sgid $s/sgid "$(colons $here_gid)"
is ch_count $s/ch_count 2
for f in src dest; do
	grep -q 'No such file' <<<"$(cat $s/$f 2>&1)" || fail "$f of a login by GID: $(cat $s/$f 2>&1)"
done
equal "second login" "$(write_login 0 "$(string)")" "File exists"

head -c 4M /dev/urandom >$tmp/a
copy() {
	dd if=$tmp/a of=$dev bs=256k oflag=direct status=none || fail "write $1"
	dd if=$dev of=$tmp/b bs=256k count=16 iflag=direct status=none || fail "read $1"
	cmp $tmp/a $tmp/b || fail "what was read is wrong $1"
}
copy "at first"
dd if=${backdev[disk]} bs=256k count=16 iflag=direct status=none | cmp - $tmp/a || fail "the back end is wrong"

# refused ERROR LOG: checks that the login fails with ERROR and logs LOG.
refused() {
	equal "login with $(string)" "$(write_login 0 "$(string)")" "$1"
	logged "$2"
}
mark
ids+=,initiator_ext=1
pkey=8001 refused "No such file or directory" "pkey=8001: the port is not in that partition"
service=$guid refused "Connection reset by peer" "invalid service ID \(reason 8\)"
dgid=00000000000000000000ffff0a000001 refused "Invalid argument" "no path to the target's port \(error -22\)"
ids="id_ext=1,ioc_guid=$guid" refused "Connection reset by peer" "unable to associate"
# An unused address: the path resolution is given up after a second.
dgid=fe800000000000000000000000000099 refused "Connection timed out" "no path to the target's port \(error -110\)"
find_hosts
equal "hosts" "$list" "$host "

# The target disconnects, refuses logins for a while, then accepts them again.
rport=/sys/class/srp_remote_ports/port-${host#host}:1
echo 2 >$rport/reconnect_delay || fail "reconnect_delay"
state() { read -r got <$rport/state && [ "$got" = "$1" ]; }
for round in 1 2 3; do
	mark
	echo 0 >${tpg[0]}/enable
	within 10 "blocked" state blocked
	sleep 1
	echo 1 >${tpg[0]}/enable
	within 20 "running again" state running
	logged "reconnected, 2 of 2 channels"
	copy "after reconnect $round"
	is dgid $s/dgid "$(colons $there)"
done

logout "$host"
clean
ok "$kind"
