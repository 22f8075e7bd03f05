#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node-base.sh [stock|arm64]: prints the directory with tree/, a Debian base system with this kernel (default: `stock`).
# The node of node.sh starts from this tree.
. "$(dirname "$0")/lib.sh"

kernel=${1:-stock}
flavour=$(flavour "$kernel")

# make_base COMMAND... DIRECTORY: with this command for `bootstrap`.
make_base() {
	local to=${*: -1} m; m=$(mirror)
	"${@:1:$#-1}" --variant=important --architectures="$flavour" \
		--include=linux-image-"$flavour",initramfs-tools,zstd trixie "$to/tree" \
		"deb $m trixie main" "deb $m trixie-backports main"
	rm -rf "$to"/tree/var/cache/apt/archives/*.deb
}

case $kernel in
stock) step node-base "1 $(date +%Y-%m)" make_base bootstrap ;;
arm64) step node-base-arm64 "1 $(date +%Y-%m)" make_base emulated bootstrap --skip=check/qemu ;;
*) die "usage: node-base.sh [stock|arm64]" ;;
esac
