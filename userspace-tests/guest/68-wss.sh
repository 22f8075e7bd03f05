#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The storage system in user space (userspace-tests/fabric/wss): SE, two CEs and an RS, each a host of its own, as is the
# initiator. Verified I/O; how many bytes each link carries; each role dies and comes back. make demo-wss runs it, too.
. "$(dirname "$0")/lib.sh"
. "$here/hosts.sh"

begin 700
rust_driver || skip "the C driver has no answers_from"
modprobe -qa ib_uverbs rdma_ucm
program=$here/../wss
[ -f "$program" ] || skip "wss is not in this guest"
chmod +x "$program"

files=/dev/shm/wss-files
undo() {
	unmake_hosts
	rm -rf $files
}
make_hosts ini se ce1 ce2 rs
mkdir -p $files
truncate -s 96M $files/one
truncate -s 64M $files/two

# runs HOST ARGUMENT...: its role.
runs() { serve $1 "$program" "${@:2}" --listen 10.0.${number[$1]}.2:555$((5 + number[$1])); }
role() {
	case $1 in
	rs) runs rs rs --number 7 --file $files/one --file $files/two ;;
	se) runs se se --rs 10.0.4.2:5559 --lun 7/0+7/1 --id-ext ab --ioc-guid cd --extent 1 ;;
	ce1) runs ce1 ce --member 1 --se 10.0.1.2:5556 --rs 10.0.4.2:5559 --id-ext ab --ioc-guid cd --cache 32 ;;
	ce2) runs ce2 ce --member 2 --se 10.0.1.2:5556 --rs 10.0.4.2:5559 --id-ext ab --ioc-guid cd --cache 32 ;;
	esac
}
# dies HOST: and is there again a moment later.
dies() {
	: >$tmp/$1
	die $1
	sleep $2
	role $1
}
login_string() { echo "id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=10.0.1.2:5556,answers_from=10.0.2.2:5557,answers_from=10.0.3.2:5558${2-}"; }
answering() { [ "$(<$files_of_host/answer_channels)" = $1 ]; }

for h in rs se ce1 ce2; do role $h; done
within 30 "all RS at the SE" says se 'all RS are here'
within 30 "both CEs" says ce1 'attached to RS 7'
within 30 "both CEs" says ce2 'attached to RS 7'
login 0 ,ch_count=2
files_of_host=/sys/class/scsi_host/$host
within 20 "two answer channels" answering 2
dev=$(disk $host 0)
quiet $dev
equal "size" "$(blockdev --getsize64 $dev)" $((160 << 20))
within 20 "/dev/srp0" test -b /dev/srp0
equal "/dev/srp0" "$(readlink -f /dev/srp0)" $dev
say "login: /dev/srp0 is $dev, answered by $(<$files_of_host/answers_from)"

verify_io 200 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=12m --verify_backlog=64 >/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
verify_io 200 $dev --rw=write --bs=1m --iodepth=2 --offset=40m --size=16m --fsync=4 >/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
no_aborts() { ! log_has 'abort of a command' || fail "a command got no answer"; }
no_aborts

# carried WHAT SUM LEAST LIMIT: so many KiB, where there are links.
carried() { [ $kind = siw ] || { (($2 >= $3 && $2 < $4)) || fail "$1 $(($2)) KiB"; }; }
pattern() { dd if=/dev/urandom of=$tmp/data bs=1M count=8 status=none; }
pattern
carry "written" 8192 dd if=$tmp/data of=$dev bs=256k oflag=direct status=none
carried "the initiator sent" "sent[ini]" 8192 9600
carried "the SE has seen data:" "sent[se] + got[se]" 0 400
carried "the RS got" "got[rs]" 8192 9600
echo 3 >/proc/sys/vm/drop_caches
carry "read from the caches" 8192 cmp -n 8388608 $tmp/data <(dd if=$dev bs=256k count=32 iflag=direct status=none)
carried "the initiator got" "got[ini]" 8192 9600
carried "the SE has seen data:" "sent[se] + got[se]" 0 400
carried "of what the CEs have the RS sent" "sent[rs]" 0 400
for h in ce1 ce2; do carried "its part of it: $h sent" "sent[$h]" 2048 9600; done
cmp -n 8388608 $files/one $tmp/data || fail "the data is wrong in the file"

# Blocks that are unmapped are zeros, whatever a CE had of them, and their place is free; so are those of WRITE SAME.
quiet $dev
full=$(stat -c %b $files/one)
blkdiscard -f -o 1M -l 2M $dev 2>$tmp/err || fail "blkdiscard: $(<$tmp/err)"
[ $(stat -c %b $files/one) -le $((full - 4096)) ] || fail "the file kept its blocks: $full, $(stat -c %b $files/one)"
blkdiscard -f -z -o 4M -l 1M $dev 2>$tmp/err || fail "blkdiscard -z: $(<$tmp/err)"
head -c 512 /dev/zero >$tmp/block
timeout 30 sg_write_same --16 --lba=12288 --num=256 --in=$tmp/block $dev >$tmp/err 2>&1 || fail "WRITE SAME: $(<$tmp/err)"
! timeout 30 sg_write_same --16 --lba=12288 --num=256 --in=$tmp/data --xferlen=512 $dev >$tmp/err 2>&1 || fail "WRITE SAME of data was taken"
for range in "1 2" "4 1"; do dd if=/dev/zero of=$tmp/data bs=1M seek=${range% *} count=${range#* } conv=notrunc status=none; done
dd if=/dev/zero of=$tmp/data bs=512 seek=12288 count=256 conv=notrunc status=none
dd if=$dev bs=256k count=32 iflag=direct status=none | cmp - $tmp/data || fail "zeros: the data is wrong on the disk"
cmp -n 8388608 $files/one $tmp/data || fail "zeros: the data is wrong in the file"
timeout 30 sg_verify --lba=0 --count=2048 $dev >$tmp/err 2>&1 || fail "VERIFY: $(<$tmp/err)"

# Each of them dies with I/O under way, which goes on when it is back. The session ends and comes again.
for h in ce1 se rs; do
	start_verify_io $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --size=16m --offset=60m --rate=3m --verify_backlog=32
	fio=$!
	sleep 2
	mark
	case $h in
	ce1)
		dies ce1 3
		# By the SE, or because the channel ends.
		logged 'connection lost'
		;;
	se)
		dies se 2
		logged 'connection lost'
		within 30 "the RS at the SE" says se 'all RS are here'
		;;
	rs) dies rs 3 ;;
	esac
	io_ends $fio 180 "after $h died"
	within 90 "two answer channels after $h died" answering 2
	say "$h has died and is back: no error, all data right"
done

logout $host
clean
for h in ce1 ce2 se rs; do
	kill ${serving[$h]}
	within 15 "the end of $h" ended ${serving[$h]}
	wait ${serving[$h]} || fail "$h ended with status $?: $(tail -n 5 $tmp/$h)"
	unset "serving[$h]"
	says $h '^ended' || fail "$h did not say that it ended: $(tail -n 5 $tmp/$h)"
	! says $h 'panicked' || fail "$h: $(grep -A 3 panicked $tmp/$h)"
done
say "$(grep lines $tmp/ce1), $(grep lines $tmp/ce2)"
ok "$kind"
