#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# LUNs that come, grow and go. A unit attention of the target causes a rescan of the session, at most every 30 s. srpctl
# rescan finds the same changes at once and lists the disks that are gone; --remove removes them unless they are in use.
#
# deadline: 300
# takes: 110
# runs: rxe kasan long
. "$(dirname "$0")/lib.sh"

begin
[ -e /usr/lib/udev/rules.d/61-srp-rescan.rules ] || fail "the udev rule is not installed"
within 60 "udevd answers" udevadm control --ping --timeout=5
ln -sfn /srp/srpctl /usr/sbin/srpctl
fabric_pair 1
target 0
back_user d0 16
lun 0 0 d0
guid=$(service_guid)
reader=
undo() { rm -f /usr/sbin/srpctl; [ -z "$reader" ] || kill $reader; }

# Sets `said` and `status` to the output and exit status of srpctl.
srpctl() {
	status=0
	said=$(ini timeout -k 5 100 /srp/srpctl "$@" 2>&1) || status=$?
	say "# srpctl $*: status $status: $said"
}
works() { srpctl "$@"; [ $status = 0 ] || fail "srpctl $*: status $status: $said"; }
says() { [[ $said == *"$1"* ]] || fail "not said: '$1': $said"; }
# attention: lets the first disk receive a unit attention.
attention() { dd if=$disk of=/dev/null bs=4k count=1 iflag=direct status=none || fail "reading $disk"; }
there() { [ -e /sys/bus/scsi/devices/${host#host}:0:0:$1 ]; }
# unmap L: takes logical unit L away at the target.
unmap() {
	local a
	for a in "${tpg[0]}"/acls/*/lun_$1; do rm "$a/l" && rmdir "$a" || fail "cannot unmap LUN $1"; done
	find "${tpg[0]}/lun/lun_$1" -maxdepth 1 -type l -delete
	rmdir "${tpg[0]}/lun/lun_$1" || fail "cannot remove LUN $1"
}

works connect --id-ext $guid --ioc-guid $guid --dest 10.0.0.1:$port
find_hosts
host=${list% }
disk=$(disk $host 0)
quiet $disk

# The target reports new LUNs.
back_null d1 16
lun 0 1 d1
attention
within 20 "the new disk" has_disk $host 1
t0=$SECONDS
back_null d2 16
lun 0 2 d2
attention
sleep 5
! there 2 || fail "rescanned twice in $((SECONDS - t0 + 1)) s"
within 50 "the second new disk" has_disk $host 2
[ $((SECONDS - t0)) -ge 25 ] || fail "rescanned again after $((SECONDS - t0)) s"

# The target reports another size.
rule d0 grow
grown() { [ "$(<"/sys/block/${disk#/dev/}/size")" = 65536 ]; }
sleep 1
attention
within 50 "the new size" grown

# A rescan by srpctl does not wait for a queued one whose interval has not passed.
back_null d3 16
lun 0 3 d3
attention
sleep 2
t0=$SECONDS
works rescan $host
says "is new: LUN 3"
[ $((SECONDS - t0)) -lt 15 ] || fail "a rescan at once took $((SECONDS - t0)) s"

# A disk that is gone stays until --remove removes it.
gone1=$(disk $host 1)
unmap 1
works rescan $host
says "${gone1#/dev/} (LUN 1) is gone at the target"
there 1 || fail "LUN 1 is removed"
sleep 200 <$gone1 & reader=$!
srpctl rescan --remove
[ $status = 7 ] && says "${gone1#/dev/} is open in sleep (process $reader)" ||
	fail "a disk in use: status $status: $said"
there 1 || fail "LUN 1 is removed in use"
kill $reader
reap 20 "the reader" $reader || true
reader=
works rescan --remove
says "${gone1#/dev/} is removed"
! there 1 || fail "LUN 1 stays"
works rescan
says "$host: no change"

# A session without a disk receives no unit attention. Concurrent rescans run one after another.
acl=$(echo ${tpg[0]}/acls/0x0000000000000000*)
acl=${acl/0x0000000000000000/0x0000000000000009}
mkdir $acl || fail "no ACL"
works connect --id-ext $guid --ioc-guid $guid --dest 10.0.0.1:$port --initiator-ext 9
says "no disks"
find_hosts
for h in $list; do [ $h = $host ] || empty=$h; done
mkdir $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "cannot map LUN 0"
all=()
for i in 1 2 3; do ini /srp/srpctl rescan $empty >$tmp/rescan$i 2>&1 & all+=($!); done
for i in 0 1 2; do reap 60 "a rescan" ${all[i]} || fail "rescan: $(cat $tmp/rescan*)"; done
equal "rescans that found it" "$(cat $tmp/rescan* | grep -c 'is new: LUN 0, 32 MiB')" 1
has_disk $empty 0 || fail "no disk of $empty"

works disconnect --all
within 10 "no session" no_hosts
clean
ok
