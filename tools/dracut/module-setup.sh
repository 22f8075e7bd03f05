#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# dracut.modules(7): the targets of /etc/srp/targets.d that have `initramfs = true`, and what logs in to them.

marked() { srpctl targets --root "${dracutsysrootdir:-/}"; }

check() {
	require_binaries srpctl flock || return 1
	[ -n "$(marked)" ] || return 255
}

depends() { echo network; }

# The devices' drivers in the host's own image are those that it has loaded.
installkernel() {
	hostonly='' instmods ib_srp rdma_cm sd_mod
	instmods "=drivers/infiniband" mlx4_core mlx5_core
}

install() {
	local file
	while read -r file; do inst_simple "$file"; done < <(marked)
	inst_multiple srpctl flock
	inst_rules 60-srp.rules
	inst /usr/lib/udev/srp-name
	# shellcheck disable=SC2154 # dracut sets both.
	inst_hook initqueue/online 50 "$moddir/srp-login.sh"
	# shellcheck disable=SC2154
	echo rd.neednet=1 >"$initdir/etc/cmdline.d/50-srp.conf"
}
