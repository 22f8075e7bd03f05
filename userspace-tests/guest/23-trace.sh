#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The trace events of ib_srp show the complete life of each command on every data path, and resets, a lost connection,
# login and logout. Filters work. The module can be unloaded during tracing. The kernel's events show that the I/O path
# does not allocate memory.
#
# deadline: 300
# takes: 73
# runs: rxe kasan fast long LONG=
# runs: rxe stock long
# runs: vfab rxe+user kasan long LONG=
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "the C driver has no events"
io() { verify_io 100 $dev --size=1m "$@" || fail "fio $*: $(grep -iE 'err|verify' $tmp/fio)"; }

fabric 1
back_null disk 16
target 0
lun 0 0 disk
listen
login 0
dev=$(disk "$host" 0)
udevadm settle -t 10
for bs in 512 4k 8k 16k 128k; do io --rw=randrw --bs=$bs --iodepth=8; done
told whole ways=none,immediate,static,dynamic session="connecting -> live" channel=open

# The events agree with those of the midlayer.
for e in start error; do
	echo "host_no == ${host#host}" >$tracing/events/scsi/scsi_dispatch_cmd_$e/filter
	echo 1 >$tracing/events/scsi/scsi_dispatch_cmd_$e/enable
done
listen
io --rw=randwrite --bs=4k --iodepth=4
told whole midlayer
echo 0 >$tracing/events/scsi/enable

echo 'len > 8192' >$events/srp_send/filter
listen
io --rw=write --bs=4k --verify=0
io --rw=write --bs=64k --verify=0
quiet $dev
cat $tracing/trace >$tmp/trace
echo 0 >$events/srp_send/filter
# WRITE(10) of 128 blocks.
large='srp_send:.* opcode=0x2a cdb=2a00[0-9a-f]{8}00008000000000000000 len=65536 direction=to_device'
[ "$(grep -cE "$large" $tmp/trace)" = 16 ] ||
	fail "filtered: $(grep -c srp_send: $tmp/trace) commands, $(grep -c 'len=65536' $tmp/trace) of 64 KiB"
! grep -q 'srp_send:.* len=4096 ' $tmp/trace || fail "the filter lets 4 KiB pass"

# allocated: sets `allocated` to the number of allocations of the module since `watch`.
watch() {
	local e
	unlisten
	echo 16384 >$tracing/buffer_size_kb
	echo >$tracing/trace
	for e in kmalloc kmem_cache_alloc; do echo 1 >$tracing/events/kmem/$e/enable || fail "no event $e"; done
}
allocated() {
	echo 0 >$tracing/events/kmem/enable
	cat $tracing/trace >$tmp/trace
	awk '/entries-in-buffer/ {split($3, n, "/"); exit n[1] < 100 || n[1] != n[2]}' $tmp/trace ||
		fail "events: $(head -n 4 $tmp/trace)"
	allocated=$(grep -cE ' call_site=([^ ]+ \[ib_srp\]|rust_helper_)' $tmp/trace)
}
watch
login 0 ,initiator_ext=1
allocated
[ $allocated -ge 10 ] || fail "only $allocated allocations for a login"
say "$allocated allocations for a login"
logout $host
find_hosts
host=${list%% *}
watch
for bs in 512 4k 64k; do io --rw=randrw --bs=$bs --iodepth=8 --size=256k; done
allocated
[ $allocated = 0 ] || fail "$allocated allocations for I/O: $(grep -E 'ib_srp|rust_helper' $tmp/trace | head -n 20)"

listen
timeout 60 sg_reset -d $dev >$tmp/err 2>&1 || fail "sg_reset -d: $(cat $tmp/err)"
told whole task=0x08
listen
io --rw=randwrite --bs=64k --iodepth=8 --time_based --runtime=4 &
fio=$!
sleep 1
timeout 60 sg_reset -H $dev >$tmp/err 2>&1 || fail "sg_reset -H: $(cat $tmp/err)"
reap 60 "I/O during a host reset" $fio || fail "I/O during a host reset"
told ended lost="reset by the error handler" session="live -> recovering" session="recovering -> live" channel=closed \
	channel=open

# Memory for a reconnect is allocated without I/O (GFP_NOIO): reclaim might have to write to this very disk.
unlisten
echo 16384 >$tracing/buffer_size_kb
# pages COMMAND...: records page allocations with the module in their call trace.
pages() {
	echo >$tracing/trace
	echo 1 >$tracing/options/stacktrace
	echo 1 >$tracing/events/kmem/mm_page_alloc/enable
	"$@"
	echo 0 >$tracing/events/kmem/enable
	echo 0 >$tracing/options/stacktrace
	cat $tracing/trace >$tmp/trace
	# The event comes before its stack trace.
	awk '/ mm_page_alloc: / {event = $0} /^ => .*ib_srp/ {if (event) print event; event = ""}' $tmp/trace >$tmp/ours
	pages=$(wc -l <$tmp/ours)
	# A queue pair of vfab needs fewer pages.
	[ $pages -ge $([ $kind = vfab ] && echo 2 || echo 4) ] ||
		fail "only $pages allocations of pages by $1: $(head -n 40 $tmp/trace)"
}
reset() { timeout 60 sg_reset -H $dev >$tmp/err 2>&1 || fail "sg_reset -H: $(cat $tmp/err)"; }
pages reset
! grep -E 'gfp_flags=[^ ]*(GFP_KERNEL|GFP_USER|GFP_HIGHUSER|GFP_TRANSHUGE|GFP_NOFS|__GFP_IO)' $tmp/ours ||
	fail "an allocation that may start I/O"
say "$pages allocations of pages for a connection, all without I/O"

# A login with the longest queue works with fragmented memory: allocations above 32 KiB do not need contiguous memory.
mine=$host
pages login 0 ,queue_size=4096,ch_count=1,initiator_ext=0000000000000001
big=$(grep -E 'order=([4-9]|1[0-9])' $tmp/ours | grep -vE '__GFP_NORETRY|GFP_NOWAIT' | sed 's/.*pfn=/pfn=/' | head -n 5)
[ -z "$big" ] || fail "much memory in one piece: $big$(grep -A16 "${big%% *} " $tmp/trace | head -n 20)"
say "$pages allocations of pages for a login with queue_size=4096"
quiet $(disk "$host" 0)
logout "$host"
host=$mine

listen
logout "$host"
dev=
clean
told session="live -> removing" session="removing -> gone" channel=closed

# The module can be unloaded during tracing, and its events disappear.
listen
cat $tracing/trace_pipe >$tmp/pipe &
pipe=$!
login 0
disk "$host" 0 >/dev/null
logout "$host"
clean
unload_srp || fail "rmmod while an event is traced: $(cat $tmp/rmmod)"
[ ! -d $events ] || fail "the events are still there"
kill $pipe
load_srp
within 10 "class device" test -e "$(add_target 0)"
[ -d $events ] || fail "the events have not come back"
ok "$kind"
