#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Features of disks besides reads and writes: persistent reservations, from the kernel and from tools, also across a
# reconnect; UNMAP, WRITE SAME, WRITE ATOMIC; commands through bsg. The trace events show that they were sent.
#
# deadline: 240
# takes: 35
# runs: rxe kasan fast long LONG=
# runs: rxe stock long
# runs: siw vfab kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
# LIO stores reservations in this directory.
mkdir -p /var/target/pr
fabric 1
target 0
back_debug debug 16 lbpu=1 lbpws=1 atomic_wr=1
for a in emulate_tpu emulate_tpws; do echo 1 >${backdir[debug]}/attrib/$a || fail "no $a"; done
lun 0 0 debug
login 0
one=$host dev1=$(disk "$host" 0)
login 0 ,initiator_ext=1
two=$host dev2=$(disk "$host" 0)
udevadm settle -t 20

# Reservations
pr() { timeout 30 sg_persist --no-inquiry "$@" >$tmp/pr 2>&1 || fail "sg_persist $*: $(cat $tmp/pr)"; }
writes() { dd if=/dev/zero of=$1 bs=512 count=1 oflag=direct status=none 2>$tmp/err; }
reads() { dd if=$1 of=/dev/null bs=512 count=1 iflag=direct status=none 2>$tmp/err; }
may() { writes $1 || fail "$1 may not write: $(cat $tmp/err)"; }
may_not() {
	! writes $1 || fail "$1 can write despite a reservation"
	reads $1 || fail "$1 cannot read: $(cat $tmp/err)"
}
pr --out --register --param-sark=0xa1 $dev1
pr --out --register --param-sark=0xb2 $dev2
pr --in --read-keys $dev1
{ grep -q 0xa1 $tmp/pr && grep -q 0xb2 $tmp/pr; } || fail "keys: $(cat $tmp/pr)"
pr --out --reserve --param-rk=0xa1 --prout-type=1 $dev1
may $dev1
may_not $dev2
# A reservation belongs to the port, not to the connection.
timeout 60 sg_reset -H $dev1 >$tmp/err 2>&1 || fail "sg_reset -H: $(cat $tmp/err)"
within 30 "running" grep -q running /sys/class/srp_remote_ports/port-${one#host}:1/state
may $dev1
may_not $dev2
pr --out --preempt --param-rk=0xb2 --param-sark=0xa1 --prout-type=1 $dev2
may $dev2
may_not $dev1
# The kernel's ioctls, as a cluster file system uses them: register again, reserve for all registrants.
python3 - $dev1 $dev2 <<-'END' >$tmp/pr 2>&1 || fail "PR calls of the kernel: $(cat $tmp/pr)"
	import fcntl, os, struct, sys
	REGISTER, RESERVE, CLEAR = 0x401870C8, 0x401070C9, 0x401070CD
	one, two = (os.open(d, os.O_RDWR) for d in sys.argv[1:])
	fcntl.ioctl(two, CLEAR, struct.pack("QII", 0xB2, 0, 0))
	fcntl.ioctl(one, REGISTER, struct.pack("QQII", 0, 0xC3, 0, 0))
	fcntl.ioctl(one, RESERVE, struct.pack("QIII", 0xC3, 3, 0, 0)[:16])
END
may $dev1
may_not $dev2
pr --out --clear --param-rk=0xc3 $dev1
may $dev2

# UNMAP, WRITE SAME, WRITE ATOMIC
queue=/sys/block/${dev1#/dev/}/queue
# sent OPCODE: prints how many such commands were sent since `listen`.
sent() { grep -c "srp_send: host=${one#host} .* opcode=$1 " $tracing/trace; }
# same OFFSET COUNT FILE: checks that the COUNT blocks at OFFSET have the content of FILE.
same() { dd if=$dev1 bs=512 skip=$1 count=$2 iflag=direct status=none | cmp - "$3" || fail "$4: the data is wrong"; }
dev=$dev1
head -c 1M /dev/urandom >$tmp/data
dd if=/dev/zero bs=64k count=1 status=none >$tmp/zeros
fill() { dd if=$tmp/data of=$dev1 bs=64k oflag=direct status=none || fail "write"; }

fill
[ "$(<$queue/discard_max_bytes)" != 0 ] || fail "no discards: $(grep -H . $queue/discard*)"
listen send
blkdiscard -f -o 64k -l 64k $dev1 2>$tmp/err || fail "blkdiscard: $(cat $tmp/err)"
sg_unmap --lba=256 --num=128 --force $dev1 >$tmp/err 2>&1 || fail "sg_unmap: $(cat $tmp/err)"
! rust_driver || [ "$(sent 0x42)" = 2 ] || fail "$(sent 0x42) UNMAP"
same 128 128 $tmp/zeros UNMAP
same 256 128 $tmp/zeros "UNMAP by SG_IO"
dd if=$tmp/data bs=64k count=1 status=none >$tmp/first
same 0 128 $tmp/first "before UNMAP"

fill
listen send
blkdiscard -f -z -o 64k -l 64k $dev1 2>$tmp/err || fail "blkdiscard -z: $(cat $tmp/err)"
! rust_driver || [ $(($(sent 0x93) + $(sent 0x41))) -ge 1 ] || fail "no WRITE SAME: $(cat $tracing/trace)"
same 128 128 $tmp/zeros "zeros by WRITE SAME"
head -c 512 $tmp/data >$tmp/block
sg_write_same --16 --lba=512 --num=64 --in=$tmp/block $dev1 >$tmp/err 2>&1 || fail "sg_write_same: $(cat $tmp/err)"
for ((i = 0; i < 64; i++)); do cat $tmp/block; done >$tmp/blocks
same 512 64 $tmp/blocks "WRITE SAME"

atomic=$(cat $queue/atomic_write_unit_max_bytes 2>/dev/null)
if [ "${atomic:-0}" -ge 4096 ]; then
	listen send
	python3 - $dev1 <<-'END' >$tmp/pr 2>&1 || fail "RWF_ATOMIC: $(cat $tmp/pr)"
		import mmap, os, sys
		page = mmap.mmap(-1, 4096)
		page.write(b"a" * 4096)
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
		assert os.pwritev(fd, [page], 1 << 20, 0x40) == 4096
		assert os.preadv(fd, [page], 1 << 20) == 4096 and page[:] == b"a" * 4096
	END
	! rust_driver || [ "$(sent 0x9c)" = 1 ] || fail "$(sent 0x9c) WRITE ATOMIC"
	said="WRITE ATOMIC of up to $atomic bytes"
else
	said="the target has no WRITE ATOMIC"
fi

# Bsg
bsg=/dev/bsg/${one#host}:0:0:0
[ -c $bsg ] || fail "no $bsg"
sg_inq $bsg >$tmp/err 2>&1 || fail "sg_inq: $(cat $tmp/err)"
grep -q LIO-ORG $tmp/err || fail "sg_inq: $(cat $tmp/err)"
# At most 12 non-contiguous pages fit into a request.
head -c 32k $tmp/first >$tmp/half
sg_raw --request=32768 --outfile=$tmp/got $bsg 28 00 00 00 00 00 00 00 40 00 >$tmp/err 2>&1 ||
	fail "READ through bsg: $(cat $tmp/err)"
cmp $tmp/half $tmp/got || fail "READ through bsg: the data is wrong"
sg_raw --send=32768 --infile=$tmp/half $bsg 2a 00 00 00 02 00 00 00 40 00 >$tmp/err 2>&1 ||
	fail "WRITE through bsg: $(cat $tmp/err)"
same 512 64 $tmp/half "WRITE through bsg"
! sg_raw --request=512 $bsg 28 00 7f ff ff ff 00 00 01 00 >$tmp/err 2>&1 || fail "READ beyond the end"
grep -qi 'out of range' $tmp/err || fail "READ beyond the end: $(cat $tmp/err)"

unlisten
dev=
logout $one
logout $two
clean
ok "$kind, $said"
