#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# tools.sh [srpctl] [KERNEL]: prints the directory with the compiled programs of the guest tests: user-verbs, srpctl,
# srp-target, srp-hostile, odd-target, wss, xorset, srp-storage, xor, or with srpctl alone.
. "$(dirname "$0")/lib.sh"

build() {
	in_root "$root" "$top/userspace-tests/guest:/src:ro" "$1:/out" -- env $(cross "$kernel") \
		bash -euxc 'build="${CC:-gcc} -Wall -Wextra -Werror -O2"
			$build -o /out/user-verbs /src/user-verbs.c -libverbs -lpthread'
}

srpctl() { make_srpctl srpctl "$kernel" && cp "$cache/cargo/${root##*/}$target/release/srpctl" "$1"; }
all() { build "$1"; cp "$alone/srpctl" "$1"; FOR=$kernel "$top/storage/run" build "$1"; }
# digest FILE...: prints a hash of these files, and of those in these folders.
digest() { (cd "$top" && find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | cut -d' ' -f1 | sha256sum); }

what=all
[ "${1-}" != srpctl ] || { what=srpctl; shift; }
kernel=${1-} arch='' target=''
[[ $kernel != arm64* ]] || arch=-arm64 target=/aarch64-unknown-linux-gnu
root=$("$top/ci/root.sh" "$kernel")
sources=(tools/{srpctl,umad,Cargo.toml,example.conf} rust/ib_srp/srp/proto debian/changelog docs/troubleshooting.md)
alone=$(step "srpctl$arch" "1 $root $(digest "${sources[@]}")" srpctl)
if [ $what = srpctl ]; then
	echo "$alone"
	exit
fi
sources=$(digest userspace-tests/{guest/user-verbs.c,hostile,odd-target} storage)
step "tools$arch" "7 $alone $sources" all
