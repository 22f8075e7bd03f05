#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A target that writes less than was asked for, and does not say so: nobody sees what somebody else has read.
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin 200
odd_target
enter ,ch_count=1
yes "another user's data" | head -c 1M >$tmp/pattern
dd if=$tmp/pattern of=$dev bs=1M oflag=direct conv=notrunc 2>$tmp/dd || fail "write: $(<$tmp/dd)"

# leave: each piece of memory for small reads has it.
leave() {
	timeout 60 fio --allow_file_create=0 --eta=never --name=r --filename=$dev --ioengine=libaio --direct=1 --rw=randread --bs=4k \
		--iodepth=32 --size=1m --number_ios=400 --loops=4 --output=$tmp/fio >/dev/null 2>&1 || fail "fio: $(<$tmp/fio)"
	quiet $dev
}
# shows NAME WHAT: one of the commands shows it.
shows() {
	said=$(timeout 100 python3 $here/stale.py $dev "another user's data" $2 2>&1) || fail "$1: $said"
	stayed "$1"
}
for cdb in "INQUIRY 12 0000100000" "LOG_SENSE 4d 000000000000100000" "READ(10) 28 000000000000000800"; do
	read -r command opcode rest <<<"$cdb"
	leave
	tell on $opcode short 40
	shows $command $opcode$rest
done
# An error does not say how much has arrived.
leave
tell on 28 fail 40
shows "a read that fails" fail
equal "reads" $(times 'command .*opcode=28') 40

# This one says that all has arrived.
tell on 28 recovered
dd if=$dev of=$tmp/read bs=4k count=1 iflag=direct 2>$tmp/dd || fail "a recovered read: $(<$tmp/dd)"
cmp -n 4096 $tmp/pattern $tmp/read || fail "a recovered read is wrong"
has_said 'command .*opcode=28' || fail "no read"

# Reads that are answered in full show all.
dd if=$dev of=$tmp/read bs=4k iflag=direct count=256 2>$tmp/dd || fail "read: $(<$tmp/dd)"
cmp $tmp/pattern $tmp/read || fail "what was read is wrong"
no_reports
logout $host
clean
no_complaints
ok "$kind"
