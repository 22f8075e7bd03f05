#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# dracut.modules(7): adds the targets in /etc/srp/targets.d with `initramfs = true`, and the tools to log in to them and
# to the target that the firmware has booted this machine from.

marked() { srpctl targets --root "${dracutsysrootdir:-/}" "$@"; }

# If a check fails, dracut skips the module and continues, so install must report errors.
check() {
	local files
	require_binaries srpctl flock || return 1
	compgen -G "/sys/firmware/acpi/tables/sBFT*" >/dev/null && return 0
	files=$(marked 2>/dev/null) && [ -z "$files" ] && return 255
	return 0
}

depends() { echo network; }

# Hostonly mode would add only the device drivers that the host has loaded.
installkernel() {
	hostonly='' instmods ib_srp rdma_cm sd_mod
	instmods "=drivers/infiniband" mlx4_core mlx5_core
}

install() {
	local files
	# shellcheck disable=SC2154 # dracut sets it.
	files=$(marked --into "$initdir") || { dfatal "srp: the targets that log in at boot are not known"; exit 1; }
	inst_multiple srpctl flock
	inst_rules 60-srp.rules
	inst /usr/lib/udev/srp-name
	# shellcheck disable=SC2154 # dracut sets both.
	inst_hook initqueue/online 50 "$moddir/srp-login.sh"
	inst_hook initqueue/settled 50 "$moddir/srp-firmware.sh"
	# shellcheck disable=SC2154
	[ -z "$files" ] || echo rd.neednet=1 >"$initdir/etc/cmdline.d/50-srp.conf"
}
