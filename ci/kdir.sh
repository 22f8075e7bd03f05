#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kdir.sh check DIR: says in one sentence why the module cannot be built in DIR
# with this machine's tools, if so.
# kdir.sh make: fills build/kdir with the tree of this machine's Debian kernel
# and its Rust metadata. Where this machine does not run such a kernel, it
# prepares Debian's in the toolchain root, for `make KDIR=stock`.
here=$(cd "$(dirname "$0")/.." && pwd)
set -euo pipefail

die() { printf '%s\n' "$*" >&2; exit 1; }

has_rust() {
	grep -qx CONFIG_RUST=y "$1/.config" ||
		die "The kernel of $1 was built without CONFIG_RUST=y, which this module needs: with trixie-backports in the sources of apt, run \`apt install linux-image-amd64/trixie-backports\`, boot that kernel, and go on as README says; or, for Debian 13's own kernel, \`make KDIR=stock\` with SERIES=6.12 in the environment."
}

check() {
	local k=$1 want have
	[ -e "$k/Makefile" ] && [ -e "$k/.config" ] ||
		die "$k is not a prepared kernel tree (no Makefile or no .config there): name one with KDIR=, or use KDIR=stock."
	has_rust "$k"
	{ [ -e "$k/rust/libcore.rmeta" ] && [ -e "$k/rust/libkernel.rmeta" ] && [ -e "$k/rust/libmacros.so" ]; } ||
		die "$k lacks the Rust metadata of its kernel (rust/libkernel.rmeta, rust/libmacros.so), which kernel packages do not ship: run \`make kdir\`, then \`make\` again."
	command -v rustc >/dev/null || die "There is no rustc here: install Debian 13's rustc, rust-src and bindgen, or use KDIR=stock, which brings its own."
	# What made the metadata is written in it; .config may be of another build.
	want=$(grep -aom1 'rustc [0-9][^)]*)\( ([^)]*)\)\?' "$k/rust/libcore.rmeta") || die "$k/rust/libcore.rmeta does not say which rustc made it: make the metadata again."
	have=$(rustc --version)
	[ "$want" = "$have" ] ||
		die "The Rust metadata of $k is of $want, but this machine's compiler is $have, and Rust crates of different compilers do not fit: put the kernel's rustc first in PATH, or use KDIR=stock."
}

# Debian's linux-headers has .config and Module.symvers, linux-source the rest.
native() {
	local release=$1 headers=$2 tarball=$3 to=$here/build/kdir
	rm -rf "$to"
	mkdir -p "$here/build/linux" "$to"
	tar -xf "$tarball" -C "$here/build/linux" --strip-components=1
	cp "$headers/.config" "$headers/Module.symvers" "$to"
	make -C "$here/build/linux" O="$to" rustavailable ||
		die "This machine cannot build Rust for the kernel (see above); Debian 13's rustc, rust-src, bindgen and clang can."
	make -C "$here/build/linux" O="$to" KERNELRELEASE="$release" olddefconfig
	make -C "$here/build/linux" O="$to" KERNELRELEASE="$release" -j"$(nproc)" modules_prepare
	check "$to"
	echo "prepared: build/kdir, for $release; make uses it by itself"
}

case ${1-} in
check) check "$2" ;;
make)
	release=${RELEASE:-$(uname -r)}
	headers=/usr/src/linux-headers-$release
	series=$(cut -d. -f1,2 <<<"$release")
	tarball=/usr/src/linux-source-$series.tar.xz
	[ ! -e "$headers/.config" ] || has_rust "$headers"
	if [ -e "$headers/.config" ] && [ -e "$tarball" ]; then
		native "$release" "$headers" "$tarball"
	elif grep -qs '^ID=debian' /etc/os-release && [[ $release == *+deb13* ]]; then
		die "The tree is made from packages linux-headers-$release and linux-source-$series: install both and run \`make kdir\` again."
	else
		"$here/ci/kernel.sh" stock >/dev/null
		echo "prepared: Debian's kernel in the toolchain root; build for it with \`make KDIR=stock\`"
	fi
	;;
*) die "usage: kdir.sh check DIR|make" ;;
esac
