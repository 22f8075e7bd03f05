#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# repository.sh FOLDER: makes the packages in FOLDER an apt repository. SIGN=KEYID signs it with that key of gpg, whose
# public part becomes FOLDER/srp-rs.asc. repository.sh check FOLDER: checks that apt offers these packages as upgrades.
# repository.sh test: checks both with a package made up for it.
. "$(dirname "$0")/lib.sh"

index() {
	host_needs apt-utils
	cd "$1"
	rm -f Packages Release Release.gpg InRelease srp-rs.asc
	apt-ftparchive packages . >Packages.new
	mv Packages.new Packages
	apt-ftparchive -o APT::FTPArchive::Release::Origin=srp-rs release . >../Release.$$
	mv ../Release.$$ Release
	[ -n "${SIGN-}" ] || return 0
	host_needs gpg gpg-agent
	gpg --batch --yes --local-user "$SIGN" --clearsign --output InRelease Release
	gpg --batch --yes --local-user "$SIGN" --detach-sign --armor --output Release.gpg Release
	gpg --armor --export "$SIGN" >srp-rs.asc
}

# upgrades FOLDER VERSION: prints what apt would install of the packages in FOLDER if VERSION of each were installed.
upgrades() {
	in_root "$root" "$1:/repository:ro" -- bash -euc '
		mkdir -p /tmp/apt/lists/partial /tmp/apt/archives/partial
		trust=trusted=yes
		[ ! -e /repository/srp-rs.asc ] || trust=signed-by=/repository/srp-rs.asc
		echo "deb [$trust] file:/repository ./" >/tmp/apt/list
		arch=$(dpkg --print-architecture)
		for deb in /repository/*.deb; do
			[ "$(dpkg-deb -f $deb Architecture)" = all ] || arch=$(dpkg-deb -f $deb Architecture)
			dpkg-deb -f $deb Package Architecture Maintainer
			printf "Status: install ok installed\nVersion: $1\nDescription: older\n\n"
		done >/tmp/apt/status
		options=(-o Dir::Etc::SourceList=/tmp/apt/list -o Dir::Etc::SourceParts=/nonexistent
			-o Dir::State::Lists=/tmp/apt/lists -o Dir::State::Status=/tmp/apt/status
			-o Dir::Cache=/tmp/apt -o APT::Update::Error-Mode=any
			-o APT::Architecture=$arch -o APT::Architectures=$arch)
		apt-get -qq "${options[@]}" update >&2
		apt "${options[@]}" list --upgradable 2>/dev/null | sed -n "s,^\([^/]*\)/[^ ]* \([^ ]*\) .*,\1 \2,p"' upgrades "$2"
}

check() {
	local wanted found
	wanted=$(for deb in "$1"/*.deb; do dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb"; done | sort)
	found=$(upgrades "$1" 0~0 | sort)
	[ -n "$wanted" ] && [ "$found" = "$wanted" ] || die "apt offers '$found' from $1, which has '$wanted'"
	echo "repository: apt upgrades to $(paste -sd, - <<<"$found" | sed 's/,/, /g')"
}

self_test() {
	local work version
	work=$(mktemp -d)
	trap "rm -rf '$work'" EXIT
	mkdir -p "$work/made-up/DEBIAN" "$work/repository" "$work/keys"
	for version in 1 2; do
		printf '%s\n' "Package: made-up" "Version: $version" "Architecture: all" "Maintainer: root <root@localhost>" \
			"Description: made up" >"$work/made-up/DEBIAN/control"
		dpkg-deb -b --root-owner-group "$work/made-up" "$work/repository/made-up_$version.deb" >/dev/null
		index "$work/repository"
		[ "$(upgrades "$work/repository" 1)" = "$([ $version = 1 ] || echo "made-up 2")" ] ||
			die "apt does not upgrade to $version"
	done
	rm "$work/repository/made-up_1.deb"
	host_needs gpg gpg-agent
	export GNUPGHOME=$work/keys
	chmod 700 "$GNUPGHOME"
	gpg --batch --quiet --passphrase '' --quick-generate-key made-up@localhost
	SIGN=made-up@localhost
	index "$work/repository"
	check "$work/repository"
	sed -i 's/^Version: 2/Version: 3/' "$work/repository/Packages"
	! upgrades "$work/repository" 1 2>/dev/null || die "apt accepts an index that was changed"
	sed -i 's/^Version: 3/Version: 2/' "$work/repository/Packages"
	sed -i 's/^Origin: srp-rs/Origin: other/' "$work/repository/"{In,}Release
	! upgrades "$work/repository" 1 2>/dev/null || die "apt accepts a wrong signature"
	gpgconf --kill all
	echo "repository: apt upgrades, with and without a key"
}

root=$("$top/ci/root.sh")
case ${1-} in
check) check "$(realpath -e "$2")" ;;
test) self_test ;;
?*) index "$(realpath -e "$1")" ;;
*) die "usage: repository.sh FOLDER|check FOLDER|test" ;;
esac
