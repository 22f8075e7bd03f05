#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# 50-srp-scheduler.rules: a disk with one channel has no scheduler, except if it rotates. A choice of the admin stays.
#
# deadline: 120
# takes: 12
# runs: rxe stock fast long
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
within 60 "udevd answers" udevadm control --ping --timeout=5
fabric 1
target 0
for i in 0 1; do back_null d$i 16; lun 0 $i d$i; done
echo 0 >${backdir[d1]}/attrib/is_nonrot || fail "no disk that rotates"

settled() { udevadm settle -t 60 || fail "udev does not settle"; }
# file LUN: prints the disk's file `scheduler`.
file() { echo /sys/block/$(basename $(disk $host $1))/queue/scheduler; }
scheduler() { sed 's/.*\[\(.*\)\].*/\1/' $(file $1); }

login 0 ,ch_count=1
for i in 0 1; do disk $host $i >/dev/null; done
settled
equal "the scheduler" "$(scheduler 0)" none
equal "the scheduler of a disk that rotates" "$(scheduler 1)" mq-deadline
echo mq-deadline >$(file 0)
udevadm trigger --action=change --subsystem-match=block
settled
equal "the admin's scheduler" "$(scheduler 0)" mq-deadline
logout $host

login 0 ,ch_count=2
for i in 0 1; do disk $host $i >/dev/null; done
settled
for i in 0 1; do equal "the scheduler of LUN $i with two channels" "$(scheduler $i)" none; done
logout $host
settled
clean
ok
