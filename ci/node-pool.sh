#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node-pool.sh DIRECTORY: prints the directory with pool/, the packages that the long form of node.sh installs besides
# ours, which are in DIRECTORY (ci/node/pool).
. "$(dirname "$0")/lib.sh"

# For the tests.
extra=(autopkgtest fio rdma-core opensm multipath-tools dracut-core dracut-network kdump-tools makedumpfile ovmf
	python3-virt-firmware shim-signed grub-efi-amd64-signed dosfstools mtools)

make_pool() {
	local to=$1
	mkdir -p "$to/pool"
	cp -a "$base/tree" "$to/tree"
	in_root "$to/tree" "$to/pool:/pool" "$ours:/testbed:ro" "$top/ci/node:/node:ro" -- bash /node/pool "${kernels[@]}" \
		"${extra[@]}"
	rm -rf --one-file-system "$to/tree"
}

ours=$(realpath -e "$1")
base=$("$top/ci/node-base.sh")
read -r series release version < <("$top/ci/series.sh" | sed -n 1p)
read -r old_series old_release old_version < <("$top/ci/series.sh" | sed -n 2p) || true
kernels=("$series" "$release" "$version" "$old_series" "$old_release" "$old_version")
step node-pool "3 $base ${kernels[*]} ${extra[*]} $(dpkg-deb -f "$ours"/ib-srp-rs-dkms_*.deb Depends Recommends)" \
	make_pool
