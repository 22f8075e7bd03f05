#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# module.sh KERNEL OUT [SRC [TARGET [VAR=VALUE]...]]: builds the module in the toolchain root against one of the kernels
# of kernel.sh, with object files in OUT. SRC defaults to this checkout.
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "usage: module.sh KERNEL OUT [SRC [TARGET [VAR=VALUE]...]]"
root=$("$top/ci/root.sh" "$1")
pick_series
linux=$("$top/ci/linux.sh")
kernel=$1
mkdir -p "$2" "$cache/ccache"
out=$(cd "$2" && pwd)
src=$(cd "${3:-$top}" && pwd)
target=${4:-modules}
shift $(($# < 4 ? $# : 4))

# A failed build of unmodified source is caused by a new kernel: reports this, with the newest kernel for which the
# build succeeds.
other_series() {
	local s
	[ "$src" = "$top" ] && [ "$kernel $target $*" = "stock modules " ] && [ -z "${TRIED-}" ] &&
		[ -z "$(git -C "$top" status --porcelain rust include 2>/dev/null)" ] || exit 1
	export TRIED=$SERIES
	while read -r s _; do
		[ "$s" != "$SERIES" ] || continue
		! SERIES=$s "$0" stock "$top/build/$s/stock" >/dev/null 2>&1 ||
			die "this module does not build for Linux $SERIES yet; the newest kernel that it builds for is $s: say SERIES=$s."
	done < <("$top/ci/series.sh")
	die "this module builds for no kernel of trixie-backports."
}

build=$("$top/ci/kernel.sh" "$kernel") || other_series "$@"

# A kernel without Rust uses the kernel crate of the newest series. Its kbuild may be too old for MO=, so its objects go
# beside links to the sources.
crate=$linux/source where='M=/srp MO=/out'
if ! grep -qx CONFIG_RUST=y "$build/.config"; then
	crate=$(SERIES='' "$top/ci/linux.sh")/source where='M=/out SRP_CRATE=/crate'
fi

# With the changes of scripts that the kernel was built with.
scripts=()
[ ! -d "$build/patched/scripts" ] || scripts=("$build/patched/scripts:/linux/scripts:ro")

# Two builds in one directory would delete each other's files.
exec {lock}>"$out/.lock"
flock "$lock"
in_root "$root" "$linux/source:/linux:ro" "${scripts[@]}" "$build:/build:ro" "$src:/srp:ro" "$out:/out" "$crate:/crate:ro" \
	"$cache/ccache:/ccache" -- bash -euc '
	export CCACHE_DIR=/ccache
	flags="$1 $2"
	shift 2
	if [[ $flags == M=/out* ]]; then
		find /out -lname "/srp/*" -delete
		for f in /srp/*; do case $f in */build|*/ci|*/docs|*/storage|*/userspace-tests) ;; *) cp -rs "$f" /out ;; esac; done
	fi
	eval "make -C /linux O=/build $flags \"\$@\""' module "$where" "$(make_flags "$kernel")" -j"$jobs" "$target" "$@" \
	{lock}>&- || other_series "$@"
