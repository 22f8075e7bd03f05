#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with what the guest tests need in compiled form: fake-umad.so, target.
. "$(dirname "$0")/lib.sh"

build() {
	in_root "$root" "$top/userspace-tests/guest:/src:ro" "$1:/out" -- \
		bash -euxc 'build="gcc -Wall -Wextra -Werror -O2"
			$build -shared -fPIC -o /out/fake-umad.so /src/fake-umad.c
			$build -o /out/target /src/target.c -lrdmacm -libverbs'
}

root=$("$top/ci/root.sh")
step tools "2 $(cat "$top"/userspace-tests/guest/*.[ch] | sha256sum)" build
