#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Builds the module for the newest kernel in unstable and experimental, if it is newer than that of trixie-backports: an
# early warning that never fails. The module is not run, because that kernel was built by another rustc.
. "$(dirname "$0")/lib.sh"

counted
skipped() { echo "next: skipped: $*"; result next skip "$*"; exit 0; }

log=$top/build/log/next-build.log
mkdir -p "${log%/*}"
packages=$("$top/ci/series.sh" next 2>"$log") || { cat "$log"; skipped "unstable could not be asked for its kernel"; }
[ -n "$packages" ] || skipped "unstable and experimental have no newer kernel than trixie-backports"
read -r _ _ version <<<"$packages"
if TRIED=next SERIES=next "$top/ci/module.sh" stock "$top/build/next/stock" "$top" modules KBUILD_MODPOST_WARN=1 \
	>"$log" 2>&1; then
	echo "next: builds for Linux $version"
	result next ok
else
	grep -E '^error' "$log" || tail -n 20 "$log"
	skipped "does not build for Linux $version, which is what comes after trixie-backports; $log has it all"
fi
