#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the directory with the compiled programs of the guest tests: user-verbs, srpctl, srp-target, srp-hostile,
# odd-target, wss, xorset.
. "$(dirname "$0")/lib.sh"

build() {
	in_root "$root" "$top/userspace-tests/guest:/src:ro" "$1:/out" -- \
		bash -euxc 'build="gcc -Wall -Wextra -Werror -O2"
			$build -o /out/user-verbs /src/user-verbs.c -libverbs -lpthread'
}

srpctl() { make_srpctl srpctl && cp "$cache/cargo/${root##*/}/release/srpctl" "$1"; }
all() { build "$1"; srpctl "$1"; "$top/storage/run" build "$1"; }

root=$("$top/ci/root.sh")
sources=$(find "$top/userspace-tests/guest/user-verbs.c" \
	"$top/tools/srpctl" "$top/tools/Cargo.toml" "$top/rust/ib_srp/srp/proto" "$top/docs/troubleshooting.md" \
	"$top/storage" "$top/userspace-tests/hostile" "$top/userspace-tests/odd-target" -type f -print0 |
	sort -z | xargs -0 sha256sum | cut -d' ' -f1 | sha256sum)
step tools "6 $root $sources" all
