#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# vm.sh KERNEL [OPTION]... [--] COMMAND...: runs COMMAND in a guest with one of the kernels of kernel.sh. vm.sh KERNEL
# --help shows the options. Files given to --module and --file are host paths. The console log is
# build/SERIES/log/NAME.log (--log NAME).
. "$(dirname "$0")/lib.sh"

[ $# -ge 1 ] || die "usage: vm.sh KERNEL [OPTION]... [--] COMMAND..."
pick_series
lab boot "$@"
