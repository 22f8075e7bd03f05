#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# root.sh [KERNEL]: prints the directory of the toolchain root: a Debian 13 that builds Rust code for the kernel and
# runs QEMU, independent of the host. The kernels of arm64 have a copy of it with these packages in addition.
. "$(dirname "$0")/lib.sh"

packages=(
	# the kernel and its Rust
	gcc g++ make bc bison flex libelf-dev libssl-dev dwarves kmod cpio rsync xz-utils zstd python3
	rustc rust-src rustfmt rust-clippy bindgen clang lld llvm ccache
	# the packages
	dpkg-dev debhelper dh-dkms lintian man-db shellcheck rpm
	librust-clap-dev librust-clap-complete-dev librust-clap-mangen-dev librust-comfy-table-dev librust-nix-dev
	librust-ratatui-dev librust-serde-dev librust-serde-json-dev librust-tempfile-dev librust-thiserror-dev
	librust-toml-dev
	# tests on the host, guests
	cargo ca-certificates libibverbs-dev librdmacm-dev qemu-system-x86 e2fsprogs virtme-ng busybox-static
)
# libc6-dev has what the linker starts a program with: gcc-aarch64-linux-gnu only recommends its own.
arm64=(
	gcc-aarch64-linux-gnu qemu-system-arm libstd-rust-dev:arm64 libc6-dev:arm64 libibverbs-dev:arm64 librdmacm-dev:arm64
)

make_root() {
	local m; m=$(mirror)
	bootstrap --variant=apt --include="$(IFS=,; echo "${packages[*]}")" trixie "$1" \
		"deb $m trixie main" "deb $m trixie-backports main"
}

# busybox is for initramfs.sh: that of this machine's architecture is installed already. qemu-user has 40 programs.
make_arm64() {
	cp -a "$root/." "$1"
	in_root "$1" -- bash -euc '
		dpkg --add-architecture arm64
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
		cd /tmp
		apt-get download -qq busybox-static:arm64 qemu-user
		dpkg-deb --fsys-tarfile busybox-static_*.deb | tar -x -C /usr/aarch64-linux-gnu --strip-components=2 ./usr/bin/busybox
		dpkg-deb --fsys-tarfile qemu-user_*.deb | tar -x -C / ./usr/bin/qemu-aarch64
		apt-get clean' make_arm64 "${arm64[@]}"
}

root=$(step root "2 ${packages[*]}" make_root)
case ${1-} in
arm64*) step root-arm64 "2 $root ${arm64[*]}" make_arm64 ;;
*) echo "$root" ;;
esac
