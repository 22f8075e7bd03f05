#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A target transfers less than requested without reporting it: no command returns data that another one has read, and
# written data is not lost.
#
# deadline: 300
# takes: 149
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
odd_target
enter ,ch_count=1
yes "another user's data" | head -c 1M >$tmp/pattern
dd if=$tmp/pattern of=$dev bs=1M oflag=direct conv=notrunc 2>$tmp/dd || fail "write: $(<$tmp/dd)"
head -c 4096 /dev/urandom >$tmp/own
dd if=$tmp/own of=$dev bs=4k seek=512 oflag=direct conv=notrunc 2>$tmp/dd || fail "write: $(<$tmp/dd)"

# leave: fills all buffers of small reads with another user's data.
leave() {
	tell on 28 normal
	direct_io 60 $dev --rw=randread --bs=4k --iodepth=32 --size=1m --number_ios=400 --loops=4 >/dev/null 2>&1 ||
		fail "fio: $(<$tmp/fio)"
	quiet $dev
}
# shows NAME WHAT...: checks that all commands return the right data.
shows() {
	said=$(timeout 100 python3 $here/stale.py $dev "another user's data" "${@:2}" 2>&1) || fail "$1: $said"
	stayed "$1"
}
# reads WHERE FILE COMMANDS WHAT: checks that a read of 4 KiB is right, after COMMANDS commands.
reads() {
	timeout 20 dd if=$dev of=$tmp/read bs=4k skip=$1 count=1 iflag=direct 2>$tmp/dd ||
		fail "$4: $(tail -n 1 $tmp/dd), after $(times 'command .*opcode=28') commands"
	cmp -n 4096 $2 $tmp/read || fail "$4: wrong data"
	equal "commands of $4" $(times 'command .*opcode=28') $3
}
for cdb in "INQUIRY 12 0000100000" "LOG_SENSE 4d 000000000000100000" "READ(10) 28 000000000000000800"; do
	read -r command opcode rest <<<"$cdb"
	leave
	tell on $opcode short:e1e2e3e4e5e6e7e8 40
	shows $command answer $opcode$rest e1e2e3e4e5e6e7e8
done

# The error handler requests sense for a command without sense data: for a user's command, which returns all of it, and
# for a large read, which logs it. HARDWARE ERROR, with missing bytes.
leave
tell on 12 check:0: 40
tell on 03 short:7000040000000058 40
shows "REQUEST SENSE" sense 120000100000 7000040000000058
tell on 12 normal
leave
mark
tell on 03 short:7000040000000058 40
tell on 28 check:0: 40
timeout 60 dd if=$dev of=$tmp/read bs=64k count=1 iflag=direct 2>$tmp/dd && fail "a read without sense is good"
logged 'Sense Key : Hardware Error'
logged 'Add\. Sense: No additional sense information'
log_since | grep -E 'Add\. Sense|ASC=' | grep -v 'No additional' && fail "sense of another user"
tell on 28 normal
tell on 03 normal

# An error that does not tell how much was transferred.
leave
tell on 28 check:0:700003000000000a000000001100 40
shows "a read that fails" fail
equal "reads" $(times 'command .*opcode=28') 40

# An error that names the block: the previous blocks are good if the target has sent them.
for sent in 5 2 0; do
	leave
	tell on 28 check:$((sent * 512)):f00003000010050a000000001100 100
	shows "a bad block" blocks $tmp/own $sent 5
	equal "reads" $(times 'command .*opcode=28') 80
done
# The first block of the command, 0x1000, is bad, so no block is good: in fixed format, in descriptor format, and with a
# block outside of the command.
for sense in f00003000010000a000000001100 720311000000000c000a80000000000000001000 f00003000000050a000000001100; do
	leave
	tell on 28 check:0:$sense 40
	shows "all blocks bad" blocks $tmp/own 0 0
	equal "reads" $(times 'command .*opcode=28') 40
done
leave
tell on 28 check:2560:720311000000000c000a80000000000000001005 100
shows "a bad block in descriptor format" blocks $tmp/own 5 5

tell on 28 normal

# Recovered errors: everything was transferred. In each sense format that the midlayer accepts.
for sense in 700001000000000a000000001701 7201170100000000 7401170100000000 7e01170100000000; do
	tell on 28 check:4096:$sense 1000
	reads 0 $tmp/pattern 1 "a recovered read"
done
# A recovered error that the error handler gets by requesting sense.
tell on 03 short:700001000000000a000000001701 1000
tell on 28 check:4096: 1000
reads 512 $tmp/own 2 "a read recovered without sense"
tell on 03 normal
tell on 28 normal

# Complete reads return all data.
dd if=$dev of=$tmp/read bs=4k iflag=direct count=256 2>$tmp/dd || fail "read: $(<$tmp/dd)"
cmp $tmp/pattern $tmp/read || fail "what was read is wrong"
no_reports
logout $host
clean
no_complaints
ok "$kind"
