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

[ "${MODE:-icount}" != icount ] || counted "$@"
bench=$top/userspace-tests/bench
out=$top/build/bench
logs=$top/build/log
[ "${MODE-}" = wall ] || { pick_series; logs=$built/log; }
mkdir -p "$out" "$logs"

# The workloads that SHORT or ONLY selects, separated by commas; empty for all.
only=${ONLY-}
[ -z "${SHORT-}" ] || only=${only:-$(awk '!/^#/ && NF {print $1}' "$bench/bounds.tsv" | sort -u | paste -sd,)}

# The QEMU plugin, the RDMA devices, and the table of workloads.
plugin=counts kind=rxe workloads=workloads.tsv

build_plugin() {
	in_root "$root" "$bench:/src:ro" "$1:/out" -- \
		gcc -Wall -Wextra -Werror -Wno-unused-parameter -O2 -shared -fPIC -fvisibility=hidden -o /out/plugin.so "/src/$plugin.c"
}

# Builds what both kinds of guests need.
prepare() {
	root=$("$top/ci/root.sh")
	so=$(step $plugin "2 $root $(cat "$bench/$plugin.c" "$bench/plugin.h" | sha256sum)" build_plugin)
	"$top/ci/module.sh" stock "$built/stock" >&2
}

# guest NAME CPUS PROGRAM [OPTION]...: the drivers take turns in one boot. The output of measure.py goes to the second
# disk, the counts of the plugin to a file. QEMU's clock counts instructions only with one CPU; with more it is the
# host's clock.
guest() {
	local name=bench-$1 cpus=$2 program=$3 clock=(--icount)
	shift 3
	[ "$cpus" = 1 ] || clock=(--accel tcg --smp "$cpus" --qemu=-cpu --qemu=max,la57=off,erms=off,fsrm=off)
	once "$@" || { died_with_c && say "the guest died with the C driver loaded: once more" && once "$@"; }
}

# Boots the guest once, with the variables of guest().
once() {
	truncate -s 0 "$logs/$name.disk"
	truncate -s 512M "$logs/$name.disk"
	"$top/ci/vm.sh" stock "${clock[@]}" --log "$name" --timeout "${TIMEOUT:-21600}" --append "${MTU:+MTU=$MTU}" \
		--qemu=-drive --qemu="file=/log/$name.disk,if=virtio,format=raw" \
		--qemu=-plugin --qemu="/cache/${so##*/}/plugin.so,out=/log/$name.counts" \
		--module "$built/stock/rust/ib_srp.ko" \
		--file "$bench/guest.sh" --file "$bench/measure.py" --file "$bench/$workloads:workloads.tsv" "$@" \
		-- bash /srp/guest.sh $kind "$cpus" "${ROUNDS:-$([ -n "${SHORT-}" ] && echo 1 || echo 5)}" "$only" "$program" ${SHORT:+0.5}
}

# Returns whether the guest died of a known bug of the C driver, which is not marked as out of tree: it may free a
# completion queue that a softirq on another CPU still uses (docs/testing.md).
died_with_c() {
	grep -a 'ib_poll_handler+' "$logs/$name.log" >/dev/null &&
		grep -a 'Modules linked in:' "$logs/$name.log" | tail -n 1 | grep -E ' ib_srp(\(-\))?( |$)' >/dev/null
}

# report ARGUMENT...: runs report.py, with the logs in /log and build/bench in /out.
report() {
	in_root "$root" "$bench:/bench:ro" "$out:/out" "$logs:/log" -- env PYTHONDONTWRITEBYTECODE=1 \
		python3 /bench/report.py "$@"
}

# The CPU counts of the workloads in `only`, without duplicates.
cpus_of() { awk -v only=",$only," '!/^#/ && NF && (only == ",," || index(only, "," $1 ",")) {print $2}' "$bench/$1" | sort -u; }

# Runs the guests of the workloads in `only`, with SUFFIX in their names.
guests() {
	local cpus
	for cpus in $(cpus_of workloads.tsv); do
		guest "$cpus${1-}" "$cpus" measure
		names+=("/log/bench-$cpus${1-}")
	done
}

# Describes the measurement and the machine.
about() {
	about=(
		--about "commit=$(git -C "$top" describe --always --dirty 2>/dev/null)"
		--about "host cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
		--about "qemu=$(in_root "$root" -- qemu-system-x86_64 --version | head -n 1)"
		--about "rustc=$(in_root "$root" -- rustc --version)"
		--about "clang=$(in_root "$root" -- clang --version | head -n 1)"
		--about "gcc=$(in_root "$root" -- gcc --version | head -n 1)"
	)
}

icount() {
	local names=() about=() short=() again=$out/again
	prepare
	about
	rm -f "$again" "$out/bench.results"
	[ -z "${SHORT-}" ] || short=(--short --again /out/again)
	guests
	report "${about[@]}" --bounds /bench/bounds.tsv "${short[@]}" --results /out/bench.results --out /out/results.json "${names[@]}" || status=$?
	[ -s "$again" ] || { judged; return 0; }
	only=$(<"$again") SHORT= ROUNDS=3 guests -again
	status=0
	report "${about[@]}" --bounds /bench/bounds.tsv --short --results /out/bench.results --out /out/results.json "${names[@]}" || status=$?
	judged
}
# Adds the results of the bounds to $RESULTS.
judged() { [ ! -e "$out/bench.results" ] || cat "$out/bench.results" >>"$RESULTS"; }

# Downloads iscsid, which logins over iSCSI need, and its libraries. The guests' disk lacks them.
fetch_iscsi() {
	in_root "$root" "$1:/out" -- bash -euc '
		cd /tmp
		apt-get update -qq
		apt-get download open-iscsi libopeniscsiusr libisns0t64
		for d in *.deb; do dpkg-deb -x "$d" x; done
		cp -L x/usr/sbin/{iscsid,iscsiadm} x/usr/lib/*/lib{openiscsiusr,isns}.so.0 /out'
}

# Adds the files of peers.sh and peers.py to `files`.
peers_files() {
	local linux iscsi f
	iscsi=$(step iscsi "1 $root" fetch_iscsi)
	for f in "$iscsi"/*; do files+=(--file "$f"); done
	# Debian's kernel has no rnbd.
	linux=$("$top/ci/linux.sh")
	"$top/ci/module.sh" stock "$built/rnbd/rtrs" "$linux/source/drivers/infiniband/ulp/rtrs" modules \
		CONFIG_INFINIBAND_RTRS=m CONFIG_INFINIBAND_RTRS_CLIENT=m CONFIG_INFINIBAND_RTRS_SERVER=m >&2
	"$top/ci/module.sh" stock "$built/rnbd" "$linux/source/drivers/block/rnbd" modules \
		CONFIG_BLK_DEV_RNBD_CLIENT=m CONFIG_BLK_DEV_RNBD_SERVER=m KBUILD_EXTRA_SYMBOLS=/out/rtrs/Module.symvers >&2
	for f in "$built"/rnbd/{,rtrs/}*.ko; do files+=(--module "$f"); done
	files+=(--file "$bench/peers.sh" --file "$bench/peers.py")
}

peers() {
	local files=() about=()
	prepare
	peers_files
	only=${only:-$(awk '/^(4k|16k|128k|1m)-/ {print $1}' "$bench/workloads.tsv" | paste -sd,)}
	guest peers 1 peers "${files[@]}"
	about
	report --peers "${about[@]}" --out /out/peers.json /log/bench-peers
	plot+=(peers)
}

# Adds ib_vfab.ko to `files`.
vfab_file() {
	"$top/ci/module.sh" stock "$built/vfab-stock" "$top" modules SRP_VFAB=1 >&2
	files+=(--file "$built/vfab-stock/rust/ib_vfab.ko")
}

path() {
	local files=() peers cpus names=() about=() wanted=$only
	plugin=paths workloads=path-workloads.tsv
	ROUNDS=${ROUNDS:-1}
	prepare
	peers_files
	peers=("${files[@]}" --file "$bench/path.py")
	for kind in ${DEVICES:-vfab rxe}; do
		files=("${peers[@]}")
		if [ "$kind" = vfab ]; then
			vfab_file
		else
			only=${wanted:-$(awk '/^4k-/ {print $1}' "$bench/$workloads" | paste -sd,)}
		fi
		for cpus in $(cpus_of "$workloads"); do
			# If a guest dies, keep what it has measured.
			guest "path-$cpus-$kind" "$cpus" path "${files[@]}" || status=$?
			names+=("/log/bench-path-$cpus-$kind")
		done
	done
	about
	in_root "$root" "$bench:/bench:ro" "$out:/out" "$logs:/log" -- env PYTHONDONTWRITEBYTECODE=1 \
		python3 /bench/paths.py "${about[@]}" --out /out/path.tsv "${names[@]}" || status=$?
	plot=()
}

scale() {
	local where curve wanted=$only names=() about=() files
	# The curves by the devices and CPUs that they need.
	local -A curves=([rxe-1]="sessions luns" [vfab-1]=targets [rxe-16]=channels)
	prepare
	ROUNDS=${ROUNDS:-3}
	for where in rxe-1 vfab-1 rxe-16; do
		only= kind=${where%-*} files=(--file "$bench/scale.py")
		for curve in ${curves[$where]}; do
			[[ -n $wanted && ,$wanted, != *,$curve,* ]] || only+=${only:+,}$curve
		done
		[ -n "$only" ] || continue
		[ $kind = rxe ] || vfab_file
		guest scale-$where ${where#*-} scale --memory 8192 "${files[@]}"
		names+=("/log/bench-scale-$where")
	done
	[ ${#names[@]} != 0 ] || die "ONLY has no curve: ${curves[*]}"
	about
	in_root "$root" "$bench:/bench:ro" "$out:/out" "$logs:/log" -- env PYTHONDONTWRITEBYTECODE=1 \
		python3 /bench/growth.py "${about[@]}" --out /out/scale.json "${names[@]}" || status=$?
	plot+=(scale)
}

wall() {
	local device=${DEVICE-} modules c ours=$top/build/native/rust/ib_srp.ko
	modules=/lib/modules/$(uname -r)
	[ -n "$device" ] && [ -n "${LOGIN-}" ] || die "MODE=wall wants DEVICE=device/port and LOGIN=, the string for add_target"
	[ -d "/sys/class/infiniband/${device%/*}/ports/${device#*/}" ] || die "there is no RDMA port $device"
	[ -n "${OVERWRITE-}" ] || die "this overwrites the target's LUN 0${LUNS+ to $((LUNS - 1))}: say OVERWRITE=1"
	[ "$(id -u)" = 0 ] || die "not root"
	[ -n "$(command -v fio)" ] || host_needs fio
	[ -e "$ours" ] || ours=$(ls "$modules"/updates/ib_srp.ko* 2>/dev/null) || die "there is no $ours: run make first"
	c=$(ls "$modules"/kernel/drivers/infiniband/ulp/srp/ib_srp.ko* 2>/dev/null) || die "this kernel has no C ib_srp"
	modprobe -a scsi_transport_srp rdma_cm ib_cm sd_mod
	[ ! -d /sys/module/ib_srp ] || rmmod ib_srp
	rm -f "$logs/bench-wall.disk"
	python3 -B "$bench/measure.py" --driver c="$c" --driver rust="$ours" \
		--add-target "/sys/class/infiniband_srp/srp-${device/\//-}/add_target" --login "$LOGIN" \
		--workloads "$bench/workloads.tsv" --only "$only" --luns "${LUNS:-1}" \
		--rounds "${ROUNDS:-10}" --seconds "${SECONDS_EACH:-10}" --out "$logs/bench-wall.disk"
	python3 -B "$bench/report.py" --out "$out/wall.json" "$logs/bench-wall" || status=$?
	plot+=(wall)
	# The plots are optional.
	[ -n "$(command -v mmdebstrap)" ] || plot=()
}

case ${MODE:-icount} in
icount|wall|peers|path|scale) ;;
*) die "MODE is icount, wall, peers, path or scale" ;;
esac
status=0 plot=(plot.py /out)
"${MODE:-icount}"
[ -n "${SHORT-}" ] || [ ${#plot[@]} = 0 ] || "$top/ci/plot.sh" "${plot[@]}" || [ "${MODE-}" = wall ] || exit 1
exit $status
