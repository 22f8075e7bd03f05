#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# multipath.sh: prints a directory with Debian packages of multipath-tools with patches/multipath-tools, built from the
# newest source in the archive. The file `version` in it has the version of that source. The patch, which is for
# upstream, must apply to every version in the archive.
. "$(dirname "$0")/lib.sh"

suites="sid forky trixie bookworm"

make_multipath() {
	local to=$1 m packages; m=$(mirror)
	packages=build-essential,debhelper,dpkg-dev,pkgconf,systemd-dev,libaio-dev,libcmocka-dev,libdevmapper-dev
	packages+=,libedit-dev,libjson-c-dev,libmount-dev,libsystemd-dev,libudev-dev,liburcu-dev
	bootstrap --variant=apt --include=$packages trixie "$to/tree" "deb $m trixie main"
	in_root "$to/tree" "$top/patches/multipath-tools:/patches:ro" "$to:/out" -- bash -euc '
		mkdir -p /tmp/build /tmp/apt/lists/partial
		cd /tmp/build
		for suite in $2; do echo "deb-src $1 $suite main"; done >/tmp/apt/list
		apt="-o Dir::Etc::SourceList=/tmp/apt/list -o Dir::Etc::SourceParts=/nonexistent -o Dir::State::Lists=/tmp/apt/lists"
		apt="$apt -o Dir::Cache=/tmp/apt -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root"
		apt-get $apt update -qq
		# Before 0.10 the name of the page has no `.in`.
		patches() {
			local page=multipath/multipath.conf.5
			if [ -e "$page.in" ]; then cat /patches/*.patch; else sed "s|$page.in|$page|" /patches/*.patch; fi |
				patch -p1 --fuzz=0 "$@"
		}
		newest=
		for version in $(apt-cache $apt showsrc multipath-tools | sed -n "s/^Version: //p" | sort -Vru); do
			apt-get $apt source -qq multipath-tools="$version" || { echo "the archive does not give out $version"; continue; }
			cd "multipath-tools-${version%-*}"
			patches --dry-run
			cd ..
			newest=${newest:-$version}
		done
		[ -n "$newest" ]
		cd "multipath-tools-${newest%-*}"
		patches
		sed -i "1s/(.*)/($newest+srp)/" debian/changelog
		echo "$newest" >/out/version
		# The library has another name in this release. Its dependency is computed from the programs.
		sed -i "/^ *libaio1,\$/d" debian/control
		# A compiler that is newer than the source has additional warnings.
		DEB_CFLAGS_APPEND=-Wno-error DEB_BUILD_OPTIONS="nocheck noautodbgsym" dpkg-buildpackage -b -d -us -uc
		cp ../multipath-tools_*.deb ../kpartx_*.deb /out' multipath "$m" "$suites"
	rm -rf --one-file-system "$to/tree"
}

step multipath "3 $suites $(date +%Y-%m) $(cat "$top"/patches/multipath-tools/*)" make_multipath
