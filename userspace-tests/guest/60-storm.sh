#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Many sessions to one target lose their connections at the same moment: the target's port goes and comes. The
# kernel's C driver has its turn first, in the same guest, and is what the Rust driver is held against: all log in at once,
# nobody is slower, no more queue pairs than both ends need, and nothing stays behind.
. "$(dirname "$0")/lib.sh"

begin 600 1800
shapes=("32 1")
[ -z "${LONG-}" ] || shapes=("64 1" "128 1" "32 4")
fabric 1
back_null disk 64
target 0
lun 0 0 disk
# The initiator ports of all sessions beside those that every target knows.
gid $(initiator 0)
most=$(printf '%s\n' "${shapes[@]}" | sort -n | awk 'END {print $1}')
for acl in $(printf "${tpg[0]}/acls/0x%016x${gid:16}\n" $(seq 4 $((most + 3)))); do
	mkdir $acl $acl/lun_0 && ln -s ${tpg[0]}/lun/lun_0 $acl/lun_0/l || fail "cannot make the ACL $acl"
done
unload_srp || fail "rmmod ib_srp: $(cat $tmp/rmmod)"
ours=${SRP_MODULE:-$(modinfo -n ib_srp)}
theirs=/lib/modules/$(uname -r)/kernel/drivers/infiniband/ulp/srp/ib_srp.ko
theirs=$(ls $theirs* | head -n 1)
free_memory() { shrink; awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo; }
clock_ms() { local t=${EPOCHREALTIME/./}; clock=$((t / 1000)); }
disks() { set -- /sys/class/scsi_disk/*; disks=$#; [ -e "$1" ] || disks=0; }
have_disks() { disks; [ $disks = "$1" ]; }
running() {
	local p s
	for p in /sys/class/srp_remote_ports/*/state; do
		read -r s <$p && [ "$s" = running ] || return 1
	done
}
first_reads() {
	local d
	for d in /sys/class/scsi_disk/*/device/block/*; do
		until dd if=/dev/${d##*/} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do sleep 0.2; done
	done
}
# The most queue pairs of both ends, looked at while the file is there.
peak() {
	local n most=0
	while [ -e $tmp/watch ]; do
		n=$(rdma resource show $(initiator 0) | sed -n 's/.* qp \([0-9]*\) .*/\1/p')
		[ "${n:-0}" -le $most ] || { most=$n; echo $most >$tmp/peak; }
		sleep 0.3
	done
}

# turn NAME MODULE SESSIONS CHANNELS: `login`, `back` and `out` in milliseconds, `peak` queue pairs, `kept` KiB.
turn() {
	local n=$3 ch=$4 before t i p
	before=$(free_memory)
	insmod $2 || fail "insmod $2"
	clock_ms; t=$clock
	for ((i = 1; i <= n; i++)); do
		write_login 0 "$(login_string 0 ,initiator_ext=$(printf %x $((i + 3))),ch_count=$ch)" >$tmp/login.$i &
	done
	wait $(jobs -p | grep -vx $watchdog)
	clock_ms; login=$((clock - t))
	for ((i = 1; i <= n; i++)); do
		[ ! -s $tmp/login.$i ] || { dmesg | grep 'ib_srp: .*failed' | tail -n 3; fail "$1: login $i of $n at once: $(cat $tmp/login.$i)"; }
	done
	within 60 "$n disks" have_disks $n
	udevadm settle -t 120
	echo 0 >$tmp/peak
	: >$tmp/watch
	peak &
	echo 0 >${tpg[0]}/enable
	sleep 2
	! running || fail "$1: no session has lost its connection"
	echo 1 >${tpg[0]}/enable
	clock_ms; t=$clock
	within 180 "$1: all $n sessions running" running
	clock_ms; back=$((clock - t))
	timeout 120 bash -c "$(declare -f first_reads); first_reads" || fail "$1: not all disks can be read"
	clock_ms; first=$((clock - t))
	rm $tmp/watch
	wait $!
	peak=$(cat $tmp/peak)
	clock_ms; t=$clock
	for p in /sys/class/srp_remote_ports/*/delete; do echo 1 >$p; done
	within 120 "$1: all hosts gone" no_hosts
	timeout 60 rmmod ib_srp || fail "rmmod $1"
	clock_ms; out=$((clock - t))
	say "$1: $n sessions of $ch: logins at once $login ms, running after $back ms, all read after $first ms, $peak queue pairs, gone in $out ms"
	within 10 "$1: nothing left at the target: $(qps) queue pairs, $idle_qps before" eval '[ "$(qps)" -le $idle_qps ]'
	kept=$((before - $(free_memory)))
	say "$1: $kept KiB less"
}

for shape in "${shapes[@]}"; do
	set -- $shape
	turn C $theirs $1 $2
	c_login=$login c_first=$first
	turn Rust $ours $1 $2
	[ $first -le $c_first ] || fail "$1 sessions of $2: the last read after $first ms, C $c_first ms"
	[ $peak -le $((idle_qps + 2 * $1 * $2)) ] || fail "$1 sessions of $2: $peak queue pairs"
	[ $kept -le 65536 ] || fail "$1 sessions of $2: $kept KiB are gone"
done
load_srp
ok "$kind: ${shapes[*]}: last read after $first ms, C $c_first ms"
