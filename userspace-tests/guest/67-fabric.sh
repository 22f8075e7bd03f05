#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The user-space target (storage/srp-target): disks in files, verified I/O, a file system, the commands of
# sg3_utils, refused logins, resets, termination by SIGTERM. With our driver, then with the C driver.
#
# deadline: 600
# takes: 157
# runs: rxe kasan fast long
# runs: siw kasan long LONG=
. "$(dirname "$0")/lib.sh"

begin
modprobe -qa ib_uverbs rdma_ucm
fabric_pair 1
from 0
program=$here/../srp-target
[ -f "$program" ] || skip "srp-target is not in this guest"
within 10 "/dev/infiniband" test -c /dev/infiniband/rdma_cm
files=/dev/shm/srp-files
undo() {
	[ -z "${serving-}" ] || kill $serving
	rm -rf $files
}
mkdir -p $files
truncate -s 128M $files/one
truncate -s 64M $files/two

id_ext=00000000000000ab
login_string() { from $1; echo "id_ext=$id_ext,ioc_guid=00000000000000cd,src=$src,dest=$dest:5557${2-}"; }
says() { grep -E -- "$1" $tmp/odd >/dev/null; }
# serve OPTION...: runs the target until `stop_serving`.
serve() {
	chmod +x "$program"
	# Discard the output of the previous target.
	: >$tmp/odd
	"$program" --lun $files/one --lun $files/two --listen $dest:5557 --id-ext ab --ioc-guid cd "$@" >$tmp/odd 2>&1 &
	serving=$!
	within 20 "the target to listen" or_ended $serving says '^listens'
	says '^listens' || fail "the target: $(<$tmp/odd)"
}
stop_serving() {
	kill $serving
	reap 15 "the target" $serving || fail "the target ended with status $?: $(<$tmp/odd)"
	serving=
	says '^ended' || fail "the target did not say that it ended: $(<$tmp/odd)"
	! says 'session ended|panicked' || fail "the target: $(<$tmp/odd)"
}
sg() { timeout 60 "$@" >$tmp/sg 2>&1 || fail "$*: status $?: $(<$tmp/sg)"; }
sg_says() { grep -E -- "$1" $tmp/sg >/dev/null || fail "no '$1': $(<$tmp/sg)"; }
# refused TEXT: a login that is refused.
refused() {
	local error
	error=$(write_login 0 "$(login_string 0)")
	[ -n "$error" ] || fail "a login to $id_ext was let in"
	says "login refused: $1" || fail "the target gave another reason: $(<$tmp/odd)"
	! rust_driver || logged "SRP login rejected: $1"
}

compliance() {
	sg sg_inq $dev; sg_says 'SRP-RS'; sg_says 'version=0x06'
	sg sg_vpd --page=sv $dev; sg_says 'Block limits'
	sg sg_vpd --page=sn $dev
	sg sg_vpd --page=di $dev; sg_says 'NAA'
	sg sg_vpd --page=bl $dev; sg_says 'Maximum transfer length: 0x8000'
	sg sg_vpd --page=bdc $dev; sg_says 'Non-rotating'
	sg sg_vpd --page=lbpv $dev; sg_says 'LBPU=1'
	sg sg_readcap $dev; sg_says 'Number of logical blocks=262144'
	sg sg_readcap --16 $dev; sg_says 'lbprz=1'
	sg sg_luns $dev; sg_says 'Lun list length = 16'
	sg sg_opcodes $dev; sg_says 'Synchronize cache\(16\)'
	sg sg_opcodes --opcode=0x93 $dev; sg_says 'Write same\(16\)'
	sg sg_opcodes --rctd $dev
	sg sg_opcodes --tmf $dev; sg_says 'Logical unit reset'
	sg sg_modes $dev; sg_says 'Caching'
	sg sg_modes --six --page=8 $dev
	sg sg_raw $dev 00 00 00 00 00 00
	sg sg_requests $dev
	sg sg_sync $dev
	sg sg_sync --16 $dev
	sg sg_verify --lba=0 --count=2048 $dev
	# The kernel starts a unit that it finds stopped when udev reads its partition table, which happens when a
	# writable open is closed. So do not use the disk's device.
	quiet $dev
	local unit=/dev/bsg/${host#host}:0:0:0
	sg sg_start --stop $unit
	sg sg_requests $unit; sg_says 'initializing command required'
	! timeout 30 sg_raw $unit 00 00 00 00 00 00 >$tmp/sg 2>&1 || fail "ready after a stop"
	sg_says 'initializing command required'
	sg sg_start --start $unit
	sg sg_raw $dev 00 00 00 00 00 00
	quiet $dev
	# Unknown commands are refused, and the target survives.
	! sg_raw $dev 2a 20 00 00 00 00 00 00 00 00 >$tmp/sg 2>&1 || fail "protection information was taken"
	sg_says 'Invalid field in cdb'
	! sg_raw $dev 5e 00 00 00 00 00 00 00 08 00 >$tmp/sg 2>&1 || fail "persistent reservations were taken"
	sg_says 'Invalid command operation code'
	! sg_raw --request=512 $dev 28 00 7f ff ff ff 00 00 01 00 >$tmp/sg 2>&1 || fail "a read beyond the end"
	sg_says 'out of range'
}

# Unmapped blocks read as zeros, and their space is freed.
provisioning() {
	dd if=/dev/urandom of=$tmp/data bs=1M count=8 status=none
	dd if=$tmp/data of=$dev bs=1M oflag=direct status=none || fail "write"
	local full; full=$(stat -c %b $files/one)
	blkdiscard -f -o 1M -l 2M $dev 2>$tmp/err || fail "blkdiscard: $(<$tmp/err)"
	[ $(stat -c %b $files/one) -le $((full - 4096)) ] || fail "the file kept its blocks: $full, $(stat -c %b $files/one)"
	blkdiscard -f -z -o 4M -l 1M $dev 2>$tmp/err || fail "blkdiscard -z: $(<$tmp/err)"
	head -c 512 /dev/urandom >$tmp/block
	sg sg_write_same --16 --lba=12288 --num=256 --in=$tmp/block $dev
	python3 - $tmp/data $tmp/block <<-'END'
		import sys
		data = bytearray(open(sys.argv[1], "rb").read())
		m = 1 << 20
		data[m:3 * m] = bytes(2 * m)
		data[4 * m:5 * m] = bytes(m)
		data[12288 * 512:12544 * 512] = open(sys.argv[2], "rb").read() * 256
		open(sys.argv[1], "wb").write(data)
	END
	dd if=$dev bs=1M count=8 iflag=direct status=none | cmp - $tmp/data || fail "the data is wrong on the disk"
	cmp -n 8388608 $files/one $tmp/data || fail "the data is wrong in the file"
	sg sg_verify --lba=0 --count=64 --bpc=64 --ndo=32768 --in=$tmp/data $dev
	! timeout 30 sg_verify --lba=256 --count=64 --bpc=64 --ndo=32768 --in=$tmp/data $dev >$tmp/sg 2>&1 ||
		fail "no miscompare"
	sg_says '[Mm]iscompare'
}

# Channels go to the reactors in turn.
spread() {
	python3 - $tmp/sock >$tmp/err 2>&1 <<-'END' || fail "reactors: $(<$tmp/err)"
		import json, socket, sys, time
		time.sleep(1.5)  # The age of a status.
		with socket.socket(socket.AF_UNIX) as s:
		    s.settimeout(10)
		    s.connect(sys.argv[1])
		    status = json.loads(s.makefile().read())
		print(status)
		channels = [r["channels"] for r in status["reactors"]]
		assert sum(channels) == status["channels"] > 1 and max(channels) == 1, channels
		commands = [r["counters"]["commands"] for r in status["reactors"]]
		assert sum(commands) == status["counters"]["commands"] > 0, commands
	END
}

# No command took so long that it was aborted.
no_aborts() {
	! log_has 'abort of a command' || fail "a command got no answer"
	! says 'task management' || fail "the target was told to stop a command"
}

ticks() { local s; read -ra s </proc/$serving/stat; echo $((s[13] + s[14])); }
# The target's device goes while commands run, and comes back. The target does not keep the kernel waiting, is idle in
# the meantime, and then listens and serves again.
unplugged() {
	local writing before
	timeout 300 dd if=/dev/zero of=$dev bs=64k seek=512 count=512 oflag=direct status=none 2>/dev/null &
	writing=$!
	sleep 1
	timeout 60 rdma link delete rxe0 || fail "rdma link delete"
	within 20 "the target to miss its device" or_ended $serving says '^device rxe0: '
	within 20 "the target to miss its address" or_ended $serving says 'the device is gone'
	before=$(ticks)
	sleep 5
	[ $(($(ticks) - before)) -le 100 ] || fail "the target took $(($(ticks) - before)) ticks of 5 s without a device"
	rdma link add rxe0 type rxe netdev v0 || fail "cannot make rxe0"
	neighbours 0
	within 20 "the target to listen again" or_ended $serving says 'listens again'
	within 90 "the disk" dd if=$dev of=/dev/null bs=4k count=1 iflag=direct status=none
	reap 200 "the writes" $writing
	verify_io 120 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=4m --verify_backlog=64 >/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	say "the device went and came back; $(grep -c '' $tmp/odd) lines of the target"
}

# Runs all parts of the test with the loaded driver.
use() {
	serve --reactors 3 --status $tmp/sock
	login 0 ,ch_count=2
	spread
	dev=$(disk $host 0)
	disk $host 1 >/dev/null
	quiet $dev
	compliance
	provisioning
	verify_io 120 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=12m --verify_backlog=64 >/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	no_aborts
	verify_io 120 $dev --rw=write --bs=4m --iodepth=1 --size=12m --fsync=1 >/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	no_aborts
	timeout 60 sg_reset -d $dev >$tmp/err 2>&1 || fail "sg_reset -d: $(<$tmp/err)"
	says 'task management 0x08 on unit 0' || fail "no reset: $(<$tmp/odd)"
	# The first command after the reset reports it, once.
	timeout 30 sg_raw $dev 00 00 00 00 00 00 >$tmp/sg 2>&1 || sg_says 'Bus device reset function occurred'
	sg sg_raw $dev 00 00 00 00 00 00

	mkfs.ext4 -q -F $dev 2>$tmp/err || fail "mkfs.ext4: $(<$tmp/err)"
	blkid -p -s TYPE $dev | grep -q ext4 || fail "blkid: $(blkid -p $dev)"
	mkdir -p $tmp/mnt
	mount -o discard $dev $tmp/mnt || fail "mount"
	cp $tmp/data $tmp/mnt/data && rm -f $tmp/mnt/none && sync -f $tmp/mnt && fstrim $tmp/mnt || fail "files"
	umount $tmp/mnt
	fsck.ext4 -fn $dev >$tmp/err 2>&1 || fail "fsck.ext4: $(<$tmp/err)"
	# The file has the content of the disk.
	mount -o ro,loop $files/one $tmp/mnt 2>$tmp/err &&
		{ cmp $tmp/mnt/data $tmp/data || fail "a file is wrong"; umount $tmp/mnt; } ||
		fsck.ext4 -fn $files/one >$tmp/err 2>&1 || fail "the file system in the file: $(<$tmp/err)"
	logout $host
	stop_serving

	if rust_driver && [ $kind = rxe ]; then
		serve
		login 0 ,ch_count=2
		# The file system on the first unit is read again later.
		dev=$(disk $host 1)
		quiet $dev
		unplugged
		logout $host
		kill $serving
		reap 15 "the target" $serving || fail "the target ended with status $?: $(<$tmp/odd)"
		serving=
		! says panicked || fail "the target: $(<$tmp/odd)"
	fi

	# Each login is refused for a reason.
	serve --channels 1
	id_ext=00000000000000ac
	refused 'unable to associate'
	id_ext=00000000000000ab
	login 0 ,ch_count=4
	logout $host
	stop_serving
	serve --read-only
	login 0 ,ch_count=1
	dev=$(disk $host 0)
	is "read-only" /sys/block/${dev#/dev/}/ro 1
	fsck.ext4 -fn $dev >$tmp/err 2>&1 || fail "fsck.ext4, read-only: $(<$tmp/err)"
	# The target stops first: commands wait for its return.
	stop_serving
	serve
	dd if=$dev of=/dev/null bs=1M count=1 iflag=direct status=none || fail "read after the return of the target"
	logout $host
	clean
	stop_serving
	say "$(driver): all of it"
}

use
if rust_driver; then
	use_driver c
	within 10 "add_target" test -e "$(add_target 0)"
	baseline
	use
	for h in $(hosts); do logout $h; done
	use_driver ours
fi
ok "$kind"
