#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# shell.sh [stock|rt|test]: an interactive guest with a target and a login.
. "$(dirname "$0")/lib.sh"
kernel=${1:-stock}
pick_series
"$top/ci/module.sh" "$kernel" "$built/$kernel" >&2
"$top/ci/vm.sh" "$kernel" --log shell --shell --module "$built/$kernel/rust/ib_srp.ko" -- '
	. /srp/tests/lib.sh; set +u; tmp=/tmp
	load_target; load_srp; fabric 1; back_null disk 256; target 0; lun 0 0 disk
	echo "login: echo $(login_string 0) > $(add_target 0)"
	login 0; disk "$host" 0; lsblk
	fail() { say "FAILED: $*"; kill -INT $$; }
	echo "exit ends the guest; functions of /srp/tests/lib.sh are loaded (login, logout, ...)"'
