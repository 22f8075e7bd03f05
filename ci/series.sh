#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# series.sh: prints the kernel series in trixie-backports, newest first, one per line: series, release of the stock
# kernel, version of its packages. Queries the archive once a day.
# series.sh pick: prints the series to build for.
# series.sh stable: the same for Debian 13's own kernel, which has no Rust.
# series.sh next: the same for the newest kernel in unstable and experimental, or nothing if it is not newer than that
# (or than the version NEWER_THAN).
. "$(dirname "$0")/lib.sh"

root=$("$top/ci/root.sh")

# A series counts if it has a kernel and the source of exactly that version.
list() {
	in_root "$root" "$3:/out" -- bash -euo pipefail -c "$apt_sources"'
		use_sources "$1"
		apt-get $apt update -qq
		apt-cache $apt search --names-only "^linux-image-[0-9.]+(\+deb[0-9]+)?-amd64$" | sed "s/ .*//" | sort >/tmp/images
		apt-cache $apt search --names-only "^linux-source-[0-9]+\.[0-9]+$" | sed "s/ .*//" >/tmp/sources
		xargs -r apt-cache $apt madison </tmp/sources | tr -d " " | grep -E "$2" | sort -t "|" -k 2,2Vr >/tmp/versions
		declare -A seen=()
		while IFS="|" read -r source version _; do
			series=${source#linux-source-} upstream=${version%%[-~]*}
			[ -z "${seen[$series]-}" ] || continue
			image=$(grep -Ex "linux-image-($upstream|$series)(\+deb[0-9]+)?-amd64" /tmp/images | tail -n 1) || continue
			apt-cache $apt madison "$image" | tr -d " " | grep -F "|$version|" >/dev/null || continue
			seen[$series]=1
			echo "$series ${image#linux-image-} $version"
		done </tmp/versions | sort -k 3,3Vr >/out/list
		[ -s /out/list ]' list "$1" "$2"
}

# answer STEP SUITE: prints the list, or its last version if the archive is unavailable.
answer() {
	local found
	if ! found=$(step "$1" "1 $(date +%F) $root" list '' "$2/main" 2>"$cache/$1.err"); then
		found=$(find "$cache" -maxdepth 1 -name "$1-????????????????" -printf '%T@ %p\n' | sort -n | sed -n '$s/[^ ]* //p')
		[ -n "$found" ] || { cat "$cache/$1.err" >&2; die "$2 could not be asked for its kernels"; }
		say "$2 could not be asked for its kernels (see $cache/$1.err): its last answer is used"
	fi
	cat "$found/list"
}

case ${1-} in
pick) pick_series; echo "$SERIES" ;;
'') answer series trixie-backports ;;
stable) answer series-stable trixie ;;
next)
	newest=${NEWER_THAN:-$("$0" | sed -n '1s/.* //p')}
	found=$(step series-next "1 $(date +%F) $root" list next '(sid|experimental)/main')
	read -r series release version <"$found/list"
	! dpkg --compare-versions "${version%-*}" gt "${newest%-*}" || echo "$series $release $version"
	;;
*) die "usage: series.sh [pick|stable|next]" ;;
esac
