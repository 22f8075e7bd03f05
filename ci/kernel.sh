#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kernel.sh stock|rt|arm64|arm64-16k|arm64-64k|test|rtdebug|kcsan|kasan: prints the build folder of a kernel, for
# modules. `stock` is Debian's kernel, `rt` its flavour with PREEMPT_RT, `arm64` and `arm64-16k` those of arm64 with
# pages of 4 and 16 KiB, with Rust metadata rebuilt from source and .config. The others are our kernels (see fragments),
# with modules installed under modules/ and patches/linux/applied/: fixes for soft RDMA, the target and User-Mode Linux.
# Inside the toolchain root the source is /linux and the build folder /build.
# kernel.sh patched [KERNEL]: prints a folder with the parts of the source that these patches change, with the changes;
# for a kernel of arm64 with those that it needs instead, for `direct` with that of ib_srpt that `make bench-path`
# measures.
. "$(dirname "$0")/lib.sh"

root=$("$top/ci/root.sh" "${1-}")
pick_series
debian=stock
! flavour "${1-}" >/dev/null || debian=$1
linux=$("$top/ci/linux.sh" "$debian")
release=$(cat "$linux/release")
ccache=$cache/ccache
mkdir -p "$ccache"
patched=(arch/um/kernel arch/um/os-Linux arch/um/include/shared drivers/uio
	drivers/infiniband/sw/rxe drivers/infiniband/sw/siw drivers/infiniband/ulp/srpt)

# The headers package has the .config and Module.symvers of the running kernel, but lacks the Rust metadata of the
# kernel crate. modules_prepare makes it. A module has no BTF without vmlinux, so resolve_btfids is not needed.
prepared() {
	local headers=$linux/image/usr/src/linux-headers-$release
	cp "$headers/.config" "$headers/Module.symvers" "$1"
	in_root "$root" "$linux/source:/linux:ro" "$1:/build" "$ccache:/ccache" -- bash -euc '
		cd /linux
		export CCACHE_DIR=/ccache CCACHE_DEPEND=1 KBUILD_BUILD_TIMESTAMP=0
		m() { eval "make O=/build KERNELRELEASE=\$release $flags \"\$@\""; }
		release=$1 jobs=$2 flags=$3
		m olddefconfig
		m CONFIG_DEBUG_INFO_BTF= -j"$jobs" modules_prepare' prepared "$release" "$jobs" "$(make_flags "$debian")"
}

# The fragments (*.config) of a kernel.
fragments() {
	case $1 in
	test) echo common guests qemu test ;;
	rtdebug|kcsan) echo common guests qemu test "$1" ;;
	arm64-64k) echo common guests qemu arm64-64k ;;
	kasan) echo common guests um kasan ;;
	esac
}

# The patches of a kernel of ours, or of the modules that replace those of Debian's.
fixes() {
	case $1 in
	arm64|arm64-16k) echo "$top/patches/linux/pending/rxe-mr-page.patch" ;;
	direct) echo "$top/patches/linux/pending/ib_srpt-direct-completion.patch" ;;
	*) printf '%s\n' "$top"/patches/linux/applied/*.patch ;;&
	kcsan) echo "$top/patches/linux/pending/rust-kcsan.patch" ;;
	arm64-64k) echo "$top/patches/linux/pending/rxe-mr-page.patch" ;;
	esac
}

# patches KERNEL DIRECTORY
patches() {
	local d p
	for d in "${patched[@]}"; do
		mkdir -p "$2/$d"
		cp -r "$linux/source/$d/." "$2/$d"
	done
	for p in $(fixes "$1"); do
		in_root "$root" "$2:/patched" "${p%/*}:/patches:ro" -- bash -euc 'cd /patched; busybox patch -p1 -i "/patches/$1"' \
			patches "${p##*/}"
	done
}

merged() { local f; for f in $(fragments "$1"); do cat "$top/ci/$f.config"; done; }

# ours KERNEL TARGET... FOLDER: builds with its fragments on top of allnoconfig.
ours() {
	local kernel=$1 dir=${*: -1} d binds=()
	merged "$kernel" >"$dir/fragment"
	[ "$kernel" != kcsan ] || patched+=(scripts)
	patches "$kernel" "$dir/patched"
	for d in "${patched[@]}"; do binds+=("$dir/patched/$d:/linux/$d:ro"); done
	in_root "$root" "$linux/source:/linux:ro" "${binds[@]}" "$dir:/build" "$ccache:/ccache" -- bash -euc '
		cd /linux
		export CCACHE_DIR=/ccache CCACHE_DEPEND=1 KBUILD_BUILD_TIMESTAMP=0 KBUILD_BUILD_USER=srp KBUILD_BUILD_HOST=srp
		# Warnings about the source of Debian take clang up to a quarter of the time.
		m() { eval "make O=/build LOCALVERSION=-srp-$kernel KCFLAGS=-w $flags \"\$@\""; }
		kernel=$1 jobs=$2 flags=$3
		shift 3
		m -s allnoconfig
		(cd /build && /linux/scripts/kconfig/merge_config.sh -m .config fragment)
		m -s olddefconfig
		refused=$(grep -E "^CONFIG_" /build/fragment | grep -vxFf /build/.config || true)
		[ -z "$refused" ] || { echo "options without effect:" $refused; exit 1; }
		m -s -j"$jobs" "$@" modules
		m -s INSTALL_MOD_PATH=/build/modules INSTALL_MOD_STRIP=1 modules_install
		rm -rf /build/modules/lib/modules/*/build' ours "$kernel" "$jobs" "$(make_flags "$kernel")" "${@:2:$#-2}"
}
# The inputs of a kernel. Of a patch only the changes count, not the description.
options() {
	{ merged "$1"; sed -s -n '/^diff --git/,$ { /^index /!p }' $(fixes "$1"); } | sha256sum
}

case ${1-} in
stock|rt|arm64|arm64-16k) step "kernel-$1" "2 $linux" prepared ;;
test|rtdebug|kcsan) step "kernel-$1" "4 $linux $(options "$1")" ours "$1" bzImage ;;
arm64-64k) step "kernel-$1" "4 $linux $(options "$1")" ours "$1" Image ;;
patched) step patched "1 $linux $(options "${2-}")" patches "${2-}" ;;
kasan) step kernel-kasan "4 $(make_flags kasan) $linux $(options kasan)" ours kasan vmlinux ;;
*) die "usage: kernel.sh stock|rt|arm64|arm64-16k|arm64-64k|test|rtdebug|kcsan|kasan|patched [KERNEL]" ;;
esac
