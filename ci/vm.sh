#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm.sh stock|rt|test|kasan [OPTION]... [--] COMMAND...: runs COMMAND in a guest with one of our kernels. vm.sh KERNEL
# --help shows the options. Files given to --module and --file are host paths. The console log is
# build/SERIES/log/NAME.log (--log NAME).
. "$(dirname "$0")/lib.sh"

[ $# -ge 1 ] || die "usage: vm.sh stock|rt|test|kasan [OPTION]... [--] COMMAND..."
root=$("$top/ci/root.sh")
pick_series
guest=$("$top/ci/guest.sh")
args=(--kernel "$1")
kernel=$("$top/ci/initramfs.sh" "$1")
shift

logs=$built/log log=guest
binds=()
bind() {
	local f; f=$(realpath -e "$1")
	binds+=("${f%/*}:/host$((${#binds[@]})):ro")
	path=/host$((${#binds[@]} - 1))/${f##*/}
}
while [ $# -gt 0 ]; do
	case $1 in
	--log) log=$2; shift 2 ;;
	--module) bind "$2"; args+=(--module "$path"); shift 2 ;;
	--file) bind "${2%%:*}"; n=${2#*:}; args+=(--file "$path:${n##*/}"); shift 2 ;;
	--) break ;;
	*) args+=("$1"); shift ;;
	esac
done
mkdir -p "$logs"
in_root "$root" "$top:/srp:ro" "$logs:/log" "$cache:/cache" "$kernel:/kernel:ro" "$guest:/guest:ro" "${binds[@]}" -- \
	env PYTHONPATH=/srp/ci python3 -B -m lab.vm --console "/log/$log.log" "${args[@]}" "$@"
