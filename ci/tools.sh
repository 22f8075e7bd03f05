#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with what the guest tests need in compiled form: fake-umad.so.
. "$(dirname "$0")/lib.sh"

build() {
	in_root "$root" "$top/userspace-tests/guest:/src:ro" "$1:/out" -- \
		gcc -Wall -Wextra -Werror -O2 -shared -fPIC -o /out/fake-umad.so /src/fake-umad.c
}

root=$("$top/ci/root.sh")
step tools "1 $(sha256sum <"$top/userspace-tests/guest/fake-umad.c")" build
