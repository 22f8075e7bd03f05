#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make demo: a target, our driver, a login by srpctl, and verified I/O on /dev/srp0 beside `srpctl watch`.
#
# deadline: 800
. "$(dirname "$0")/lib.sh"

size=${DEMO_MIB:-256}
do_verify=${DEMO_VERIFY:-128}
begin
say "kernel: $(sed 's/ (.*//' /proc/version)"
rust_driver || say "note: this is not the Rust driver"
say "module: ib_srp, in use by $(cat /sys/module/ib_srp/refcnt), taint $(cat /sys/module/ib_srp/taint)"
fabric 1
back_null disk $size
target 0
lun 0 0 disk
say "target: LIO ib_srpt, $size MiB in memory, over soft-RoCE at 10.0.0.1:$port"
# shows COMMAND...: prints a command line and what it prints.
shows() {
	say "# $*"
	timeout -k 5 100 "/srp/$@" >$tmp/said 2>&1 || { cat $tmp/said; fail "$*"; }
	sed 's/^/  /' $tmp/said
}
guid=$(service_guid)
shows srpctl connect --dest 10.0.0.1:$port --id-ext ${guid#0x} --ioc-guid ${guid#0x}
shows srpctl list
find_hosts
host=${list% }
# udevadm settle sometimes fails early ("Broken pipe").
within 20 "/dev/srp0" test -b /dev/srp0
dev=$(readlink -f /dev/srp0)
read -r model </sys/block/${dev#/dev/}/device/model
say "disk:   /dev/srp0 is $dev, $model, $host, $(cat /sys/class/scsi_host/$host/ch_count) channels"
[ "$(blockdev --getsize64 /dev/srp0)" = $((size << 20)) ] || fail "wrong size"

part=$((do_verify / 4))
cat >$tmp/jobs <<J
[global]
filename=/dev/srp0
ioengine=libaio
direct=1
verify=crc32c
verify_fatal=1
size=${part}m
[4k-random]
bs=4k
iodepth=32
rw=randwrite
[12k-random]
stonewall
offset=${part}m
size=$((part * 1024 / 12 * 12 + 12))k
bs=12k
iodepth=8
rw=randwrite
[64k]
stonewall
offset=$((2 * part + 1))m
bs=64k
iodepth=16
rw=write
[1m]
stonewall
offset=$((3 * part + 1))m
bs=1m
iodepth=4
rw=write
J
t=$SECONDS
say "fio:    write and verify $do_verify MiB with blocks of 4k, 12k, 64k and 1m"
timeout 500 fio --allow_file_create=0 --eta=never --output-format=json --output=$tmp/json $tmp/jobs >$tmp/err \
	2>&1 & io=$!
writes() { local n; read -r _ _ _ _ n _ </sys/block/${dev#/dev/}/stat && [ $n -gt 0 ]; }
within 60 "the first write" writes
shows srpctl watch --count 3
reap 500 "fio" $io || { cat $tmp/err; grep -i error $tmp/json | head; fail "fio"; }
read -r verified errors < <(python3 -c '
import json, sys
text = open(sys.argv[1]).read()
jobs = json.loads(text[text.index("{"):])["jobs"]
print(sum(j["read"]["io_bytes"] for j in jobs) >> 20, sum(j["error"] for j in jobs))' $tmp/json)
equal "fio errors" "$errors" 0
say "        $((SECONDS - t)) s, $verified MiB read back and compared"
shows srpctl disconnect --all
clean
unload_srp || fail "rmmod"
say "rmmod:  done, nothing left"
echo "demo: ok: /dev/srp0 $size MiB $verified MiB verified"
