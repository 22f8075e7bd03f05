#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the directory of the toolchain root: a Debian 13 that builds Rust code for the kernel and runs QEMU,
# independent of the host.
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

make_root() {
	local m; m=$(mirror)
	bootstrap --variant=apt --include="$(IFS=,; echo "${packages[*]}")" trixie "$1" \
		"deb $m trixie main" "deb $m trixie-backports main"
}

step root "2 ${packages[*]}" make_root
