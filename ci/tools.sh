#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with what the guest tests need in compiled form: fake-umad.so, target, srpctl.
. "$(dirname "$0")/lib.sh"

build() {
	in_root "$root" "$top/userspace-tests/guest:/src:ro" "$1:/out" -- \
		bash -euxc 'build="gcc -Wall -Wextra -Werror -O2"
			$build -shared -fPIC -o /out/fake-umad.so /src/fake-umad.c
			$build -o /out/target /src/target.c -lrdmacm -libverbs'
}

# The packages are built with the same crates (deb.sh).
srpctl() {
	mkdir -p "$cache/cargo"
	in_root "$root" "$top:/src:ro" "$1:/out" "$cache/cargo:/cargo" -- bash -euc '
		mkdir /tmp/src
		cp -r /src/Makefile /src/tools /tmp/src
		mkdir -p /tmp/src/rust/srp
		cp -r /src/rust/srp/proto /tmp/src/rust/srp
		find /tmp/src -name "*.rs" -exec touch {} +
		export CARGO_TARGET_DIR=/cargo/$1
		make -C /tmp/src srpctl
		cp "$CARGO_TARGET_DIR/release/srpctl" /out' srpctl "${root##*/}"
}
both() { build "$1"; srpctl "$1"; }

root=$("$top/ci/root.sh")
sources=$(find "$top"/userspace-tests/guest/*.[ch] "$top/tools/srpctl" "$top/tools/Cargo.toml" "$top/rust/srp/proto" -type f -print0 | sort -z | xargs -0 sha256sum | cut -d' ' -f1 | sha256sum)
step tools "3 $root $sources" both
