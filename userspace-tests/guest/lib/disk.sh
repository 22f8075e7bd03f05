# SPDX-License-Identifier: GPL-2.0
# The disks of a host, and I/O to them.

# disk HOST LUN: waits for the block device and prints it.
has_disk() {
	set -- /sys/bus/scsi/devices/"${1#host}:0:0:$2"/block/*
	# The files of a disk exist shortly before the disk can be opened.
	[ -e "$1/size" ] && [ -b "/dev/${1##*/}" ] && [ "$(<"$1/size")" != 0 ] && { : <"/dev/${1##*/}"; } 2>/dev/null
}
disk() {
	within 30 "LUN $2 of $1" has_disk "$1" "$2"
	set -- /sys/bus/scsi/devices/"${1#host}:0:0:$2"/block/*
	echo "/dev/${1##*/}"
}

# quiet DEVICE: waits until nothing is in flight. udev reads a disk that was open for writing.
nothing_in_flight() { read -r in_flight </sys/block/${1#/dev/}/inflight && [ "${in_flight// /}" = 00 ]; }
quiet() {
	udevadm settle -t 20
	within 20 "nothing in flight on $1" nothing_in_flight "$1"
}

# fio on a disk, with its report in $tmp/fio. These options keep fio from creating a file in place of a removed disk.
fio_options=(--allow_file_create=0 --eta=never --name=a --ioengine=libaio --direct=1)
# Reads back and compares what it has written.
fio_verify=(--verify=crc32c --verify_fatal=1)
# direct_io SECONDS DEVICE OPTION...: runs for at most SECONDS. verify_io has the same arguments.
direct_io() { timeout "$1" fio "${fio_options[@]}" --filename="$2" --output=$tmp/fio "${@:3}"; }
verify_io() { direct_io "$1" "$2" "${fio_verify[@]}" "${@:3}"; }
# start_io DEVICE OPTION...: runs in the background; `$!` is fio itself. start_verify_io has the same arguments.
start_io() { fio "${fio_options[@]}" --filename="$1" --output=$tmp/fio "${@:2}" >/dev/null 2>&1 & }
start_verify_io() { start_io "$1" "${fio_verify[@]}" "${@:2}"; }
# io_until PID DEVICE OPTION...: verified I/O, repeated until the process has ended, at most 99 times.
io_until() {
	local n
	for ((n = 0; n < 99; n++)); do
		! ended "$1" || return 0
		verify_io 200 "$2" "${@:3}" >/dev/null 2>&1 ||
			fail "I/O errors beside process $1: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	done
	fail "process $1 has not ended"
}
# io_ends PID SECONDS WHAT: waits for fio, which must end in time and without an error.
io_ends() {
	reap "$2" "fio: $3" "$1" || { grep -iE 'err|verify' $tmp/fio | head -n 5; fail "I/O errors: $3"; }
}
