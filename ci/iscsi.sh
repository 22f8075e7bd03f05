#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Prints the folder with iscsid, which logins over iSCSI need, and its libraries. The guests' disk lacks them.
. "$(dirname "$0")/lib.sh"

fetch() {
	in_root "$root" "$1:/out" -- bash -euc "$apt_sources"'
		cd /tmp
		apt-get update -qq
		apt-get download open-iscsi libopeniscsiusr libisns0t64
		for d in *.deb; do dpkg-deb -x "$d" x; done
		cp -L x/usr/sbin/{iscsid,iscsiadm} x/usr/lib/*/lib{openiscsiusr,isns}.so.0 /out'
}

root=$("$top/ci/root.sh")
step iscsi "1 $root" fetch
