# SPDX-License-Identifier: GPL-2.0
# The initiator's module.

is_rust=

# Our module is out of tree; SRP_MODULE names its file if it is not installed.
load_srp() {
	if [ -n "${SRP_MODULE-}" ]; then
		modprobe -a scsi_transport_srp rdma_cm ib_cm 2>/dev/null
		insmod "$SRP_MODULE" "$@" || fail "insmod $SRP_MODULE $* failed"
	else
		modprobe ib_srp "$@" || fail "modprobe ib_srp $* failed"
	fi
	if rust_driver; then is_rust=1; fi
}
unload_srp() { timeout 60 rmmod ib_srp 2>$tmp/rmmod; }
# Returns whether the driver is ours. Also works while it is unloaded.
rust_driver() { [ -n "$is_rust" ] || grep -q O /sys/module/ib_srp/taint 2>/dev/null; }
# use_driver ours|c [PARAMETER=VALUE]...: switches to that module. At the end of the test it is ours again.
exchanged=
use_driver() {
	local c=(/lib/modules/$(uname -r)/kernel/drivers/infiniband/ulp/srp/ib_srp.ko*)
	# udev may still have a disk open.
	! loaded ib_srp || within 20 "rmmod ib_srp" unload_srp
	is_rust=
	exchanged=
	[ $1 = c ] || { load_srp "${@:2}"; return; }
	exchanged=1
	insmod "${c[0]}" "${@:2}" || fail "insmod ${c[0]}"
	! rust_driver || fail "${c[0]} is ours"
}
# both_drivers: sets `drivers` to ours and C, or to the only one of a guest with the C driver.
both_drivers() { drivers=c; ! rust_driver || drivers="ours c"; }
ours_again() {
	[ -n "$exchanged" ] || return 0
	# Wait until nothing holds a reference.
	! loaded ib_srp || timeout 30 bash -c 'until rmmod ib_srp; do sleep 0.2; done'
	is_rust= exchanged=
	load_srp
}
realtime() { [[ $(uname -v) == *PREEMPT_RT* ]]; }
driver() { if rust_driver; then echo "the Rust ib_srp"; else echo "the kernel's C ib_srp"; fi; }
loaded() { [ -d /sys/module/"$1" ]; }
