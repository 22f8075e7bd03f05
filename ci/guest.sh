#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest.sh [KERNEL]: prints the directory with root.ext4, the disk that every guest boots from. It is never written. The
# kernel modules, including ours, and the tests get into the guest through the initramfs (initramfs.sh).
. "$(dirname "$0")/lib.sh"

packages=(
	fio iproute2 libiscsi-bin rdma-core ibverbs-providers librdmacm1t64 srptools sg3-utils udev kmod
	opensm infiniband-diags ibverbs-utils rdmacm-utils
	e2fsprogs btrfs-progs util-linux fdisk dmsetup procps psmisc python3 nftables multipath-tools etcd-server openssl
)
# bpftrace takes 270 MB, so only the long set has it.
[ -z "${LONG-}" ] || packages+=(bpftrace)
# udev rules that run several programs for each new disk. They are moved away: only the multipath tests need them.
aside=(55-scsi-sg3_id 58-scsi-sg3_symlink 60-kpartx 60-multipath 68-del-part-nodes)

# make_guest OPTION... DIRECTORY: with these options of mmdebstrap.
make_guest() {
	local m options=("${@:1:$#-1}")
	shift $(($# - 1))
	local tree=$1/root; m=$(mirror)
	bootstrap "${options[@]}" --include="$(IFS=,; echo "${packages[*]}")" \
		trixie "$tree" "deb $m trixie main"
	rm -rf "$tree/var/cache/apt" "$tree/var/lib/apt/lists"
	mkdir -p "$tree/srp" "$tree/lib/modules" "$tree/usr/share/udev-aside"
	for r in "${aside[@]}"; do
		mv "$tree/usr/lib/udev/rules.d/$r.rules" "$tree/usr/share/udev-aside/"
	done
	[[ ${options[*]} != *extract* ]] || configure "$tree"
	: > "$tree/etc/fstab"
	echo guest > "$tree/etc/hostname"
	in_root "$root" "$1:/out" -- mke2fs -q -t ext4 -O ^has_journal -m 0 -d /out/root /out/root.ext4 2G
	rm -rf --one-file-system "$tree"
}

# What tests need of the packages' scripts, which this machine cannot run for another architecture.
configure() {
	local n
	for n in passwd group; do cp "$1/usr/share/base-passwd/$n.master" "$1/etc/$n"; done
	ln -s mawk "$1/usr/bin/awk"
	# mmdebstrap takes minutes to leave them out here.
	rm -rf "$1"/usr/share/{man,doc,locale,info}
	in_root "$root" "$1:/guest" -- python3 -m compileall -q -s /guest /guest/usr/lib/python3 /guest/usr/lib/python3.13
}

root=$("$top/ci/root.sh")
case ${1-} in
arm64*) step guest-arm64 "1 ${packages[*]}" make_guest --variant=extract --architectures=arm64 --include='?essential' ;;
*)
	step guest "1 ${packages[*]}" make_guest --variant=minbase \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*'
	;;
esac
