#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with Debian's kernel packages of one series (SERIES; `next` is that of `series.sh next`),
# unpacked: source/ (linux-source), image/ (headers, and but for `next` the stock kernel and its modules), and
# `release`, the stock kernel's release.
. "$(dirname "$0")/lib.sh"

root=$("$top/ci/root.sh")
pick_series

fetch() {
	in_root "$root" "${*: -1}:/out" -- bash -euc "$apt_sources"'
		use_sources "$1"
		series=$2 release=$3 version=$4
		cd /out
		apt-get $apt update -qq
		want=("linux-source-$series=$version")
		kinds="image binary modules headers"
		[ "$1" != next ] || kinds=headers
		for p in $kinds; do
			! apt-cache $apt show "linux-$p-$release" >/dev/null 2>&1 || want+=("linux-$p-$release")
		done
		common=linux-headers-${release%-amd64}-common
		! apt-cache $apt show "$common" >/dev/null 2>&1 || want+=("$common")
		apt-get $apt download "${want[@]}"
		mkdir image source
		for d in *.deb; do dpkg-deb -x "$d" image; done
		tar -xf image/usr/src/linux-source-*.tar.xz -C source --strip-components=1
		rm -rf ./*.deb image/usr/src/linux-source-*
		echo "$release" > release' fetch "$@"
}

if [ "$SERIES" = next ]; then
	packages=$("$top/ci/series.sh" next)
	[ -n "$packages" ] || die "unstable and experimental have no newer kernel than trixie-backports"
else
	packages=$("$top/ci/series.sh" | grep "^$SERIES ") || packages=$("$top/ci/series.sh" stable | grep "^$SERIES ") ||
		die "trixie-backports has no kernel series $SERIES; it has $("$top/ci/series.sh" | cut -d' ' -f1 | paste -sd' ')"
fi
read -r series release version <<<"$packages"
step linux "4 $SERIES $packages $root" fetch "$SERIES" "$series" "$release" "$version"
