#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# dracut: logs in to the targets that the firmware boots from. It waits for no interface, as this needs no network.
command -v warn >/dev/null || . /lib/dracut-lib.sh
state=/run/srp/initramfs
for table in /sys/firmware/acpi/tables/sBFT*; do
	# dracut calls this each time that udev has settled.
	[ -e "$table" ] && mkdir -p $state && mkdir "$state/${table##*/}" 2>/dev/null || continue
	login=--firmware=${table##*/}
	{ srpctl connect --owner initramfs --retry 90 "$login" || warn "srpctl: $login: not logged in"; } &
done
