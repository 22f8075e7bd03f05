# SPDX-License-Identifier: GPL-2.0
# The target's back ends. Each takes a name and a size in MiB.

declare -A backdev=()			# back end name -> block device
declare -A backdir=()			# back end name -> configfs folder
declare -A handler=()			# back end name -> process

back_null() {
	null_blk "$1" "$2"
	iblock "$1"
}
# null_blk NAME MIB [ATTRIBUTE=VALUE]...
null_blk() {
	local d=$cfg/nullb/nullb_$1 a
	mkdir "$d" || fail "no null_blk with configfs in this kernel"
	echo "$2" >"$d/size"; echo 1 >"$d/memory_backed"; echo 512 >"$d/blocksize"
	echo 16384 >"$d/max_sectors"		# the default limits requests to 124 KiB
	for a in "${@:3}"; do echo "${a#*=}" >"$d/${a%%=*}" || fail "null_blk $1: $a"; done
	echo 1 >"$d/power" || fail "null_blk $1 cannot be powered on"
	backdev[$1]=/dev/nullb_$1
	within 5 "${backdev[$1]}" test -b "${backdev[$1]}"
}
# back_held NAME MIB: a back end that can hold its I/O: `hold NAME` and `let_go NAME`.
back_held() {
	null_blk "$1" "$2"
	modprobe -q dm_mod
	dm create "srp-$1" --table "0 $(($2 * 2048)) linear ${backdev[$1]} 0" || fail "no device mapper in this kernel"
	dm mknodes
	backdev[$1]=/dev/mapper/srp-$1
	within 5 "${backdev[$1]}" test -b "${backdev[$1]}"
	iblock "$1"
}
# A change of a device waits for udev's rules, in dmsetup without a bound.
dm() { timeout 20 dmsetup "$@"; }
# No user of `resume` needs the rules.
resume() { dm resume --noudevsync "$1"; }
hold() { dm suspend --nolockfs "srp-$1" || fail "cannot hold back end $1"; }
let_go() { resume "srp-$1" || fail "cannot let back end $1 go on"; }
iblock() {
	core "$1" iblock "udev_path=${backdev[$1]}"
}
back_ram() { core "$1" rd_mcp "rd_pages=$((($2 << 20) / $(getconf PAGESIZE)))"; }
back_file() {
	truncate -s "$2"M "$tmp/$1"
	core "$1" fileio "fd_dev_name=$tmp/$1,fd_dev_size=$(($2 << 20))"
	backdev[$1]=$tmp/$1
}
# Sets `debug_disk` to the disk of the only scsi_debug.
find_debug_disk() {
	set -- /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/*
	debug_disk=${1##*/}
	[ -e "$1" ]
}
# back_debug NAME MIB [parameter=value]...
back_debug() {
	local n=$1 mib=$2
	shift 2
	modprobe scsi_debug dev_size_mb="$mib" delay=0 "$@" || fail "no scsi_debug in this kernel"
	within 10 "the disk of scsi_debug" find_debug_disk
	backdev[$n]=/dev/$debug_disk
	udevadm settle -t 10
	iblock "$n"
}
# back_user NAME MIB [cache]: a program responds according to `rule NAME RULE` (tcmu.py) and logs to $tmp/NAME.said.
# With `cache`, $tmp/NAME.stable has exactly the flushed data.
back_user() {
	modprobe -q target_core_user
	core "$1" user "dev_size=$(($2 << 20)),dev_config=srp/$1,hw_block_size=512,nl_reply_supported=-1"
	rule "$1" pass
	python3 "$here/tcmu.py" "$1" "$2" "$tmp/$1.rule" ${3:+"$tmp/$1.stable"} >"$tmp/$1.said" 2>&1 &
	handler[$1]=$!
	within 20 "the program behind $1: $(cat "$tmp/$1.said")" grep -q '^ready' "$tmp/$1.said"
}
rule() { echo "$2" >"$tmp/$1.new" && mv "$tmp/$1.new" "$tmp/$1.rule"; }
core() {
	local d=$cfg/target/core/$2_0/$1
	mkdir -p "$d" || fail "no $2 in this kernel's target"
	echo "$3" >"$d/control" || fail "control of $1: $3"
	echo "srp-$1" >"$d/wwn/vpd_unit_serial"
	echo 1 >"$d/enable" || fail "cannot enable back end $1 ($3)"
	backdir[$1]=$d
}

unback() {
	local d
	for d in "${handler[@]}"; do kill "$d"; done
	for d in $cfg/target/core/{iblock,fileio,rd_mcp,user}_0/*; do [ ! -f "$d/control" ] || rmdir "$d"; done
	for d in /dev/mapper/srp-*; do
		[ ! -b "$d" ] || { resume "$d"; dm remove --retry "$d"; }
	done
	for d in $cfg/nullb/*/; do [ ! -d "$d" ] || { echo 0 >"$d/power"; rmdir "$d"; }; done
	! loaded scsi_debug || rmmod scsi_debug
	backdev=() backdir=() handler=()
}
