#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# dracut: logs in to the targets in the initramfs each time a network interface comes up. All at once, so that no path
# waits for one that is away; dracut waits for the disk. The units of the system log in to the paths that end here.
command -v warn >/dev/null || . /lib/dracut-lib.sh
for file in /etc/srp/targets.d/*.conf; do
	[ -e "$file" ] || continue
	name=${file##*/}
	{ srpctl connect --owner initramfs --retry 90 "${name%.conf}" || warn "srpctl: ${name%.conf}: not logged in"; } &
done
