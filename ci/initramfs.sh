#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# initramfs.sh KERNEL: prints a directory with `vmlinuz`, `release` and `initramfs.cpio` (busybox, the kernel's modules
# and ci/guest/init). Files that change between runs (our module, the tests) are in a second archive that lab/vm.py
# appends.
. "$(dirname "$0")/lib.sh"

# The modules that we use, of the 4,000 in Debian's kernels; their dependencies are added. The test kernel has only
# modules that we use, so all of them are included.
wanted=(
	virtio_blk virtio-rng ext4 btrfs configfs dm_delay
	sd_mod sg loop ib_core ib_uverbs ib_umad rdma_cm rdma_ucm rdma_rxe ib_srp ib_srpt ib_ipoib
	target_core_mod target_core_iblock target_core_file null_blk scsi_debug dummy veth
	nvme_rdma nvmet_rdma ib_iser ib_isert iscsi_tcp
	sch_netem nf_tables nft_reject_inet tcp_diag dm_multipath dm_round_robin dm_raid
)

pack() {
	in_root "$root" "$modules:/in/lib/modules:ro" "${vmlinuz%/*}:/vmlinuz:ro" "$top/ci:/ci:ro" "$1:/out" \
		-- bash -euo pipefail -c '
		release=$1 flavour=$2 image=$3 busybox=$4
		shift 4
		t=/tmp/t m=lib/modules/$release
		mkdir -p /tmp/all/lib $t/{bin,proc,sys,dev,new,payload} $t/$m
		cp -r /in/lib/modules /tmp/all/lib/modules
		if [ -n "$flavour" ]; then
			depmod -b /tmp/all "$release"
			# Checksums that ext4 and rdma_rxe request by name, if they are modules.
			sums=$(cd /tmp/all/$m && find . -name "crc32*_generic.ko*" -printf "%f\n" | sed "s/[.]ko.*//")
			modprobe -d /tmp/all -S "$release" -a --show-depends "$@" $sums |
				sed -n "s/^insmod \([^ ]*\).*/\1/p" | sort -u > /tmp/list
		else
			find "/tmp/all/$m" -name "*.ko" > /tmp/list
		fi
		while read -r ko; do
			to=$t/$m/${ko#/tmp/all/$m/}
			mkdir -p "${to%/*}"
			case $ko in
			*.xz) unxz < "$ko" > "${to%.xz}" ;;
			*) cp "$ko" "$to" ;;
			esac
		done < /tmp/list
		cp "/tmp/all/$m"/modules.{builtin,builtin.modinfo,order} $t/$m/ 2>/dev/null || true
		depmod -b $t "$release"
		cp "$busybox" $t/bin/busybox
		for a in sh mount modprobe sleep cat cp mkdir echo chroot; do ln -s busybox $t/bin/$a; done
		cp /ci/guest/init $t/init
		(cd $t && find . | sort | cpio -o -H newc --quiet -R 0:0) > /out/initramfs.cpio
		cp "/vmlinuz/$image" /out/vmlinuz
		echo "$release" > /out/release' pack "$release" "$flavour" "${vmlinuz##*/}" "$busybox" "${wanted[@]}"
}

kind=${1-}
root=$("$top/ci/root.sh" "$kind")
pick_series
busybox=/bin/busybox
if [[ $kind == arm64* ]]; then
	busybox=/usr/aarch64-linux-gnu/bin/busybox
	# Debian builds it for amd64 only.
	read -ra wanted <<<"${wanted[*]/scsi_debug}"
fi
flavour=$(flavour "$kind") || flavour=
case $kind in
stock|rt|arm64|arm64-16k)
	linux=$("$top/ci/linux.sh" "$kind")
	release=$(cat "$linux/release")
	modules=$linux/image/usr/lib/modules
	vmlinuz=$modules/$release/vmlinuz
	[ -e "$vmlinuz" ] || vmlinuz=$linux/image/boot/vmlinuz-$release
	;;
arm64-64k|test|rtdebug|kcsan|kasan)
	tree=$("$top/ci/kernel.sh" "$kind")
	modules=$tree/modules/lib/modules
	release=$(ls "$modules")
	case $kind in
	arm64-64k) vmlinuz=$tree/arch/arm64/boot/Image ;;
	kasan) vmlinuz=$tree/vmlinux ;;
	*) vmlinuz=$tree/arch/x86/boot/bzImage ;;
	esac
	;;
*) die "usage: initramfs.sh stock|rt|arm64|arm64-16k|arm64-64k|test|rtdebug|kcsan|kasan" ;;
esac
step "initramfs-$kind" "3 $modules ${wanted[*]} $(sha256sum < "$top/ci/guest/init")" pack
