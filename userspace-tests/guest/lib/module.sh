# SPDX-License-Identifier: GPL-2.0
# The initiator's module.

is_rust=

# Ours is out of tree; SRP_MODULE names its file if it is not installed.
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
# Also while it is unloaded.
rust_driver() { [ -n "$is_rust" ] || grep -q O /sys/module/ib_srp/taint 2>/dev/null; }
driver() { if rust_driver; then echo "the Rust ib_srp"; else echo "the kernel's C ib_srp"; fi; }
loaded() { [ -d /sys/module/"$1" ]; }
