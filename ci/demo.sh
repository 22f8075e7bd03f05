#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make demo: the stock kernel, our module, a target, /dev/srp0, verified I/O. make demo-wss, make demo-xorset: the storage
# system, or the redundant set, in user space in the place of the target.
. "$(dirname "$0")/lib.sh"
pick_series
"$top/ci/module.sh" stock "$built/stock" >&2
case ${1-} in
wss | xorset)
	tools=$("$top/ci/tools.sh")
	test=$(basename "$top"/userspace-tests/guest/*-$1.sh)
	"$top/ci/vm.sh" stock --log demo-$1 --timeout 1000 --memory 2048 --module "$built/stock/rust/ib_srp.ko" --file "$tools/$1" -- \
		bash "/srp/tests/$test" rxe
	;;
*) "$top/ci/vm.sh" stock --log demo --timeout 1000 --module "$built/stock/rust/ib_srp.ko" -- bash /srp/tests/demo.sh ;;
esac
