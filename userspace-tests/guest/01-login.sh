#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Shows that a login succeeds, that sysfs describes it, and that a write, a read and a logout work.
#
# deadline: 120
# takes: 32
# runs: rxe stock fast long
# runs: siw kasan fast long LONG=
# runs: rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug long LONG=
# runs: rxe arm64-16k arm64-64k long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk
login 0
dev=$(disk "$host" 0)
say "$host, $dev, $(blockdev --getsize64 $dev) bytes"
equal size "$(blockdev --getsize64 $dev)" $((64 << 20))

s=/sys/class/scsi_host/$host
is id_ext $s/id_ext "$(service_guid)"
is ioc_guid $s/ioc_guid "$(service_guid)"
is local_ib_device $s/local_ib_device $(initiator 0)
is local_ib_port $s/local_ib_port 1
is "ibdev of the class device" /sys/class/infiniband_srp/srp-$(initiator 0)-1/ibdev $(initiator 0)
is "port of the class device" /sys/class/infiniband_srp/srp-$(initiator 0)-1/port 1
is "rport roles" /sys/class/srp_remote_ports/port-${host#host}:1/roles "SRP Target"
equal "mode of add_target" "$(stat -c %a "$(add_target 0)")" 200
[ -e $s/orig_dgid ] || fail "no orig_dgid; srp_daemon tests for it"
[ "$(cat $s/ch_count)" -ge 1 ] || fail "ch_count $(cat $s/ch_count)"
[ "$(cat $s/req_lim)" -ge 1 ] || fail "req_lim $(cat $s/req_lim)"

head -c 1M /dev/urandom >$tmp/a
dd if=$tmp/a of=$dev bs=4k oflag=direct status=none || fail "write"
dd if=$dev of=$tmp/b bs=4k count=256 iflag=direct status=none || fail "read"
cmp $tmp/a $tmp/b || fail "what was read is wrong"
dd if=${backdev[disk]} of=$tmp/c bs=4k count=256 iflag=direct status=none
cmp $tmp/a $tmp/c || fail "the back end is wrong"

# A single command for 1 MiB. Regions of cxgb4 and vmw_pvrdma have 512 KiB.
case ${PERSONALITY-} in
cxgb4 | vmw_pvrdma) wanted=2 ;;
*) wanted=1 ;;
esac
if rust_driver; then
	q=/sys/block/${dev#/dev/}
	cat $q/queue/max_hw_sectors_kb >$q/queue/max_sectors_kb
	# udev reads a disk that was written to.
	quiet $dev
	before=$(awk '{print $1}' $q/stat)
	dd if=$dev of=$tmp/b bs=1M count=1 iflag=direct status=none || fail "read of 1 MiB"
	equal "commands for 1 MiB" $(($(awk '{print $1}' $q/stat) - before)) $wanted
	cmp $tmp/a $tmp/b || fail "what was read at once is wrong"
fi

logout "$host"
clean
ok "$kind"
