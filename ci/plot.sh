#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# plot.sh SCRIPT ARGUMENT...: runs a script of userspace-tests/bench in a root with a plotting library. There /out is
# build/bench, and /log has the console logs.
. "$(dirname "$0")/lib.sh"

make_root() {
	local m; m=$(mirror)
	bootstrap --variant=apt --include=python3-matplotlib trixie "$1" "deb $m trixie main"
}

script=$1
shift
root=$(step plot 1 make_root)
pick_series
in_root "$root" "$top/userspace-tests/bench:/bench:ro" "$top/build/bench:/out" "$built/log:/log:ro" -- \
	env PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp python3 "/bench/$script" "$@"
