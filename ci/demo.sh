#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make demo: boots one of Debian's kernels (KERNEL, default `stock`) with our module and a target, and verifies I/O on
# /dev/srp0.
# make demo-wss, make demo-xorset: the storage system or the redundant set in user space instead of the target.
# DRIVER=c: with the kernel's C driver.
. "$(dirname "$0")/lib.sh"
pick_series
kernel=${KERNEL:-stock}
log=demo${1:+-$1}
[ "$kernel" = stock ] || log+=-$kernel
module=()
# The module's build has mostly one thread.
[ -n "${1-}" ] || "$top/ci/tools.sh" srpctl "$kernel" >/dev/null &
building=$!
if [ "${DRIVER-}" != c ]; then
	"$top/ci/module.sh" "$kernel" "$built/$kernel" >&2
	module=(--module "$built/$kernel/rust/ib_srp.ko")
fi
case ${1-} in
wss | xorset)
	tools=$("$top/ci/tools.sh" "$kernel")
	test=$(basename "$top"/userspace-tests/guest/*-$1.sh)
	"$top/ci/vm.sh" "$kernel" --log "$log" --timeout 1000 --memory 2048 "${module[@]}" --file "$tools/$1" -- \
		bash "/srp/tests/$test" rxe
	;;
*)
	wait $building
	srpctl=$("$top/ci/tools.sh" srpctl "$kernel")
	mkdir -p "$built/log"
	"$top/ci/vm.sh" "$kernel" --log "$log" --timeout 1000 "${module[@]}" --file "$srpctl/srpctl" -- \
		bash /srp/tests/demo.sh | tee "$built/log/$log.out"
	# The last line of a good demo states the verified amount.
	tail -n 1 "$built/log/$log.out" | grep -qE '^demo: ok: /dev/srp0 .* MiB verified$' ||
		die "the last line is not that of a good demo"
	;;
esac
