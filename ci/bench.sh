#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make bench: the kernel's C ib_srp and ours in turns, in guests whose clock counts instructions.
# ROUNDS=n (5); ONLY=workload,...; SHORT=1: one short round of the workloads that bounds.tsv names, no plots.
# MODE=wall DEVICE=mlx5_0/1 LOGIN=id_ext=...,ioc_guid=...,dest=... OVERWRITE=1: on this machine, by its
# clock; ROUNDS=n (10), SECONDS_EACH=n (10), LUNS=n that the target has (1). The LUNs' data is lost.
. "$(dirname "$0")/lib.sh"

bench=$top/userspace-tests/bench
out=$top/build/bench
logs=$top/build/log
mkdir -p "$out" "$logs"

# Those that SHORT or ONLY leave, with commas; nothing for all. SHORT has one guest, with one CPU.
only=${ONLY-}
[ -z "${SHORT-}" ] || only=${only:-$(awk '!/^#/ && NF && $1 !~ /^(login:|4-)/ {print $1}' "$bench/bounds.tsv" | sort -u | paste -sd,)}

build_counts() {
	in_root "$root" "$bench:/src:ro" "$1:/out" -- \
		gcc -Wall -Wextra -Werror -Wno-unused-parameter -O2 -shared -fPIC -fvisibility=hidden -o /out/counts.so /src/counts.c
}

# guest CPUS: the drivers take turns in one boot. What measure.py says is on the second disk, what
# the plugin counts in a file. QEMU's clock counts the instructions of one CPU only; with more it is the
# machine's.
guest() {
	local clock=(--icount)
	[ "$1" = 1 ] || clock=(--accel tcg --smp "$1" --qemu=-cpu --qemu=max,la57=off,erms=off,fsrm=off)
	truncate -s 0 "$logs/bench-$1.disk"
	truncate -s 512M "$logs/bench-$1.disk"
	"$top/ci/vm.sh" stock "${clock[@]}" --log "bench-$1" --timeout "${TIMEOUT:-21600}" \
		--qemu=-drive --qemu="file=/log/bench-$1.disk,if=virtio,format=raw" \
		--qemu=-plugin --qemu="/cache/${counts##*/}/counts.so,out=/log/bench-$1.counts" \
		--module "$top/build/stock/rust/ib_srp.ko" \
		--file "$bench/guest.sh" --file "$bench/measure.py" --file "$bench/workloads.tsv" \
		-- bash /srp/guest.sh rxe "$1" "${ROUNDS:-$([ -n "${SHORT-}" ] && echo 1 || echo 5)}" "$only" ${SHORT:+0.2}
}

icount() {
	local cpus names=()
	root=$("$top/ci/root.sh")
	counts=$(step counts "1 $root $(sha256sum <"$bench/counts.c")" build_counts)
	"$top/ci/module.sh" stock "$top/build/stock" >&2
	for cpus in $(awk -v only=",$only," '!/^#/ && NF && (only == ",," || index(only, "," $1 ",")) {print $2}' "$bench/workloads.tsv" | sort -u); do
		guest "$cpus"
		names+=("/log/bench-$cpus")
	done
	in_root "$root" "$bench:/bench:ro" "$out:/out" "$logs:/log" -- env PYTHONDONTWRITEBYTECODE=1 \
		python3 /bench/report.py --bounds /bench/bounds.tsv --out /out/results.json "${names[@]}" || status=$?
}

wall() {
	local device=${DEVICE-} modules c ours=$top/build/native/rust/ib_srp.ko
	modules=/lib/modules/$(uname -r)
	[ -n "$device" ] && [ -n "${LOGIN-}" ] || die "MODE=wall wants DEVICE=device/port and LOGIN=, the string for add_target"
	[ -n "${OVERWRITE-}" ] || die "this overwrites the target's LUN 0${LUNS+ to $((LUNS - 1))}: say OVERWRITE=1"
	[ "$(id -u)" = 0 ] || die "not root"
	host_needs fio
	[ -e "$ours" ] || ours=$(ls "$modules"/updates/ib_srp.ko* 2>/dev/null) || die "there is no $ours: run make first"
	c=$(ls "$modules"/kernel/drivers/infiniband/ulp/srp/ib_srp.ko* 2>/dev/null) || die "this kernel has no C ib_srp"
	modprobe -a scsi_transport_srp rdma_cm ib_cm sd_mod
	[ ! -d /sys/module/ib_srp ] || rmmod ib_srp
	rm -f "$logs/bench-wall.disk"
	python3 -B "$bench/measure.py" --driver c="$c" --driver rust="$ours" \
		--add-target "/sys/class/infiniband_srp/srp-${device/\//-}/add_target" --login "$LOGIN" \
		--workloads "$bench/workloads.tsv" --only "$only" --luns "${LUNS:-1}" \
		--rounds "${ROUNDS:-10}" --seconds "${SECONDS_EACH:-10}" --out "$logs/bench-wall.disk"
	python3 -B "$bench/report.py" --out "$out/results.json" "$logs/bench-wall" || status=$?
}

case ${MODE:-icount} in
icount|wall) ;;
*) die "MODE is icount or wall" ;;
esac
status=0
"${MODE:-icount}"
[ -n "${SHORT-}" ] || "$top/ci/plot.sh" plot.py /out
exit $status
