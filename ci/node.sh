#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node.sh: follows the section "On a Debian 13 node" of README.md, with exactly its commands, on a clean Debian 13 with
# systemd and a disk of its own, and checks the results: userspace-tests/node. A build takes about ten times as long on
# an emulated CPU, so the first installation is done in a chroot of the disk, by this machine's CPUs, before the disk
# boots. LONG=1 adds an archive on a second disk, where backports first has the previous kernel series. The guest then
# upgrades kernel and package, runs the package's own tests, and installs the module built from source with the commands
# of README. ACTS="NAME ..." selects acts, and those that they need. `node.sh base` only prepares the base Debian
# system.
. "$(dirname "$0")/lib.sh"

[ "${1-}" = base ] || counted "$@"
root=$("$top/ci/root.sh")
pick_series
work=$top/build/node
logs=$built/log
mkdir -p "$work" "$logs"

# The base system of every Debian, and a kernel.
make_base() {
	local m; m=$(mirror)
	bootstrap --variant=important --include=linux-image-amd64,initramfs-tools,zstd trixie "$1/tree" \
		"deb $m trixie main" "deb $m trixie-backports main"
	rm -rf "$1"/tree/var/cache/apt/archives/*.deb
}

# Adds the test to it: a disk at /rig, the storage, and the service that runs the plan.
put_rig() {
	local tree=$1
	mkdir -p "$tree/rig" "$tree/var/lib/rig"
	echo node >"$tree/etc/hostname"
	printf '/dev/vda / ext4 rw 0 1\n/dev/vdb /rig ext4 ro,x-systemd.device-timeout=900 0 0\n' >"$tree/etc/fstab"
	echo 'APT::Get::Assume-Yes "true"; APT::Color "0"; Dpkg::Use-Pty "0";' >"$tree/etc/apt/apt.conf.d/99rig"
	# Detecting the drivers of all machines keeps an emulated CPU busy for two minutes.
	printf 'MODULES=list\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\n' >"$tree/etc/initramfs-tools/conf.d/rig"
	printf '%s\n' virtio_pci virtio_blk ext4 >>"$tree/etc/initramfs-tools/modules"
	cat >"$tree/etc/systemd/system/rig-target.service" <<-'E'
		[Unit]
		RequiresMountsFor=/rig
		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=/bin/bash /rig/target
	E
	cat >"$tree/etc/systemd/system/rig.service" <<-'E'
		[Unit]
		RequiresMountsFor=/rig
		Requires=rig-target.service
		After=rig-target.service systemd-udev-settle.service network.target
		[Service]
		Environment=HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
		ExecStart=/bin/bash /rig/run
		StandardOutput=tty
		StandardError=tty
		TTYPath=/dev/ttyS0
		TimeoutStopSec=30
	E
	mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
	ln -sfn /etc/systemd/system/rig.service "$tree/etc/systemd/system/multi-user.target.wants/rig.service"
}

# The disk at /rig: the tests, README, our packages and their source.
make_rig() {
	local to=$1
	rm -rf --one-file-system "$to"
	mkdir -p "$to/root-bin" "$to/bin" "$to/source"
	cp -r "$top"/userspace-tests/node/* "$top"/userspace-tests/guest/lib{,.sh} "$top/README.md" "$top"/build/deb/*.deb "$to"
	git -C "$top" archive --format=tar HEAD | tar -x -C "$to/source"
	# How late the storage is at boot, in seconds; with LONG, longer than a mount waits for its disk.
	echo $((${LONG:+100} + 20)) >"$to/late"
	# For the chroot of the disk: reports the kernel that will run, and starts no services.
	cat >"$to/root-bin/uname" <<-'E'
		#!/bin/sh
		[ "$*" = -r ] || exec /usr/bin/uname "$@"
		find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -n 1
	E
	cat >"$to/root-bin/systemctl" <<-'E'
		#!/bin/sh
		[ "$1" = restart ] || exec /usr/bin/systemctl "$@"
	E
	ln -s /bin/true "$to/root-bin/modprobe"
	ln -s /bin/true "$to/bin/reboot"
	chmod +x "$to"/root-bin/{uname,systemctl}
}

# Additional packages of the long form.
extra=(autopkgtest fio rdma-core multipath-tools dracut-core dracut-network kdump-tools makedumpfile ovmf python3-virt-firmware
	shim-signed grub-efi-amd64-signed dosfstools mtools)

# The packages that the long form installs: those of the newest kernel and of the previous one, and the dependencies of
# our packages and of the tests. The metapackages also exist in a version that depends on the previous kernel.
make_pool() {
	local to=${*: -1}
	mkdir -p "$to/pool"
	cp -a "$base/tree" "$to/tree"
	in_root "$to/tree" "$to/pool:/pool" "$work/rig:/rig:ro" -- bash -euc '
		series=$1 release=$2 version=$3 old_series=$4 old_release=$5 old_version=$6
		apt-get update -qq
		old=
		[ -z "$old_series" ] || for p in linux-{image,binary,modules,headers}-$old_release linux-source-$old_series; do
			! apt-cache show "$p" >/dev/null 2>&1 || old+=" $p"
		done
		apt-get install -qq -y -d -o APT::Keep-Downloaded-Packages=1 linux-{image-amd64,headers-amd64,source}/trixie-backports $old \
			/rig/*.deb '"${extra[*]}"'
		mv /var/cache/apt/archives/*.deb /pool
		cd /tmp
		[ -z "$old_series" ] || for f in /pool/linux-{base,image,modules,headers}-amd64_"$version"_*.deb /pool/linux-source_"$version"_*.deb; do
			[ -e "$f" ] || continue
			rm -rf x
			dpkg-deb -R "$f" x
			sed -i "s/$version/$old_version/g; s/${release%-amd64}/${old_release%-amd64}/g; s/linux-source-$series/linux-source-$old_series/g" x/DEBIAN/control
			dpkg-deb -b x "/pool/old-${f##*/}"
		done' pool "${@:1:6}"
	rm -rf --one-file-system "$to/tree"
}

# publish DAY [PACKAGES]: creates an apt archive of the pool without PACKAGES (a pattern for their first lines).
publish() {
	in_root "$base/tree" "$work/rig:/rig" "$pool/pool:/rig/pool:ro" -- bash -euc '
		cd /rig
		mkdir "$1"
		ln -s ../pool "$1/pool"
		apt-ftparchive packages pool >/tmp/all
		for suite in trixie trixie-backports; do
			at=$1/dists/$suite
			mkdir -p "$at/main/binary-amd64"
			awk -v suite=$suite -v but="$2" "BEGIN {RS = \"\"; ORS = \"\n\n\"}
				(but == \"\" || \$0 !~ but) && (/\nVersion: [^\n]*~bpo/ ? \"trixie-backports\" : \"trixie\") == suite" \
				/tmp/all >"$at/main/binary-amd64/Packages"
			more=
			[ $suite = trixie ] || more="NotAutomatic=yes ButAutomaticUpgrades=yes"
			options=()
			for o in Origin=Debian Suite=$suite Codename=$suite Components=main Architectures=amd64 $more; do
				options+=(-o "APT::FTPArchive::Release::$o")
			done
			apt-ftparchive "${options[@]}" release "$at" >/tmp/release
			mv /tmp/release "$at/Release"
		done' publish "$1" "${2-}"
}

# planned ACT:SECONDS...: sets the plan of the disk in $tree. A first word reboot* is skipped: it only says how to boot.
planned() { [[ ${1-} != reboot* ]] || shift; printf '%s\n' "${@/:/ }" >"$tree/var/lib/rig/plan"; }

[ "${1-}" != base ] || { step node-base "1 $(date +%Y-%m)" make_base >/dev/null; exit; }

# The acts with their seconds, and the boots between them.
ahead=(kernel:1200 packages:1800 multipath:600)
instead=()
plan=(login:300 paths:600 at_boot:300 reboot:0 back:300)
if [ -n "${LONG-}" ]; then
	plan=(login:300 paths:600 patched_paths:900 at_boot:300 reboot:0 back:300)
	ahead+=(root_image:600 dracut_image:900 dump_image:900 firmware:600)
	# Acts on a copy of the disk, instead of installing the packages.
	instead=(make_dkms:3600 from_source:3600)
	plan+=(reboot-srp:0 root_on_srp:300 reboot:0 off_srp:300 reboot-dracut:0 root_by_dracut:300 reboot:0 off_srp:300)
	plan+=(reboot-srp:0 crash:1200 reboot-dump:0 dump:600)
	plan+=(reboot-secure:0 refused:1200 reboot-mok:0 enrolled:1200 reboot:0)
	read -r series release version < <("$top/ci/series.sh" | sed -n 1p)
	read -r old_series old_release old_version < <("$top/ci/series.sh" | sed -n 2p) || true
	[ -z "$old_series" ] || plan+=(upgrade_kernel:14400 reboot:0 back:300)
	plan+=(upgrade_package:7200 reboot-alone:0 tests:3600 reboot:0)
fi
plan+=(remove:1200 c_driver:600)
[ -z "${LONG-}" ] || plan+=(built:600)

# The acts that an act depends on, besides the kernel and the packages.
declare -A needs=(
	[paths]=multipath [back]=at_boot [root_on_srp]=root_image [root_by_dracut]="dracut_image off_srp" [off_srp]="at_boot root_on_srp"
	[dump_image]=root_image [dump]="crash" [crash]="dump_image" [refused]=firmware [enrolled]=firmware [upgrade_kernel]=at_boot
	[upgrade_package]=at_boot [remove]=at_boot [c_driver]=remove [built]="from_source remove"
)
chosen=" kernel packages "
choose() {
	local n
	[[ $chosen != *" $1 "* ]] || return 0
	[[ " ${ahead[*]%:*} ${instead[*]%:*} ${plan[*]%:*} " == *" $1 "* && $1 != reboot* ]] ||
		die "ACTS: no act '$1' $([ -n "${LONG-}" ] || echo 'without LONG=1'); there are$(printf '%s\n' "${ahead[@]%:*}" "${instead[@]%:*}" "${plan[@]%:*}" | awk '!/^reboot|^$/ && !seen[$0]++ {printf " %s", $0}')"
	chosen+="$1 "
	for n in ${needs[$1]-}; do choose "$n"; done
}
# only LIST: keeps the selected acts in LIST, and drops boots without an act.
only() {
	local -n list=$1
	local word boot= kept=()
	for word in "${list[@]}"; do
		case $word in
		reboot*) boot=$word ;;
		*)
			[[ $chosen == *" ${word%:*} "* ]] || continue
			kept+=($boot "$word")
			boot=
			;;
		esac
	done
	list=("${kept[@]}")
}
if [ -n "${ACTS-}" ]; then
	for act in $ACTS; do choose "$act"; done
	for list in ahead instead plan; do only $list; done
fi
has() { [[ " ${ahead[*]} ${instead[*]} ${plan[*]} " == *" $1:"* ]]; }

tree=$work/tree
base=$(step node-base "1 $(date +%Y-%m)" make_base)
"$top/ci/deb.sh" >&2
make_rig "$work/rig"
rm -rf --one-file-system "$tree"
cp -a "$base/tree" "$tree"
put_rig "$tree"
passed=0 status=0

if [ -n "${LONG-}" ]; then
	kernels=("$series" "$release" "$version" "$old_series" "$old_release" "$old_version")
	pool=$(step node-pool "3 $base ${kernels[*]} ${extra[*]} $(dpkg-deb -f "$work"/rig/ib-srp-rs-dkms_*.deb Depends Recommends)" make_pool "${kernels[@]}")
	"$top/ci/deb.sh" "$(dpkg-deb -f "$work"/rig/ib-srp-rs-dkms_*.deb Version)+rig" "$work/rig/newer" >&2
	mkdir "$work/rig/pool"
	# On the first day the archive has no package of the newest kernel.
	publish day1 "${old_series:+\nVersion: ${version//[.+~]/[&]}}"
	publish day2
	mkdir "$work/rig/multipath"
	! has patched_paths || cp "$("$top/ci/multipath.sh")"/*.deb "$work/rig/multipath"
	ln "$pool"/pool/*.deb "$work/rig/pool" || cp "$pool"/pool/*.deb "$work/rig/pool"
	sed -i '/^deb/d' "$tree/etc/apt/sources.list"
	printf 'deb [trusted=yes] file:/rig/day1 %s main\n' trixie trixie-backports >>"$tree/etc/apt/sources.list"
fi

# natively TREE LOG ACT:SECONDS...: runs acts in the chroot of a disk that is not booted.
natively() {
	local tree=$1 log=$logs/$2.log name verdict seconds wanted all
	shift 2
	wanted=$((passed + $#))
	planned "$@"
	in_root "$tree" "$work/rig:/rig:ro" -- env DEBIAN_FRONTEND=noninteractive bash /rig/run root >"$log" 2>&1 || true
	while read -r name verdict seconds; do
		case $verdict in
		ok) passed=$((passed + 1)) && result "node/$name" ok ;;
		fail) ;;
		*) continue ;;
		esac
		printf '%-4s node/%s: %s s\n' "$verdict" "$name" "$seconds"
	done < <(sed -n 's/^::test //p' "$log")
	[ $passed != $wanted ] || return 0
	tail -n 80 "$log" | sed 's/^/    | /'
	all=$(printf '%s\n' "${ahead[@]}" "${instead[@]}" "${plan[@]}" | grep -vc '^reboot')
	result --count $((all - passed)) node fail "an act failed or did not run"
	exit 1
}
natively "$tree" node-root "${ahead[@]}"

# upgraded TREE: upgrades from the second day's archive, natively, because this takes an hour on an emulated CPU.
upgraded() {
	sed -i 's|/day1|/day2|' "$1/etc/apt/sources.list"
	in_root "$1" "$work/rig:/rig:ro" -- env DEBIAN_FRONTEND=noninteractive PATH="/rig/root-bin:$PATH" \
		bash -euc 'apt update; apt full-upgrade' >"$logs/node-upgraded.log" 2>&1
	mkdir "$work/rig/kdir"
	cp -a "$1/var/cache/ib-srp-rs/$release" "$work/rig/kdir"
}
if has upgrade_kernel || [ ${#instead[@]} -gt 0 ]; then
	copy=$work/copy
	rm -rf --one-file-system "$copy"
	cp -a "$tree" "$copy"
	! has upgrade_kernel || upgraded "$copy"
	[ ${#instead[@]} = 0 ] || natively "$copy" node-instead "${instead[@]}"
	! has from_source || cp -a "$copy/var/lib/rig/desk/source" "$work/rig/built"
	rm -rf --one-file-system "$copy"
fi

if [ ${#plan[@]} = 0 ]; then
	rm -rf --one-file-system "$tree"
	exit
fi
planned "${plan[@]}"
in_root "$root" "$work:/disk" -- bash -euc '
	cd /disk
	rm -f ./*.ext4
	mke2fs -q -t ext4 -d tree node.ext4 16G
	mke2fs -q -t ext4 -O ^has_journal -m 0 -d rig rig.ext4 6G'
rm -rf --one-file-system "$tree"

rm -f "$logs/node.results"
guest=$("$top/ci/guest.sh")
kernel=$("$top/ci/initramfs.sh" stock)
in_root "$root" "$top:/srp:ro" "$logs:/log" "$cache:/cache" "$kernel:/kernel:ro" "$guest:/guest:ro" "$work:/disk" -- \
	env PYTHONPATH=/srp/ci python3 -B -m lab.node --console /log/node.log --results /log/node.results --memory 4096 --plan "$(IFS=,; echo "${plan[*]}")" || status=$?
rm -f "$work"/*.ext4
# Without results the guest did not run.
cat "$logs/node.results" >>"$RESULTS" || status=1
exit $status
