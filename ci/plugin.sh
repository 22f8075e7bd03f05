#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# plugin.sh NAME: prints the folder with plugin.so, the QEMU plugin userspace-tests/bench/NAME.c.
. "$(dirname "$0")/lib.sh"

bench=$top/userspace-tests/bench
build() {
	in_root "$root" "$bench:/src:ro" "$2:/out" -- \
		gcc -Wall -Wextra -Werror -Wno-unused-parameter -O2 -shared -fPIC -fvisibility=hidden -o /out/plugin.so "/src/$1.c"
}

root=$("$top/ci/root.sh")
step "$1" "2 $root $(cat "$bench/$1.c" "$bench/plugin.h" | sha256sum)" build "$1"
