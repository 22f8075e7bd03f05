#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The user-space target, on a block device and on a file, passes third-party compliance tests: libiscsi's test suite
# over SG_IO, sg3_utils, blkid, mkfs and fsck.
#
# deadline: 900
# takes: 300
# runs: rxe+user kasan long LONG=
. "$(dirname "$0")/lib.sh"

begin
[ -n "$user" ] || skip "it is about the target in user space"
fabric 1
# A back end with its own cache that supports discards.
null_blk disk 64 discard=1
iblock disk
back_file file 64
target 0
lun 0 0 disk
lun 0 1 file
login 0
sg() { timeout 60 "$@" >$tmp/sg 2>&1 || fail "$*: status $?: $(<$tmp/sg)"; }
sg_says() { grep -E -- "$1" $tmp/sg >/dev/null || fail "no '$1': $(<$tmp/sg)"; }
# refused SENSE COMMAND...: fails with that sense data.
refused() {
	! timeout 60 "${@:2}" >$tmp/sg 2>&1 || fail "${*:2}: was taken"
	sg_says "$1"
}

# Expected failures in the suite:
# - the suite wants a WRITE SAME with more data than a block to be refused. SRP has a residual for it, and the command
#   succeeds.
# - a READ of 32 MiB exceeds the kernel's limit.
known='test_writesame1[06]_invalid_dataout_size.c:|test_writesame16_unmap.c:(190|193) '
# suite FAMILY: runs tests of libiscsi. SCSI contains a test that calls iSCSI directly and crashes; ALL leaves it out.
# Each failed assertion is a line with the file of the test.
suite() {
	local status
	timeout 600 iscsi-test-cu --dataloss --normal --test="$1" $dev >$tmp/suite 2>&1
	status=$?
	grep -E '^ *[0-9]+\. test_' $tmp/suite >$tmp/failed
	read -r ran failed < <(awk '$1 == "tests" {print $3, $5}' $tmp/suite)
	[ "${ran:-0}" -gt 50 ] || fail "the suite ended with status $status: $(tail -n 5 $tmp/suite)"
	! grep -vE "$known" $tmp/failed || fail "the suite: $(grep -vE "$known" $tmp/failed)"
	say "$dev: $ran tests of libiscsi, $failed failed as known"
}

for lun in 0 1; do
	dev=$(disk "$host" $lun)
	quiet $dev
	blocks=$((64 << 11))

	suite ALL
	# Sg3_utils
	sg sg_inq $dev; sg_says 'SRP-RS'
	for page in sv sn di bl bdc lbpv; do sg sg_vpd --page=$page $dev; done
	sg_says 'LBPU=1'
	sg sg_vpd -l $dev
	sg sg_readcap --16 $dev; sg_says "Number of logical blocks=$blocks"
	sg sg_luns $dev; sg_says 'Lun list length = 16'
	sg sg_verify --lba=0 --count=2048 $dev
	head -c 512 /dev/urandom >$tmp/block
	sg sg_write_same --16 --lba=4096 --num=512 --in=$tmp/block $dev
	sg sg_write_same --10 --lba=8192 --num=16 --in=$tmp/block $dev
	sg sg_unmap --lba=4096 --num=256 --force $dev
	dd if=$dev bs=512 skip=4096 count=512 iflag=direct status=none >$tmp/got
	cmp -n 131072 $tmp/got /dev/zero || fail "unmapped blocks are not zeros"
	cmp $tmp/block <(tail -c 512 $tmp/got) || fail "WRITE SAME: the data is wrong"
	# Unsupported commands fail with the right sense data, and the target survives.
	refused 'Invalid command operation code|[Nn]ot supported|ILLEGAL|Illegal' sg_get_lba_status --lba=0 $dev
	dd if=/dev/zero bs=1k count=1 status=none >$tmp/pair
	refused 'Invalid command operation code|[Nn]ot supported|ILLEGAL|Illegal' sg_compare_and_write --lba=0 --num=1 \
		--in=$tmp/pair $dev
	refused 'Invalid command operation code|[Nn]ot supported|ILLEGAL|Illegal' sg_persist --no-inquiry --in --read-keys $dev
	refused 'out of range' sg_verify --lba=$blocks --count=1 $dev
	refused 'out of range' sg_unmap --lba=$((blocks - 1)) --num=2 --force $dev
	refused 'out of range' sg_write_same --16 --lba=$((blocks - 1)) --num=2 --in=$tmp/block $dev
	sg sg_turs $dev

	# A file system
	mkfs.ext4 -q -F $dev 2>$tmp/err || fail "mkfs.ext4: $(<$tmp/err)"
	udevadm settle -t 20
	blkid -p -s TYPE $dev | grep ext4 >/dev/null || fail "blkid: $(blkid -p $dev)"
	mkdir -p $tmp/m
	mount -o discard $dev $tmp/m || fail "mount"
	head -c 20M /dev/urandom >$tmp/m/file && cp $tmp/m/file $tmp/m/other && rm $tmp/m/file && sync -f $tmp/m &&
		fstrim $tmp/m || fail "files"
	sum=$(sha256sum <$tmp/m/other)
	umount $tmp/m
	fsck.ext4 -fn $dev >$tmp/err 2>&1 || fail "fsck.ext4: $(<$tmp/err)"
	name=disk; [ $lun = 0 ] || name=file
	fsck.ext4 -fn ${backdev[$name]} >$tmp/err 2>&1 || fail "fsck.ext4 of the back end: $(<$tmp/err)"
	mount -o ro $dev $tmp/m || fail "mount again"
	equal "a file" "$(sha256sum <$tmp/m/other)" "$sum"
	umount $tmp/m
done
# A new session sees what the previous one wrote.
logout "$host"
login 0
for lun in 0 1; do
	dev=$(disk "$host" $lun)
	mount -o ro $dev $tmp/m || fail "mount after the new login"
	umount $tmp/m
done
logout "$host"
clean
ok "$kind"
