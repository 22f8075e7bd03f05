#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The counters of a session are exact to the byte: I/O on each data path, a lost connection, resets, an abort. Also the
# addresses of the session and its last error. All files are read while connections and the host disappear.
#
# deadline: 300
# takes: 31
# runs: rxe kasan fast
# runs: rxe stock long
# runs: vfab rxe+user kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
rust_driver || skip "the C driver has no such files"
fabric 1
back_held disk 16
target 0
lun 0 0 disk
login 0 ,ch_count=2
dev=$(disk "$host" 0)
generic=/dev/$(ls /sys/block/${dev#/dev/}/device/scsi_generic)
h=/sys/class/scsi_host/$host
counters=$h/statistics
rport=/sys/class/srp_remote_ports/port-${host#host}:1

# counted ARRAY: stores all counters, summed over the channels.
counted() {
	local -n counts=$1
	local f n numbers
	for f in $counters/*; do
		read -ra numbers <$f || fail "cannot read $f"
		counts[${f##*/}]=0
		for n in "${numbers[@]}"; do ((counts[${f##*/}] += n)); done
	done
}
# does WHAT COUNTER=N... -- COMMAND...: checks that COMMAND increases these counters by N, and no other one.
does() {
	local what=$1 counter
	local -A want=() before=() after=()
	shift
	while [ "$1" != -- ]; do
		want[${1%=*}]=${1#*=}
		shift
	done
	shift
	counted before
	timeout 60 "$@" >$tmp/did 2>&1 || fail "$what: $(<$tmp/did)"
	counted after
	for counter in "${!want[@]}"; do [ -n "${after[$counter]-}" ] || fail "no counter $counter"; done
	for counter in "${!after[@]}"; do
		equal "$what: $counter" $((after[$counter] - before[$counter])) ${want[$counter]-0}
	done
}

# Data paths

addresses="sgid orig_dgid"
if [ $kind != vfab ]; then
	addresses="src dest"
	from 0
	is "the target's address" $h/dest $dest:$port
	read -r ours <$h/src
	[[ $ours =~ ^"$src":[1-9][0-9]*$ ]] || fail "src is '$ours'"
fi
equal "last_error before there was one" "$(cat $h/last_error)" ""
equal "logins" $(<$counters/login_tries) 1

hush
does "nothing" -- true
does "reads of 4 KiB" commands=10 read_bytes=40960 way_static=10 -- dd if=$dev of=/dev/null bs=4k count=10 iflag=direct
does "reads of 64 KiB" commands=3 read_bytes=196608 way_dynamic=3 -- dd if=$dev of=/dev/null bs=64k count=3 iflag=direct
does "writes of 8 KiB" commands=5 write_bytes=40960 way_immediate=5 -- dd if=/dev/zero of=$dev \
	bs=8k count=5 oflag=direct
does "writes of 128 KiB" commands=2 write_bytes=262144 way_dynamic=2 -- dd if=/dev/zero of=$dev \
	bs=128k count=2 oflag=direct
does "commands without data" commands=3 way_none=3 -- bash -c \
	"for i in 1 2 3; do sg_raw $generic 0 0 0 0 0 0 || exit; done"
# A buffer of 200 bytes, more than the target sends.
inquiry=(sg_raw -r 200 $generic 12 0 0 0 c8 0)
got=$("${inquiry[@]}" 2>&1 | sed -n 's/^Received \([0-9]*\) bytes.*/\1/p')
[ "${got:-200}" -lt 200 ] || fail "INQUIRY: '$got' bytes"
does "INQUIRY" commands=1 read_bytes=$got way_static=1 -- "${inquiry[@]}"
second=/sys/block/${dev#/dev/}/mq/1/cpu_list
if [ -e $second ]; then
	IFS=',- ' read -r cpu _ <$second
	read -ra before <$counters/read_bytes
	taskset -c $cpu dd if=$dev of=/dev/null bs=4k count=10 iflag=direct 2>$tmp/did || fail "dd: $(<$tmp/did)"
	read -ra after <$counters/read_bytes
	equal "channels" ${#after[@]} 2
	equal "bytes of the first channel" $((after[0] - before[0])) 0
	equal "bytes of the second channel" $((after[1] - before[1])) 40960
fi
unhush
say "each way: the counters are right"

# Faults

python3 "$here/counters.py" $host $addresses >$tmp/reader 2>&1 &
reader=$!
within 20 "a reader of the files" grep -q reading $tmp/reader

# trouble FROM WORDS: checks that last_error contains WORDS, with a time since FROM.
trouble() {
	local when what
	read -r when what <$h/last_error || fail "last_error is empty"
	[[ $what =~ ^$2 ]] || fail "last_error is '$when $what'"
	[ $when -ge $1 ] && [ $when -le $EPOCHSECONDS ] || fail "last_error is of $when, not between $1 and $EPOCHSECONDS"
}
state() { [ "$(<$rport/state)" = $1 ]; }
failed() { [ $(<$counters/login_tries) -ge 3 ] && grep -q 'reconnect failed: ' $h/last_error; }

lost_once() { [ "$(<$counters/connections_lost)" = 1 ]; }
begin_at=$EPOCHSECONDS
target_off 0
within 20 "a loss" lost_once
within 30 "failed attempts" failed
equal "channels without a connection" $(<$h/ch_count) 0
target_on 0
within 30 "another connection" state running
trouble $begin_at 'reconnect failed: '
equal "losses" $(<$counters/connections_lost) 1
say "lost, and back after $(<$counters/login_tries) logins: $(<$h/last_error)"

begin_at=$EPOCHSECONDS
tries=$(<$counters/login_tries)
timeout 60 sg_reset -H $dev >$tmp/err 2>&1 || fail "sg_reset -H: $(<$tmp/err)"
trouble $begin_at 'connection lost: reset by the error handler$'
equal "host resets" $(<$counters/host_resets) 1
equal "losses" $(<$counters/connections_lost) 2
equal "logins for a host reset" $(($(<$counters/login_tries) - tries)) 1
timeout 60 sg_reset -d $dev >$tmp/err 2>&1 || fail "sg_reset -d: $(<$tmp/err)"
equal "device resets" $(<$counters/device_resets) 1

# A command is held until its abort was requested.
quiet $dev
echo 2 >/sys/block/${dev#/dev/}/device/timeout
equal "aborts before there was one" $(<$counters/aborts) 0
hold disk
timeout 60 dd if=$dev of=/dev/null bs=4k count=1 iflag=direct 2>$tmp/did &
dd=$!
aborted() { [ "$(<$counters/aborts)" -gt 0 ]; }
within 30 "an abort" aborted
let_go disk
reap 60 "a read that was aborted" $dd || fail "a read that was aborted: $(<$tmp/did)"
quiet $dev
equal "violations" $(<$counters/violations) 0

# The files disappear while they are read.
logout "$host"
reap 60 "the reader" $reader || fail "the reader: $(tail -n 3 $tmp/reader)"
rounds=$(tail -n 1 $tmp/reader)
[ $rounds -ge 20 ] || fail "the files were read $rounds times"
say "read $rounds times while connections came and went"
clean

[ $kind != vfab ] || { ok "$kind"; exit; }
# Without the option `src` the route determines the address.
guid=$(service_guid)
equal "login without src" "$(write_login 0 "id_ext=$guid,ioc_guid=$guid,dest=$dest:$port")" ""
find_hosts
host=${list% }
read -r ours </sys/class/scsi_host/$host/src
[[ $ours =~ ^"$src":[1-9][0-9]*$ ]] || fail "src is '$ours'"
ok "$kind"
