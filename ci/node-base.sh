#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the directory with tree/, a Debian base system with a kernel. The node of node.sh starts from this tree.
. "$(dirname "$0")/lib.sh"

make_base() {
	local m; m=$(mirror)
	bootstrap --variant=important --include=linux-image-amd64,initramfs-tools,zstd trixie "$1/tree" \
		"deb $m trixie main" "deb $m trixie-backports main"
	rm -rf "$1"/tree/var/cache/apt/archives/*.deb
}

step node-base "1 $(date +%Y-%m)" make_base
