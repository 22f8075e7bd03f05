#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make deb: builds the Debian packages of the commit in build/deb, runs lintian, and makes the folder an apt repository,
# which SIGN=KEYID signs. deb.sh VERSION DIRECTORY: the same with another version, in DIRECTORY. LONG=1 or KERNEL=arm64:
# the packages for arm64, too, in build/deb-arm64.
. "$(dirname "$0")/lib.sh"

version=${1-} to=${2:-$top/build/deb}

unpack() {
	git -C "$top" archive --prefix=source/ HEAD | tar -x -C "$1"
	[ -z "$version" ] || sed -i "1s/(.*)/($version)/" "$1/source/debian/changelog"
	# Files from git archive have the date of the commit. Touch them so that cargo does not reuse crates of another
	# commit.
	find "$1/source" -name '*.rs' -exec touch {} +
	# For kernels without Rust.
	"$top/tools/kdir" crate "$linux/source" "$1/source/crate"
	mkdir -p "$cache/cargo"
}

build() {
	unpack "${*: -1}"
	in_root "$1" "${*: -1}:/out" "$cache/cargo:/cargo" "$crates:/crates:ro" ${programs:+"$programs:/programs:ro"} \
		-- env ${programs:+BUILT=/programs} bash -euc '
		cd /out/source
		export CARGO_TARGET_DIR=/cargo/${1##*/} CRATES=/crates
		shellcheck -S warning tools/srplat tools/systemd/srp-generator tools/initramfs/* tools/dracut/* \
			tools/udev/srp-name tools/kdir tools/lio-example tools/renew-initramfs debian/tests/login \
			debian/*.postinst debian/*.prerm debian/*.postrm rpm/compare storage/manual
		dpkg-buildpackage -d -us -uc
		lintian --allow-root --fail-on error,warning ../*.changes
		# What rpm does not know is installed, too.
		make rpm RPMFLAGS=--nodeps
		for deb in ../*.deb; do
			name=${deb##*/}
			rpm/compare "$deb" build/rpm/RPMS/*/"${name%%_*}"-*.rpm
		done' build "$1"
	rm -rf "${*: -1}/source"
}

# build_arm64 ROOT PACKAGES DIRECTORY: the programs in PACKAGES, which run here, make the manual pages.
build_arm64() {
	unpack "$3"
	in_root "$1" "$2:/native:ro" "$3:/out" "$cache/cargo:/cargo" "$crates:/crates:ro" -- env $(cross arm64) bash -euc '
		for deb in /native/*_amd64.deb; do dpkg-deb -x "$deb" /tmp/native; done
		cd /out/source
		export CARGO_TARGET_DIR=/cargo/${1##*/} CRATES=/crates NATIVE=/tmp/native/usr/sbin DEB_BUILD_OPTIONS=nocheck
		dpkg-buildpackage -d -us -uc -b -aarm64
		lintian --allow-root --fail-on error,warning ../*.changes
		files() { dpkg-deb -c "$1" | tr -s " " | cut -d" " -f1,6-; }
		for deb in ../*_arm64.deb; do
			name=${deb##*/}
			diff <(files "/native/${name/arm64/amd64}") <(files "$deb")
		done' build_arm64 "$1"
	rm -rf "$3/source"
}

git -C "$top" diff --quiet HEAD || say "what is not committed is not in the packages"
root=$("$top/ci/root.sh")
linux=$(SERIES='' "$top/ci/linux.sh")
manifests=$(cat "$top"/storage/Cargo.toml "$top"/storage/*/Cargo.toml | sha256sum)
crates=$(step crates "1 $manifests" "$top/storage/run" crates)
# The programs of the guest tests, if they are of this commit. The long set builds them as a user does.
programs=
[ -n "${LONG-}$version" ] || ! git -C "$top" diff --quiet HEAD || programs=$("$top/ci/tools.sh")
debs=$(step deb "5 $root $linux $version $programs $(git -C "$top" rev-parse 'HEAD^{tree}')" build "$root")
rm -rf "$to"
mkdir -p "$to"
cp "$debs"/* "$to"
"$top/ci/repository.sh" test
"$top/ci/repository.sh" "$to"
"$top/ci/repository.sh" check "$to"
if [[ -n ${LONG-} || ${KERNEL-} = arm64 ]] && [ -z "$version" ]; then
	arm64=$("$top/ci/root.sh" arm64)
	debs=$(step deb-arm64 "1 $arm64 $debs" build_arm64 "$arm64" "$debs")
	rm -rf "$to-arm64"
	cp -r "$debs" "$to-arm64"
	"$top/ci/repository.sh" "$to-arm64"
	"$top/ci/repository.sh" check "$to-arm64"
fi
du -h "$to"/*.deb
