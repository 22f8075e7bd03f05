#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kernel.sh stock|test: prints the build folder of a kernel that modules can be
# built against. `stock` is Debian's own kernel, its Rust metadata made again
# from its source and .config; `test` is our debug kernel (test.config), with
# its modules installed under modules/.
# Inside the toolchain root the source is /linux and the build folder /build.
. "$(dirname "$0")/lib.sh"

root=$("$top/ci/root.sh")
linux=$("$top/ci/linux.sh")
release=$(cat "$linux/release")
ccache=$cache/ccache
mkdir -p "$ccache"

# The headers package has the .config and Module.symvers of the running kernel,
# but not what rustc needs of the kernel crate; modules_prepare makes it.
stock() {
	local headers=$linux/image/usr/src/linux-headers-$release
	cp "$headers/.config" "$headers/Module.symvers" "$1"
	in_root "$root" "$linux/source:/linux:ro" "$1:/build" "$ccache:/ccache" -- bash -euc '
		cd /linux
		export CCACHE_DIR=/ccache KBUILD_BUILD_TIMESTAMP=0
		make O=/build KERNELRELEASE="$1" CC="ccache gcc" olddefconfig
		make O=/build KERNELRELEASE="$1" CC="ccache gcc" -j"$2" modules_prepare' stock "$release" "$jobs"
}

testing() {
	cp "$top/ci/test.config" "$1/fragment"
	in_root "$root" "$linux/source:/linux:ro" "$1:/build" "$ccache:/ccache" -- bash -euc '
		cd /linux
		export CCACHE_DIR=/ccache KBUILD_BUILD_TIMESTAMP=0 KBUILD_BUILD_USER=srp KBUILD_BUILD_HOST=srp
		m() { make O=/build CC="ccache gcc" LOCALVERSION=-srp-test "$@"; }
		m -s allnoconfig
		(cd /build && /linux/scripts/kconfig/merge_config.sh -m .config fragment)
		m -s olddefconfig
		refused=$(grep -E "^CONFIG_" /build/fragment | grep -vxFf /build/.config || true)
		[ -z "$refused" ] || { echo "options of test.config without effect:" $refused; exit 1; }
		m -s -j"$1" bzImage modules
		m -s INSTALL_MOD_PATH=/build/modules INSTALL_MOD_STRIP=1 modules_install
		rm -rf /build/modules/lib/modules/*/build' testing "$jobs"
}

case ${1-} in
stock) step kernel-stock "1 $linux" stock ;;
test) step kernel-test "1 $linux $(sha256sum < "$top/ci/test.config")" testing ;;
*) die "usage: kernel.sh stock|test" ;;
esac
