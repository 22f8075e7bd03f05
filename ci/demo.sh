#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make demo: the stock kernel, our module, a target, /dev/srp0, verified I/O.
. "$(dirname "$0")/lib.sh"
pick_series
"$top/ci/module.sh" stock "$built/stock" >&2
"$top/ci/vm.sh" stock --log demo --timeout 1000 --module "$built/stock/rust/ib_srp.ko" -- bash /srp/tests/demo.sh
