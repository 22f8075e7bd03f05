#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the directory with root.ext4, the disk that every guest boots from. It is never written. The kernel modules,
# including ours, and the tests get into the guest through the initramfs (initramfs.sh).
. "$(dirname "$0")/lib.sh"

packages=(
	fio iproute2 libiscsi-bin rdma-core ibverbs-providers librdmacm1t64 srptools sg3-utils udev kmod
	opensm infiniband-diags ibverbs-utils rdmacm-utils
	e2fsprogs util-linux fdisk dmsetup procps psmisc python3 nftables multipath-tools etcd-server
)
# bpftrace takes 270 MB, so only the long set has it.
[ -z "${LONG-}" ] || packages+=(bpftrace)
# udev rules that run several programs for each new disk. They are moved away: only the multipath tests need them.
aside=(55-scsi-sg3_id 58-scsi-sg3_symlink 60-kpartx 60-multipath 68-del-part-nodes)

make_guest() {
	local m tree=$1/root; m=$(mirror)
	bootstrap --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		trixie "$tree" "deb $m trixie main"
	rm -rf "$tree/var/cache/apt" "$tree/var/lib/apt/lists"
	mkdir -p "$tree/srp" "$tree/lib/modules" "$tree/usr/share/udev-aside"
	for r in "${aside[@]}"; do
		mv "$tree/usr/lib/udev/rules.d/$r.rules" "$tree/usr/share/udev-aside/"
	done
	: > "$tree/etc/fstab"
	echo guest > "$tree/etc/hostname"
	in_root "$root" "$1:/out" -- mke2fs -q -t ext4 -O ^has_journal -m 0 -d /out/root /out/root.ext4 2G
	rm -rf --one-file-system "$tree"
}

root=$("$top/ci/root.sh")
step guest "1 ${packages[*]}" make_guest
