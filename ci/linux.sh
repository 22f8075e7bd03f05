#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# linux.sh [stock|rt|arm64|arm64-16k]: prints the directory with Debian's unpacked packages of a kernel (default:
# `stock`) of a series (SERIES; `next` is that of `series.sh next`): source/ (linux-source, shared by all flavours),
# image/ (headers, and except for `next` the kernel and its modules), and `release`, the kernel's release.
. "$(dirname "$0")/lib.sh"

kernel=${1:-stock}
flavour=$(flavour "$kernel") || die "usage: linux.sh [stock|rt|arm64|arm64-16k]"
root=$("$top/ci/root.sh" "$kernel")
pick_series

# fetch SERIES FLAVOUR RELEASE [SOURCE-PACKAGE=VERSION] DIRECTORY
fetch() {
	in_root "$root" "${*: -1}:/out" -- bash -euc "$apt_sources"'
		use_sources "$1"
		flavour=$2 release=$3
		cd /out
		apt-get $apt update -qq
		want=("${@:4:$#-4}")
		kinds="image binary modules headers"
		[ "$1" != next ] || kinds=headers
		for p in $kinds; do
			! apt-cache $apt show "linux-$p-$release" >/dev/null 2>&1 || want+=("linux-$p-$release")
		done
		common=linux-headers-${release%-"$flavour"}-common
		! apt-cache $apt show "$common" >/dev/null 2>&1 || want+=("$common")
		apt-get $apt download "${want[@]}"
		exec {turn}>&-
		mkdir image
		for d in *.deb; do dpkg-deb -x "$d" image; done
		if [ -e image/usr/src/linux-source-*.tar.xz ]; then
			mkdir source
			tar -xf image/usr/src/linux-source-*.tar.xz -C source --strip-components=1
		fi
		rm -rf ./*.deb image/usr/src/linux-source-*
		echo "$release" > release' fetch "$@"
}

# flavoured STOCK RELEASE DIRECTORY: fetches another flavour of the kernel in the directory STOCK.
flavoured() {
	fetch "$SERIES" "$flavour" "$2" "$3"
	[ -e "$3/image/usr/src/linux-headers-$2/.config" ] || die "Debian has no flavour $flavour of Linux $SERIES"
	ln -s "$1/source" "$3/source"
}

if [ "$kernel" != stock ]; then
	stock=$("$0")
	release=$(cat "$stock/release")
	step "linux-$flavour" "1 $stock" flavoured "$stock" "${release%-"$(flavour stock)"}-$flavour"
	exit
fi
if [ "$SERIES" = next ]; then
	packages=$("$top/ci/series.sh" next)
	[ -n "$packages" ] || die "unstable and experimental have no newer kernel than trixie-backports"
else
	packages=$("$top/ci/series.sh" | grep "^$SERIES ") || packages=$("$top/ci/series.sh" stable | grep "^$SERIES ") ||
		die "trixie-backports has no kernel series $SERIES; it has $("$top/ci/series.sh" | cut -d' ' -f1 | paste -sd' ')"
fi
read -r series release version <<<"$packages"
step linux "4 $SERIES $packages $root" fetch "$SERIES" "$flavour" "$release" "linux-source-$series=$version"
