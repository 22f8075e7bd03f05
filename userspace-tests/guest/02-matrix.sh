#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Verifies data with block sizes from 512 bytes to 4 MiB, queue depths 1 and 32, direct and buffered. One job writes,
# another one reads back.
#
# deadline: 900 1800
# takes: 155
# runs: rxe kasan fast long LONG=
# runs: rxe stock long
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long GAPS=2
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: vfab stock long DMA_BITS=32 swiotlb=force
# runs: rxe rt long LONG=
# runs: rxe arm64-16k arm64-64k long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
# The debug kernels are slow, so they run fewer tests than the stock kernel.
rounds 40 100
volume=$rounds
rounds 1 3
if [ -e /proc/lockdep_chains ] || grep -q 'User Mode Linux' /proc/cpuinfo; then
	rounds 25 100
	volume=$rounds rounds=1
fi
fabric 1
back_null disk 640
target 0
lun 0 0 disk
options=
[ "$kind" = rxe ] || options=,ch_count=2
login 0 ",max_sect=8192,cmd_sg_entries=255,sg_tablesize=2048,allow_ext_sg=1$options"
dev=$(disk "$host" 0)
q=/sys/block/${dev#/dev/}/queue
cat $q/max_hw_sectors_kb >$q/max_sectors_kb

# Every cell of the matrix has its own part of the disk (MiB).
at=0
cells=0
for direct in 1 0; do
	for bs in 512 4k 8k 12k 64k 1M 4M; do
		for depth in 1 32; do
			case $bs-$depth in
			512-*) mib=1 ;;
			4k-1 | 8k-1 | 12k-1) mib=4 ;;
			4k-* | 8k-* | 12k-*) mib=16 ;;
			64k-*) mib=32 ;;
			*) mib=40 ;;
			esac
			mib=$((mib * volume / 100))
			[ $mib -ge 1 ] || mib=1
			case $bs in
			12k) size=$((mib * 85))x; size=$((${size%x} * 12288)) ;;	# a multiple of 12 KiB
			4M) size=$(((mib + 3) / 4 * 4 << 20)); mib=$((size >> 20)) ;;
			*) size=$((mib << 20)) ;;
			esac
			cells=$((cells + 1))
			for rw in write read; do
				how=rand$rw
				[ $depth != 1 ] || how=$rw
				verify="do_verify=0"
				[ $rw != read ] || verify="verify_fatal=1"
				printf '[%s-bs%s-qd%s-%s]\nstonewall\nrw=%s\nbs=%s\niodepth=%s\ndirect=%s\noffset=%sm\nsize=%s\n%s\n' \
					$rw $bs $depth "$([ $direct = 1 ] && echo direct || echo buffered)" $how $bs $depth $direct $at $size $verify
			done
			at=$((at + mib + 1))
		done
	done
done >$tmp/jobs
[ $at -le 640 ] || fail "the matrix needs $at MiB"
# Sequential reads check what random writes left and vice versa. A block contains its offset, so verify_header_seed is
# not needed.
global=("filename=$dev" ioengine=libaio verify=crc32c verify_header_seed=0 invalidate=1 end_fsync=1 randrepeat=0
	allow_mounted_write=1 group_reporting=0)
printf '%s\n' '[global]' "${global[@]}" | cat - $tmp/jobs >$tmp/fio
for ((i = 0; i < rounds; i++)); do
	timeout 1500 fio --allow_file_create=0 --eta=never --output-format=json --output=$tmp/json$i $tmp/fio >$tmp/err 2>&1
	rc=$?
	[ $rc = 0 ] || { cat $tmp/err; grep -iE 'error|verify' $tmp/json$i | head -n 20; fail "fio ended with $rc"; }
done
sum=$(python3 - $tmp/json* <<'P'
import json, sys
jobs = []
for path in sys.argv[1:]:
    text = open(path).read()
    jobs += json.loads(text[text.index("{"):])["jobs"]
read = written = errors = 0
for j in jobs:
    read += j["read"]["io_bytes"]
    written += j["write"]["io_bytes"]
    errors += j["error"] + j.get("total_err", 0)
empty = [j["jobname"] for j in jobs if not j["read"]["io_bytes"] + j["write"]["io_bytes"]]
print(f"{written >> 20} {read >> 20} {errors} {','.join(empty)}")
P
)
read -r written got errors empty <<<"$sum"
equal errors "$errors" 0
say "$rounds rounds"
equal "cells without I/O" "$empty" ""
[ "$got" -ge $((written * 99 / 100)) ] || fail "only $got of $written MiB were read back"
logout "$host"
clean
ok "$kind: $cells cells, $written MiB written, $got MiB verified, 0 mismatches"
