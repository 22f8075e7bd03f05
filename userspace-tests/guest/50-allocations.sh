#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Each allocation of insmod, a login and a reconnect fails once (without LONG only some of them): the error is
# ENOMEM, nothing leaks, and the session continues.
#
# deadline: 900 3400
# takes: 222
# runs: rxe kasan long kmemleak=on log_buf_len=16M
. "$(dirname "$0")/lib.sh"

begin
[ -e /sys/kernel/debug/failslab ] && [ -e /proc/self/fail-nth ] || skip "this kernel has no fault injection"
rounds 7 1
step=$rounds
# Only the initiator's allocations fail; otherwise the target would leak.
fabric_pair 1
back_null disk 16
target 0
lun 0 0 disk

# sweep STEP WHAT...: the only allowed outcomes are `ok` and those in $allowed.
sweep() {
	local bad began=$SECONDS
	STEP=$1 "${host_of[@]}" python3 "$here/fail-nth.py" "${@:2}" >$tmp/swept 2>&1 || fail "$2: $(cat $tmp/swept)"
	say "$2, each $1.: $(tr '\n' ' ' <$tmp/swept)in $((SECONDS - began)) s"
	bad=$(grep -Ev "^($allowed|allocations|fail[a-z_]*: [0-9]+ in a (login|reset)$)" $tmp/swept)
	[ -z "$bad" ] || fail "$2 ended with $bad"
	[[ $(tail -n 1 $tmp/swept) =~ ^allocations:\ [1-9][0-9]+$ ]] || fail "$2: no allocation was made to fail"
}

# The network namespace has another /sys, without debugfs.
export DEBUGFS=/run/debug
mkdir -p $DEBUGFS
mountpoint -q $DEBUGFS || mount -t debugfs debugfs $DEBUGFS || fail "no debugfs"
python3 "$here/fail-nth.py" prepare || fail "no fault injection"
allowed='ok:|ENOMEM:'
host_of=(ini)
unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
module=/lib/modules/$(uname -r)/updates/ib_srp.ko
sweep $step insmod $module "$(add_target 0)"
load_srp
within 10 "class device" test -e "$(add_target 0)"
# scsi_add_host() ignores errors of dev_set_name(); rxe does not return ENOMEM for a queue pair without a socket; the
# network stack returns ENOBUFS.
allowed+='|EINVAL by|ENFILE by|ENOBUFS by'
others='SCSI host: error -22|queue pair: error -23|.*error -105'
rounds 21 1
sweep $rounds login "$(add_target 0)" "$(login_string 0 ,queue_size=4,ch_count=2)"
logged_errors=$(log_since | grep -Ec "failed: ($others)$")
[ "$(grep -Ec '^(EINVAL|ENFILE|ENOBUFS)' $tmp/swept)" = $logged_errors ] ||
	fail "an error that is not one of these: $(cat $tmp/swept)"
# With every 21st allocation this is a matter of chance.
[ $rounds -gt 1 ] || log_has 'resources for only 1 of 2 channels: error -12' ||
	fail "no login went on without the channel that it had no memory for"
within 10 "nothing of ours" nothing_ours
# Allocations of other threads fail, too: those of the scan, of callbacks, and of the logout.
allowed='fail(slab|_page_alloc), login (ok|ENOMEM|EINVAL|ENFILE|ENOBUFS|EEXIST):'
mark
sweep $step others "$(add_target 0)" "$(login_string 0 ,queue_size=4,ch_count=2)"
# not_memory TEXT: prints the reasons in lines with TEXT that are not in the list.
not_memory() { log_since | sed -n "s/.*$1: //p" | grep -Ev "^($others|.*error -12)$"; }
bad=$(not_memory 'login at [^ ]* failed') || true
[ -z "$bad" ] || fail "a login failed for another reason: $bad"
within 10 "nothing of ours" nothing_ours

login 0 ,queue_size=4,ch_count=2
dev=$(disk "$host" 0)
udevadm settle -t 20
# A failed attempt must not fail commands.
for f in 'dev_loss_tmo 600' 'fast_io_fail_tmo 500' 'reconnect_delay 1'; do
	echo "${f#* }" >"/sys/class/srp_remote_ports/port-${host#host}:1/${f% *}" || fail "cannot set $f"
done
allowed='fail(slab|_page_alloc), reset (ok|EIO):'
mark
host_of=()
sweep $step reconnect "$host" "$dev"
bad=$(not_memory 'reconnect failed') || true
[ -z "$bad" ] || fail "a reconnect attempt failed for another reason: $bad"
equal "state of the disk" "$(cat /sys/block/${dev#/dev/}/device/state)" running
logout "$host"
clean
ok "$kind"
