#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with Debian's kernel packages of one series (SERIES, 7.2),
# unpacked: source/ (linux-source), image/ (the stock kernel, its modules and
# headers), and `release`, the stock kernel's release.
. "$(dirname "$0")/lib.sh"

root=$("$top/ci/root.sh")

fetch() {
	in_root "$root" "$1:/out" -- bash -euc '
		series=$1
		cd /out
		apt-get update -qq
		image=$(apt-cache depends linux-image-amd64/trixie-backports 2>/dev/null | sed -n "s/.*Depends: \(linux-image-$series\.[^ ]*\)/\1/p" | head -1)
		[ -n "$image" ] || image=$(apt-cache search --names-only "^linux-image-$series\.[0-9.]+\+deb13-amd64$" | sort -V | tail -1 | cut -d" " -f1)
		[ -n "$image" ] || { echo "trixie-backports has no linux-image-$series.*+deb13-amd64; set SERIES to a series that it has:"; apt-cache search --names-only "^linux-image-[0-9.]+\+deb13-amd64$"; exit 1; }
		release=${image#linux-image-}
		want=("linux-source-$series" "$image")
		for p in linux-binary linux-modules linux-headers; do
			! apt-cache show "$p-$release" >/dev/null 2>&1 || want+=("$p-$release")
		done
		common=linux-headers-${release%-amd64}-common
		! apt-cache show "$common" >/dev/null 2>&1 || want+=("$common")
		apt-get download "${want[@]}"
		mkdir image source
		for d in *.deb; do dpkg-deb -x "$d" image; done
		tar -xf image/usr/src/linux-source-*.tar.xz -C source --strip-components=1
		rm -rf ./*.deb image/usr/src/linux-source-*
		echo "$release" > release' fetch "$series"
}

step linux "3 $series $root" fetch
