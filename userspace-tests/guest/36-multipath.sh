#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Two paths to one disk under dm-multipath with Debian's multipathd. The paths fail and return in turn, also with the
# configuration of README. Above dm no errors are visible; some I/O only takes longer. LONG: 60 failures.
#
# deadline: 500 2400
# takes: 120
# runs: rxe kasan fast long
# runs: rxe rt long LONG=
# runs: siw kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"
. "$here/multipath.sh"

failures=${LONG:+60}
failures=${failures:-4}
begin
fast_io_fail=1 dev_loss=600
testbed 2
multipathd_for_tests
multipathd_on

attach 0; host0=$host
attach 1; host1=$host
map_of_two
dev=
# multipathd's path checkers would have a command in flight while events are enabled or disabled.
pause() { kill -STOP $(pgrep -x multipathd); sleep 1; }
go_on() { kill -CONT $(pgrep -x multipathd); }
pause
listen send done lost
go_on
journal /dev/mapper/$map

ways=(target switch)
[ $kind = rxe ] || ways+=(cable)
broken() {
	case $2 in
	target) target_off $1 ;;
	switch) hole both $1 ;;
	cable) cable down $1 ;;
	esac
}
mended() {
	case $2 in
	target) target_on $1 ;;
	switch) heal $1 ;;
	cable) cable up $1 ;;
	esac
}
slowest_fail=0 slowest_back=0
for ((n = 0; n < failures; n++)); do
	i=$((n % 2)) way=${ways[n / 2 % ${#ways[@]}]}
	lose $way 10 0 broken $i $way
	[ $waited -le $slowest_fail ] || slowest_fail=$waited
	regain $way 10 mended $i $way
	[ $took -le $slowest_back ] || slowest_back=$took
done
alive 1
errors
[ $errors = 0 ] || fail "$errors errors above dm"
settle
udevadm settle -t 20
pause
told ended lost=
go_on
unlisten

# A reservation applies to both paths.
mkdir -p /var/target/pr
persist() { timeout 60 mpathpersist "$@" /dev/mapper/$map >$tmp/pr 2>&1 || fail "mpathpersist $*: $(cat $tmp/pr)"; }
persist --out --register --param-sark=0x5e1
persist --in --read-keys
equal "keys of paths" "$(grep -c '0x5e1$' $tmp/pr)" 2
persist --out --reserve --param-rk=0x5e1 --prout-type=5
persist --in --read-reservation
grep -q 'Write Exclusive, registrants only' $tmp/pr || fail "no reservation: $(cat $tmp/pr)"
dd if=/dev/zero of=/dev/mapper/$map bs=4k count=16 oflag=direct status=none ||
	fail "the holder of the reservation cannot write"
persist --out --release --param-rk=0x5e1 --prout-type=5
persist --out --register --param-rk=0x5e1 --param-sark=0
persist --in --read-keys
! grep -q '0x5e1$' $tmp/pr || fail "keys are left: $(cat $tmp/pr)"
multipathd_off
logout $host0
logout $host1

# Use the multipath.conf and the timeouts of README; other settings stay unchanged. The C driver has no keep_alive and
# relies on the transport.
cat >/etc/multipath.conf <<-EOF
	defaults {
		find_multipaths yes
	}
	overrides {
		no_path_retry 12
	}
EOF
parameters=/sys/module/ib_srp/parameters
before=("$(<$parameters/fast_io_fail_tmo)" "$(<$parameters/dev_loss_tmo)")
echo 600 >$parameters/dev_loss_tmo && echo 5 >$parameters/fast_io_fail_tmo || fail "cannot set the timeouts of README"
for i in 0 1; do
	login $i
	disk $host 0 >/dev/null
done
echo ${before[0]} >$parameters/fast_io_fail_tmo && echo ${before[1]} >$parameters/dev_loss_tmo
multipathd_on
map_of_two
say "$(dmsetup table $map)"
journal /dev/mapper/$map
detection=15
rust_driver || detection=60
lose switch 2 $((detection + 5)) broken 0 switch
[ $waited -gt 5000000 ] || fail "no I/O was on the path that was lost"
alive 1
errors
[ $errors = 0 ] || fail "$errors errors above dm"
settle
heal 0
multipathd_off
ok "$kind: $failures failures, slowest $(ms $slowest_fail), back in $(ms $slowest_back); by README $(ms $waited)"
