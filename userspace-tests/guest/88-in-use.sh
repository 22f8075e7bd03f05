#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# srpctl disconnect refuses a disk in use, and names what uses it: a mount in another namespace, a partition, swap, a
# loop device, a back end of LIO or of the NVMe target, a process, a file system that is unmounted lazily, a btrfs that
# is mounted by another member. The session stays.
#
# deadline: 240
# takes: 60
# runs: rxe stock fast long
. "$(dirname "$0")/lib.sh"

begin
modprobe -q loop
fabric_pair 1
target 0
for d in 0 1; do back_null d$d 64; lun 0 $d d$d; done
guid=$(service_guid)

nvme=$cfg/nvmet/subsystems/own
users=()
undo() { kill "${users[@]}"; losetup -D; swapoff "$disk"; umount $tmp/mnt; rmdir $nvme/namespaces/* $nvme; }

# Sets `said` and `status` to the output and exit status of srpctl.
srpctl() {
	status=0
	said=$(ini timeout -k 5 100 /srp/srpctl "$@" 2>&1) || status=$?
	say "# srpctl $*: status $status: $said"
}
# refused TEXT: checks that the logout does nothing and prints TEXT.
refused() {
	quiet $disk
	srpctl disconnect $host
	[ $status = 7 ] && [[ $said == *"$1"* ]] || fail "wanted status 7 and '$1': status $status: $said"
	! gone $host || fail "$host is logged out"
	dd if=$disk of=/dev/null bs=4k count=1 iflag=direct status=none || fail "reading $disk"
}
# ends PID: ends a process that uses the disk.
ends() { kill $1; reap 20 "$1" $1; }
unused() { ! lsblk -no MOUNTPOINTS $disk | grep -q .; }

srpctl connect --id-ext $guid --ioc-guid $guid --dest 10.0.0.1:$port
[ $status = 0 ] || fail "login: $said"
find_hosts
host=${list% }
disk=$(disk $host 1)
short=${disk#/dev/}
quiet $disk
mkdir $tmp/mnt
mkfs.ext4 -q $disk || fail "mkfs $disk"

unshare -m --propagation private sh -c "mount $disk $tmp/mnt && echo >$tmp/mounted && exec sleep 200" & users=($!)
within 20 "the mount" test -e $tmp/mounted
refused "$short is mounted at $tmp/mnt in the mount namespace of sleep (process ${users[0]})"
ends ${users[0]}

# The only user of the file system is a process with its working directory there.
mount $disk $tmp/mnt || fail "mount $disk"
refused "$short is mounted at $tmp/mnt"
(cd $tmp/mnt && exec sleep 200) & users=($!)
within 10 "the process" test $tmp/mnt -ef /proc/${users[0]}/cwd
umount -l $tmp/mnt
refused "$short has an active ext4 file system"
ends ${users[0]}
no_system() { [ ! -e /sys/fs/ext4/$short ]; }
within 20 "the file system gone" no_system

sleep 200 <$disk & users=($!)
refused "$short is open in sleep (process ${users[0]})"
ends ${users[0]}

loop=$(losetup -f --show $disk) || fail "losetup"
refused "${loop#/dev/} (loop device) is made of $short"
losetup -d $loop
free_loop() { [ ! -e /sys/block/${loop#/dev/}/loop ]; }
within 20 "the loop device" free_loop

backdev[own]=$disk
iblock own
refused "$short is the back end iblock_0/own of LIO"
rmdir ${backdir[own]} || fail "the back end stays"

modprobe nvmet && mkdir $nvme $nvme/namespaces/3 && echo -n $disk >$nvme/namespaces/3/device_path &&
	echo 1 >$nvme/namespaces/3/enable || fail "no namespace of the NVMe target"
refused "$short is namespace 3 of the NVMe subsystem own"
rmdir $nvme/namespaces/3 $nvme || fail "the namespace stays"

null_blk member 64
modprobe btrfs && mkfs.btrfs -q -M -m single -d single -f -L pool ${backdev[member]} $disk &&
	mount ${backdev[member]} $tmp/mnt || fail "no btrfs"
refused "$short is part of the btrfs file system pool, which is mounted at $tmp/mnt"
umount $tmp/mnt || fail "umount"
btrfs device scan --forget || fail "a member stays"

mkswap -f $disk >/dev/null && swapon $disk || fail "no swap"
refused "$short is swap"
swapoff $disk || fail "swapoff"

printf 'label: gpt\nsize=32MiB\n' | sfdisk -q --wipe always $disk >$tmp/err 2>&1 || fail "sfdisk: $(cat $tmp/err)"
within 20 "a partition" test -b ${disk}1
# udev reads the partition table again when a program closes the disk, and the partition is away for a moment.
udevadm settle -t 20
mkfs.ext4 -q ${disk}1 || fail "mkfs ${disk}1"
udevadm settle -t 20
mount ${disk}1 $tmp/mnt || fail "mount ${disk}1"
refused "${short}1 is mounted at $tmp/mnt"
umount $tmp/mnt

quiet $disk
srpctl disconnect $host
[ $status = 0 ] || fail "a disk that is free: status $status: $said"
within 10 "no session" no_hosts
clean
ok
