#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Events on the initiator under I/O: a CPU goes offline and online, the RDMA device is renamed, the machine suspends,
# the address is removed and added, the network namespace of the login loses its name.
#
# deadline: 600
# takes: 123
# runs: rxe stock long
# runs: rxe siw test long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
fast_io_fail=30 dev_loss=60
testbed
attach 0
trace $host
verify $dev2
journal $dev --rport port-${host#host}:1

note "CPU off and on"
cpu=/sys/devices/system/cpu/cpu1/online
for ((n = 0; n < 3; n++)); do
	echo 0 >$cpu || fail "cannot take CPU 1 off"
	alive 1
	echo 1 >$cpu || fail "cannot take CPU 1 on"
	alive 1
done

note "another name for the device"
rdma dev set $(initiator 0) name other0 || fail "rdma dev set"
alive 1
[ -e /sys/class/infiniband_srp/srp-other0-1/add_target ] ||
	fail "the port kept its old name: $(ls /sys/class/infiniband_srp)"
rdma dev set other0 name $(initiator 0) || fail "rdma dev set"
alive 1

# A suspended guest would never wake up, so pm_test skips the last step.
doze() {
	echo devices >/sys/power/pm_test || fail "this kernel has no pm_test"
	gauge_off
	clock; t0=$now
	echo freeze >/sys/power/state || fail "cannot sleep"
	clock; t1=$now
	gauge_on
	say "slept for $(ms $((t1 - t0)))"
	echo none >/sys/power/pm_test
}
note "sleep"
doze
goes_on 20
bound "after sleeping: I/O resumed" $t1 $at 10
alive 1

note "the address is removed and added"
if [ $kind = rxe ]; then address=10.0.0.2/24; else address=fd00:0:0:0::2/64; fi
clock; t0=$now
ini ip addr del $address dev w0 || fail "ip addr del"
sleep 4
say "state: $(cat $rport/state)"
ini ip addr add $address dev w0 $([ $kind = rxe ] || echo nodad) || fail "ip addr add"
neighbours 0
clock; t1=$now
within $((20 * factor / 1000)) "running with the address back" state running
goes_on 20
clock
bound "address back: running" $t1 $now 10
alive 1

# The session holds a reference to the namespace.
if [ $kind = rxe ]; then
	note "the namespace loses its name"
	ip netns delete $ns
	alive 2
	errors
	[ $errors = 0 ] || fail "$errors errors"
fi
verified
settle
once

# The disks are idle, so only the keep-alive after resume can detect the loss.
if rust_driver; then
	note "the path is lost while the machine sleeps"
	quiet $dev
	quiet $dev2
	requests() { cat /sys/bus/scsi/devices/${host#host}:0:0:*/iorequest_cnt | tr '\n' ' '; }
	before=$(requests)
	hole target 0
	doze
	within $((20 * factor / 1000)) "found dead" not state running
	clock
	bound "found dead after sleeping" $t1 $now 3 5
	equal "commands meanwhile" "$(requests)" "$before"
	heal 0
	within $((15 * factor / 1000)) "running again" state running
fi
logout $host
[ $kind != rxe ] || within 20 "the namespace and its device are gone" test ! -e "/sys/class/infiniband/$(initiator 0)"
ok "$kind"
