#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The first target of a newcomer: tools/lio-example makes it, `srpctl target-info` prints its login and how to add what
# it lacks, and README formats its disk only while the disk is empty.
#
# deadline: 240
# takes: 40
# runs: rxe kasan fast long
# runs: rxe stock long
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

undo() { umount $tmp/mnt; /srp/lio-example --remove; }
begin
baseline
mkdir -p $tmp/bin $tmp/mnt
ln -s /srp/srpctl /srp/lio-example $tmp/bin
PATH=$tmp/bin:$PATH

# example ARGUMENT...: sets `login` to the command that it prints.
example() { login=$(lio-example "$@" 2>&1) || fail "lio-example $*: $login"; }
# info: sets `said` to what target-info prints.
info() { said=$(srpctl target-info 2>&1) || fail "target-info: $said"; }
# Runs the commands that add what the target lacks. A command may need what another one adds.
complete() {
	local round commands
	for round in 1 2 3 4 5; do
		commands=$(srpctl target-info --json | python3 -c '
import json, sys
for port in json.load(sys.stdin):
    for one in port["missing"]:
        print(one["command"])') || fail "target-info --json"
		[ -n "$commands" ] || return 0
		say "# $commands"
		bash -ec "${commands//ACL/192.0.2.1}" || fail "a command of target-info"
	done
	fail "it still lacks: $commands"
}
# log_in COMMAND: sets `host` and `disk`.
log_in() {
	$1 || fail "$1"
	find_hosts
	host=${list% }
	disk=$(disk $host 0) || exit 1
}
log_out() { srpctl disconnect $host && within 20 "no session" no_hosts || fail "srpctl disconnect $host"; }

srpctl target-info 2>$tmp/said && fail "a target before there is one"
grep -q 'no RDMA port' $tmp/said || fail "without a port: $(<$tmp/said)"
example
[[ $login == "srpctl connect --dest 192.0.2.1:$port --id-ext "* ]] || fail "not a login: $login"
first=$login
example
equal "the second run" "$login" "$first"
! said=$(lio-example --port $((port + 1)) 2>&1) || fail "another port number for a target that runs"
[[ $said == *"listens at port $port; --port $port "* ]] || fail "another port number: $said"
equal "the port number" "$(<$cfg/target/srpt/discovery_auth/rdma_cm_port)" $port
info
[[ $said == "srp_example/1: LIO, enabled, 1 LUN, 1 initiator"$'\n'"  $login" ]] || fail "target-info: $said"

# Take all away, and follow what target-info says.
group=$(echo $cfg/target/srpt/*:*/*:*)
acl=$group/acls/192.0.2.1
echo 0 >$group/enable
echo 0 >$cfg/target/srpt/discovery_auth/rdma_cm_port
rm $acl/lun_0/srp_example $group/lun/lun_0/srp_example
rmdir $acl/lun_0 $acl $group/lun/lun_0 || fail "rmdir"
info
[[ $said == "srp_example/1: LIO, disabled, 0 LUNs, 0 initiators"* && $said != *"srpctl connect"* ]] ||
	fail "target-info: $said"
complete
info
[[ $said == *"  $login" ]] || fail "after its own commands: $said"
log_in "$login"

# The line of README that formats, as an administrator pastes it.
format=$(sed -n '/mkfs/s/^    //p' /srp/README.md)
[ -n "$format" ] && [ "$(grep -c mkfs <<<"$format")" = 1 ] || fail "README.md formats by: $format"
# formats [COMMAND]: returns whether README formats the disk, which COMMAND has changed.
formats() {
	"${@:-true}" || fail "$*"
	bash -c "DISK=$disk; $format"
}
data() { echo data | dd of=$disk bs=4k seek=100 conv=sync oflag=direct status=none; }
empty() { dd if=/dev/zero of=$disk bs=1M count=20 oflag=direct status=none; }
partitions() { empty; echo ',,L' | sfdisk -q --no-reread $disk; }
# The superblock of an array at the end of the disk.
array() {
	empty
	printf '\xfc\x4e\x2b\xa9\0\0\0\0\x5a\0\0\0' | dd of=$disk bs=64k seek=4095 conv=sync oflag=direct status=none
}
no_array() { empty; dd if=/dev/zero of=$disk bs=64k seek=4095 count=1 oflag=direct status=none; }
! formats data || fail "README formats a disk with data"
! formats partitions || fail "README formats a disk with partitions"
! formats array || fail "README formats a part of an array"
formats no_array || fail "README does not format an empty disk"
mount $disk $tmp/mnt && echo 1 >$tmp/mnt/file && umount $tmp/mnt || fail "the file system"
! formats || fail "README formats a file system"
mount $disk $tmp/mnt && [ "$(<$tmp/mnt/file)" = 1 ] || fail "README has formatted a file system"
umount $tmp/mnt
log_out

# A file keeps the disk; a dummy interface is not needed.
lio-example --remove || fail "--remove"
[ ! -e $cfg/target/srpt/fe80* ] &&
	[ -z "$(ls -d $cfg/target/srpt/*:* $cfg/nullb/*/ /sys/class/infiniband/* 2>/dev/null)" ] ||
	fail "left: $(ls $cfg/target/srpt $cfg/nullb /sys/class/infiniband)"
lio-example --remove || fail "the second --remove"
ip link add srp0 type dummy && ip addr add 192.0.2.9/24 dev srp0 && ip link set srp0 up || fail "srp0"
undo() { umount $tmp/mnt; /srp/lio-example --remove; ip link delete srp0; }
for round in 1 2; do
	example --netdev srp0 --file $tmp/image --size 16 --port $((port + 1))
	[[ $login == "srpctl connect --dest 192.0.2.9:$((port + 1)) "* ]] || fail "not a login: $login"
	log_in "$login"
	[ $(($(blockdev --getsize64 $disk) >> 20)) = 16 ] || fail "the size of $disk"
	[ $round = 1 ] || dd if=$disk bs=4k count=1 iflag=direct status=none | grep -q '^kept' || fail "the file was not kept"
	echo kept | dd of=$disk bs=4k conv=sync oflag=direct status=none
	log_out
	lio-example --remove || fail "--remove"
done
ok
