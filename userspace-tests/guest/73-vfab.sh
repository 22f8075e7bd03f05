#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A login over InfiniBand: the subnet administrator provides the path, and ib_srpt listens through the InfiniBand CM.
# Data is correct with every fault of the adapter at either end, after a cable is unplugged and replugged, and after a
# LID change.
#
# deadline: 900
# takes: 229
# runs: vfab kasan fast long GAPS=2
# runs: vfab stock long DMA_BITS=32 swiotlb=force
# runs: vfab arm64-16k arm64-64k long LONG= DMA_BITS=32 swiotlb=65536,force
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
fabric 1
back_null disk 64
target 0
lun 0 0 disk

login 0 ,ch_count=2
dev=$(disk "$host" 0)
head -c 4M /dev/urandom >$tmp/a
copy() {
	dd if=$tmp/a of=$dev bs=256k oflag=direct status=none || fail "write $1"
	dd if=$dev of=$tmp/b bs=64k count=64 iflag=direct status=none || fail "read $1"
	cmp $tmp/a $tmp/b || fail "what was read is wrong $1"
}
copy "at first"
# The driver keeps memory mapped during a session.
bounced=
if grep -qwE 'swiotlb=([0-9]+,)?force' /proc/cmdline; then
	bounced=$(cat /sys/kernel/debug/swiotlb/io_tlb_used) || fail "no count of bounce buffers"
	[ "$bounced" -gt 0 ] || fail "nothing bounces with swiotlb=force"
fi
dd if=${backdev[disk]} bs=256k count=16 iflag=direct status=none | cmp - $tmp/a || fail "the back end is wrong"

# Each fault, at either end, once during the copies. If the fault breaks the connection, the session reconnects.
running() { [ "$(cat /sys/class/srp_remote_ports/port-${host#host}:1/state)" = running ]; }
n=0
for d in vfab1 vfab0; do
	for order in "loss 9" "ack 9" "delay 9 50" "error 9 retries send" "error 9 flushed recv" "death 9" "overrun 9" \
		"post 9" "register 9"; do
		# The target registers nothing for such small transfers, and would wait forever for a lost completion.
		case "$d $order" in "vfab0 register 9" | "vfab0 overrun 9") continue ;; esac
		faulted $d "${order%% *}"
		before=$times
		fault $d $order
		copy "with '$order' at $d"
		faulted $d "${order%% *}"
		[ $times = $((before + 1)) ] || fail "'$order' at $d happened $((times - before)) times"
		within 30 "connection after '$order' at $d" running
		n=$((n + 1))
	done
done
copy "after all faults"

# A cable is unplugged and replugged: the subnet manager brings the port back.
at_port vfab1 down
within 5 "port down" port_has vfab1 state "1: DOWN"
at_port vfab1 up
within 60 "ACTIVE again" all_active vfab0 vfab1
within 60 "connection after the cable" running
copy "after the cable"

at_port vfab1 reregister
at_port vfab1 sm 1
copy "after events"
logout "$host"

# An adapter with gaps in its regions gets scatter lists with arbitrary offsets unchanged: nothing is split or copied.
if [ -n "${GAPS-}" ]; then
	both_drivers
	[ -n "${LONG-}" ] || drivers=${drivers%% *}
	for d in $drivers; do
		use_driver $d
		login 0 ,cmd_sg_entries=255,sg_tablesize=255
		dev=$(disk "$host" 0)
		q=/sys/block/${dev#/dev/}/queue
		cat $q/max_hw_sectors_kb >$q/max_sectors_kb
		is "no boundary" $q/virt_boundary_mask 0
		quiet $dev
		listen send
		said=$(timeout 200 python3 $here/odd-io.py $dev 2 $RANDOM 255 /sys/kernel/debug/ib_vfab/vfab1/regions 2>&1) ||
			fail "$(driver): $said"
		say "$(driver): $said"
		! rust_driver || ! grep 'srp_send:.* way=dynamic ' $tracing/trace | grep -v ' segments=1$' ||
			fail "a command of several regions"
		logout "$host"
	done
fi
ok "$n faults on vfab${bounced:+, $bounced bounce slots in use after the first copy}"
