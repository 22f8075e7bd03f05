#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# module.sh stock|test|kasan OUT [SRC [TARGET [VAR=VALUE]...]]: builds the module in the toolchain root
# against one of our kernels, object files in OUT. SRC is this checkout unless given.
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "usage: module.sh stock|test|kasan OUT [SRC [TARGET [VAR=VALUE]...]]"
root=$("$top/ci/root.sh")
linux=$("$top/ci/linux.sh")
kernel=$1
build=$("$top/ci/kernel.sh" "$kernel")
mkdir -p "$2" "$cache/ccache"
out=$(cd "$2" && pwd)
src=$(cd "${3:-$top}" && pwd)
target=${4:-modules}
shift $(($# < 4 ? $# : 4))

# Two builds in one folder would take each other's files away.
exec {lock}>"$out/.lock"
flock "$lock"
in_root "$root" "$linux/source:/linux:ro" "$build:/build:ro" "$src:/srp:ro" "$out:/out" "$cache/ccache:/ccache" -- bash -euc '
	export CCACHE_DIR=/ccache
	flags=$1
	shift
	eval "make -C /linux O=/build M=/srp MO=/out $flags \"\$@\""' module "$(make_flags "$kernel")" -j"$jobs" "$target" "$@" {lock}>&-
