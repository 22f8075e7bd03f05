#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with etcd, for the storage's tests.
. "$(dirname "$0")/lib.sh"

fetch() {
	in_root "$root" "$1:/out" -- bash -euc "$apt_sources"'
		cd /tmp
		apt-get update -qq
		apt-get download etcd-server
		dpkg-deb -x etcd-server_*.deb x
		cp x/usr/bin/etcd /out'
}

root=$("$top/ci/root.sh")
step etcd "1 $root" fetch
