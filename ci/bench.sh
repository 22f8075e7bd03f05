#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make bench: the kernel's C ib_srp and ours, in turns, in guests with an instruction-counting clock.
# ROUNDS=n (5); ONLY=workload,...; SHORT=1: one short round of the workloads in bounds.tsv, three full rounds of those
# that exceed their bounds in it, no plots;
# MTU=n of the link (1500: packets of 1 KiB; 4200: packets of 4 KiB).
# MODE=peers, make bench-peers: both drivers and other initiators of the kernel. ROUNDS and ONLY as above.
# MODE=path, make bench-path: the initiator's instructions for an I/O, by layer, with the peers,
# on the adapters of ib_vfab, and for 4 KiB also on soft-RoCE. ROUNDS=n (1), ONLY as above, from path-workloads.tsv;
# DEVICES="vfab rxe".
# MODE=scale, make bench-scale: how both drivers scale with sessions, LUNs, targets and channels. ROUNDS=n (3),
# ONLY=curve,...
# MODE=wall DEVICE=mlx5_0/1 LOGIN=id_ext=...,ioc_guid=...,dest=... OVERWRITE=1: on this machine, in real time.
# ROUNDS=n (10), SECONDS_EACH=n (10), LUNS=n of the target (1). Destroys the data on the LUNs. Prints a table, and
# writes wall.json and, with mmdebstrap, plots. srp_daemon and multipathd must not be running.
. "$(dirname "$0")/lib.sh"

wall() {
	local bench=$top/userspace-tests/bench out=$top/build/bench logs=$top/build/log status=0
	local device=${DEVICE-} modules c ours=$top/build/native/rust/ib_srp.ko
	modules=/lib/modules/$(uname -r)
	[ -n "$device" ] && [ -n "${LOGIN-}" ] ||
		die "MODE=wall wants DEVICE=device/port and LOGIN=, the string for add_target"
	[ -d "/sys/class/infiniband/${device%/*}/ports/${device#*/}" ] || die "there is no RDMA port $device"
	[ -n "${OVERWRITE-}" ] || die "this overwrites the target's LUN 0${LUNS+ to $((LUNS - 1))}: say OVERWRITE=1"
	[ "$(id -u)" = 0 ] || die "not root"
	[ -n "$(command -v fio)" ] || host_needs fio
	[ -e "$ours" ] || ours=$(ls "$modules"/updates/ib_srp.ko* 2>/dev/null) || die "there is no $ours: run make first"
	c=$(ls "$modules"/kernel/drivers/infiniband/ulp/srp/ib_srp.ko* 2>/dev/null) || die "this kernel has no C ib_srp"
	modprobe -a scsi_transport_srp rdma_cm ib_cm sd_mod
	[ ! -d /sys/module/ib_srp ] || rmmod ib_srp
	mkdir -p "$out" "$logs"
	rm -f "$logs/bench-wall.disk"
	python3 -B "$bench/measure.py" --driver c="$c" --driver rust="$ours" \
		--add-target "/sys/class/infiniband_srp/srp-${device/\//-}/add_target" --login "$LOGIN" \
		--workloads "$bench/workloads.tsv" --only "${ONLY-}" --luns "${LUNS:-1}" \
		--rounds "${ROUNDS:-10}" --seconds "${SECONDS_EACH:-10}" --out "$logs/bench-wall.disk"
	python3 -B "$bench/report.py" --out "$out/wall.json" "$logs/bench-wall" || status=$?
	# The plots are optional.
	[ -z "$(command -v mmdebstrap)" ] || "$top/ci/plot.sh" plot.py /out wall || :
	exit $status
}

case ${MODE:-icount} in
wall) wall ;;
icount) counted "$@" ;;
peers|path|scale) ;;
*) die "MODE is icount, wall, peers, path or scale" ;;
esac
pick_series
lab bench
