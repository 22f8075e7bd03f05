# SPDX-License-Identifier: GPL-2.0
# Shared by the guest tests: soft RDMA devices, an LIO target, logins, and the
# checks that every test ends with. A test sources this file, calls `begin`
# with its deadline in seconds, and ends with `ok TEXT`. Whatever way it ends,
# the guest is left as it was found. In the long set LONG is 1: more rounds.
set -uo pipefail

kind=${1:-rxe}				# rxe or siw
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$(basename "$0" .sh)
cfg=/sys/kernel/config
port=5555
ns=ini
tmp=
watchdog=
gauge=
declare -A backdev=()			# back end name -> block device
declare -A backdir=()			# back end name -> configfs folder

say() { printf '%s: %s\n' "$name" "$*"; }
skip() { say "skipped: $*"; exit 77; }
# fio has an error like any other for it.
bad_data() { grep -aqsE 'verify failed|verify: bad|err=84' $tmp/fio* $tmp/bad; }

fail() {
	say "FAILED: $*"
	! bad_data || say "FAILED: data is wrong, says fio"
	say "at: $(for i in 0 1 2 3; do caller $i; done 2>/dev/null | tr '\n' ' ')"
	context
	exit 1
}

# What one wants to see after a failure.
context() {
	echo "--- ib_srp: refcnt $(cat /sys/module/ib_srp/refcnt 2>/dev/null || echo 'not loaded')"
	echo "--- hosts: $(hosts) disks: $(lsblk -dno NAME,SIZE,TRAN 2>/dev/null | tr '\n' ';')"
	echo "--- rdma resources: $(timeout 10 rdma resource show | tr '\n' ';')"; ours 2>&1 | head -n 20
	for k in /sys/class/infiniband/*; do echo "--- counters of ${k##*/}: $(rdma statistic show link "${k##*/}/1" 2>/dev/null)"; done
	[ ! -s $tmp/odd ] || { echo "--- the target said:"; tail -n 20 $tmp/odd; }
	local h f d
	for h in $(hosts); do
		echo "--- $h:$(for f in state host_busy req_lim zero_req_lim ch_count; do printf ' %s %s' $f "$(cat /sys/class/scsi_host/$h/$f 2>&1)"; done)"
		for d in /sys/bus/scsi/devices/${h#host}:*/block/*; do grep -s . /sys/kernel/debug/block/${d##*/}/hctx*/{busy,dispatch}; done
	done
	echo "--- tasks in D state:"; ps -eo pid,stat,wchan:32,args 2>/dev/null | awk '$2 ~ /^D/' | head -n 10
	echo "--- kernel log since the test began:"; log_since | grep -Ev "$chatter" | tail -n 60
	echo "---"
}

# Forks are what costs most on the debug kernel under TCG: where a test does
# something often, it uses what bash has.
# is WHAT FILE WANTED: the first line of FILE.
is() {
	local got=
	read -r got <"$2" || [ -n "$got" ] || fail "$1: cannot read $2"
	[ "$got" = "$3" ] || fail "$1: $2 has '$got', wanted '$3'"
}

# rounds FAST LONG: how often to do something in the fast and in the long set, in `rounds`.
rounds() { rounds=$1; [ -z "${LONG-}" ] || rounds=$2; }

# equal WHAT GOT WANTED
equal() { [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"; }

# --- bounds of time -----------------------------------------------------------

# A bound that does not hold is a failure, unless the host kept the guest from its CPUs for at least as long as it
# was exceeded, in that very time (gauge.py). Then nothing can be judged: ci/guests.sh runs the test again, alone.
too_slow() {
	! bad_data || fail "data is wrong, says fio"
	no_reports
	say "skipped: machine too slow: $*"
	exit 75
}

# All times are in microseconds of EPOCHREALTIME.
ms() { echo "$(($1 / 1000)) ms"; }
clock() { now=${EPOCHREALTIME/./}; }

gauge_on() {
	setsid python3 "$here/gauge.py" run $tmp/gauge &
	gauge=$!
	disown
}
# While the guest sleeps it lacks nothing.
gauge_off() { kill -KILL -- -$gauge; gauge=; }

# without_cpu FROM TO: how long the guest lacked a CPU in that time, in `stolen`.
without_cpu() { stolen=$(python3 "$here/gauge.py" stolen $tmp/gauge $1 $2 2>/dev/null) || stolen=0; }

# exceeded OVER FROM TO WHAT: a bound does not hold by OVER, for what was done in that time.
exceeded() {
	without_cpu $2 $3
	[ $1 -le 0 ] || [ $stolen -lt $1 ] || too_slow "$4 ($(ms $stolen) without CPU)"
	fail "$4 ($(ms $stolen) without CPU)"
}
# in_time WHAT FROM TO LIMIT: it took no longer than LIMIT.
in_time() {
	local over=$(($3 - $2 - $4))
	[ $over -le 0 ] || exceeded $over $2 $3 "$1 took $(ms $(($3 - $2))), at most $(ms $4)"
}

# within SECONDS WHAT COMMAND...: waits until COMMAND succeeds. For as long as the guest lacked a CPU it waits on, and
# then knows nothing.
within() {
	local begun=${EPOCHREALTIME/./} most=$(($1 * 1000000)) what=$2 over stolen
	shift 2
	until "$@"; do
		over=$((${EPOCHREALTIME/./} - begun - most))
		if [ $over -ge 0 ]; then
			without_cpu $begun $((begun + most + over))
			[ $stolen -gt $over ] || fail "not within $(ms $most): $what ($(ms $stolen) without CPU)"
			sleep 0.5
		fi
		sleep 0.05
	done
	[ -z "${stolen-}" ] || too_slow "$what after $(ms $((${EPOCHREALTIME/./} - begun))), wanted within $(ms $most), $(ms $stolen) without CPU"
}

# Conditions for `within`, whose local variables they see.
not() { ! "$@"; }
# ended PID: the process has ended.
ended() { ! kill -0 "$1" 2>/dev/null; }
# or_ended PID COMMAND...: COMMAND succeeds, or it never will, as the process has ended.
or_ended() { "${@:2}" || ended "$1"; }
# more_lines FILE N: FILE has more than N lines.
more_lines() { [ "$(wc -l <"$1")" -gt "$2" ]; }

# --- the kernel log ---------------------------------------------------------

mark() { marker="guest-test $name $$ $RANDOM$RANDOM"; echo "$marker" >/dev/kmsg; }
log_since() { dmesg | awk -v m="$marker" 'f {print} index($0, m) {f = 1}'; }

# Lines that no test may cause: extended regular expressions, and all of them as one.
kernel_reports=(
	'BUG:'
	'WARNING:'
	'Oops'
	'general protection fault'
	'Unable to handle'
	'possible recursive locking'
	'circular locking'
	'inconsistent lock state'
	'suspicious RCU'
	'bad unlock balance'
	'held lock freed'
	'sleeping function called'
	'scheduling while atomic'
	'list_(add|del) corruption'
	'ODEBUG'
	'refcount_t'
	'KASAN'
	'UBSAN'
	'blocked for more than'
	'soft lockup'
	'hard LOCKUP'
	'self-detected stall'
	'detected stalls'
	'kernel panic'
	'panicked at'
	'rust_kernel: panic'
	'workqueue lockup'
	'unreferenced object'
	'DEBUG_LOCKS_WARN_ON'
)
printf -v reports '|%s' "${kernel_reports[@]}"
reports=${reports:1}

no_reports() {
	local found
	found=$(log_since | grep -E "$reports" | grep -v 'guest-test' | head -n 5)
	[ -z "$found" ] || fail "kernel report: $found"
}

# What the target and the soft devices say all the time.
chatter='MODE SENSE: unimplemented|receiving failed for ioctx|speed is unknown|callbacks suppressed|Received SRP_LOGIN_REQ'

# logged REGEX: the log since the mark has such a line (printk may be late).
# All is read: with pipefail, `grep -q` fails when it has found what it wants before awk has written all.
log_has() { log_since | grep -Ei -- "$1" >/dev/null; }
logged() { within 5 "a log line with '$1'" log_has "$1"; }

# --- modules ------------------------------------------------------------------

# Ours is out of tree; SRP_MODULE names its file if it is not installed.
load_srp() {
	if [ -n "${SRP_MODULE-}" ]; then
		modprobe -a scsi_transport_srp rdma_cm ib_cm 2>/dev/null
		insmod "$SRP_MODULE" "$@" || fail "insmod $SRP_MODULE $* failed"
	else
		modprobe ib_srp "$@" || fail "modprobe ib_srp $* failed"
	fi
	if rust_driver; then is_rust=1; fi
}
unload_srp() { timeout 60 rmmod ib_srp 2>$tmp/rmmod; }
# Also while it is unloaded.
is_rust=
rust_driver() { [ -n "$is_rust" ] || grep -q O /sys/module/ib_srp/taint 2>/dev/null; }
driver() { if rust_driver; then echo "the Rust ib_srp"; else echo "the kernel's C ib_srp"; fi; }
loaded() { [ -d /sys/module/"$1" ]; }

load_target() {
	local m
	for m in dummy veth rdma_rxe siw rdma_cm target_core_mod target_core_iblock target_core_file ib_srpt sd_mod sg; do
		modprobe -q $m 2>/dev/null
	done
	modprobe -q null_blk nr_devices=0 2>/dev/null
	mountpoint -q $cfg || mount -t configfs configfs $cfg
	[ "$kind" != siw ] || loaded siw || skip "this kernel has no siw"
	mkdir -p $cfg/target/srpt || fail "no SRP target in this kernel"
	[ "$(cat $cfg/target/srpt/discovery_auth/rdma_cm_port)" = $port ] ||
		echo $port >$cfg/target/srpt/discovery_auth/rdma_cm_port
}

# --- RDMA devices ---------------------------------------------------------------

# fabric N: N devices, device i over its own dummy netdev, of MTU if set, at 10.0.i.1; each is
# the initiator's and the target's port at once. siw listens on its own netdev
# only, which nothing that is sent to one's own address ever passes: so two hosts,
# and IPv6, because the target's one listener is an IPv6 socket, on which siw
# does not understand IPv4.
fabric() {
	local i
	[ $kind = rxe ] || { fabric_pair "$1"; return; }
	for ((i = 0; i < $1; i++)); do
		ip link add dummy$i mtu ${MTU:-1500} type dummy && ip addr add 10.0.$i.1/24 dev dummy$i && ip link set dummy$i up || fail "cannot make dummy$i"
		rdma link add rxe$i type rxe netdev dummy$i || fail "cannot make rxe$i"
		within 10 "class device of rxe$i" test -e "$(add_target $i)"
	done
	baseline
}

# fabric_pair N: two hosts. The target's device i at 10.0.i.1 and fd00:0:0:i::1, and device 10+i for
# the initiator at 10.0.i.2 and fd00:0:0:i::2, with a veth pair between them. The initiator's host is a
# network namespace; but siw opens its sockets in that of whoever connects, which is the first one
# when a kernel thread does. There it is one host that sends to itself over the pair.
fabric_pair() {
	local i
	paired=$1
	if [ $kind = siw ]; then
		ip -6 rule add pref 100 lookup local && ip -6 rule del pref 0 || fail "this kernel has no routing rules"
	else
		ip netns add $ns || fail "cannot make a network namespace"
		ini ip link set lo up
	fi
	for ((i = 0; i < $1; i++)); do
		ip link add v$i type veth peer name w$i || fail "cannot make a veth pair"
		[ $kind = siw ] || ip link set w$i netns $ns
		ip addr add 10.0.$i.1/24 dev v$i && ip link set v$i up
		ini ip addr add 10.0.$i.2/24 dev w$i && ini ip link set w$i up
		if [ $kind = siw ]; then
			ip addr add fd00:0:0:$i::1/128 dev v$i nodad && ip addr add fd00:0:0:$i::2/64 dev w$i nodad
			ip -6 rule add pref 10 iif lo from fd00:0:0:$i::2 to fd00:0:0:$i::1 lookup $((1000 + i))
			ip -6 rule add pref 10 iif lo from fd00:0:0:$i::1 to fd00:0:0:$i::2 lookup $((2000 + i))
		fi
		rdma link add $kind$i type $kind netdev v$i || fail "cannot make $kind$i"
		pair_device $i
		neighbours $i
	done
	baseline
}

# ini COMMAND...: as the initiator's host. Its /sys stays that of the first namespace, where the RDMA devices are.
in_ns=(nsenter --net=/run/netns/$ns)
ini() { if [ $kind = siw ]; then "$@"; else "${in_ns[@]}" "$@"; fi; }

# Who is where; a loaded guest does not always learn it within the second that
# RDMA/CM gives. Routes go with the link.
neighbours() {
	local v w
	# The pair goes with the namespace of either end.
	[ -e /sys/class/net/v$1/address ] || return 0
	read -r v </sys/class/net/v$1/address
	w=$(ini ip -o link show w$1 | sed 's/.*link.ether \([^ ]*\).*/\1/')
	ip neigh replace 10.0.$1.2 lladdr $w dev v$1
	ini ip neigh replace 10.0.$1.1 lladdr $v dev w$1
	[ $kind = siw ] || return 0
	ip -6 route replace fd00:0:0:$1::1 dev w$1 table $((1000 + $1))
	ip -6 route replace fd00:0:0:$1::2 dev v$1 table $((2000 + $1))
	ip neigh replace fd00:0:0:$1::2 lladdr $w dev v$1
	ip neigh replace fd00:0:0:$1::1 lladdr $v dev w$1
}
pair_device() {
	ini rdma link add ${kind}1$1 type $kind netdev w$1 || fail "cannot make ${kind}1$1"
	within 10 "class device of ${kind}1$1" test -e "$(add_target "$1")"
}
paired=

# The RDMA device from which one logs in to target I, and its add_target.
initiator() { echo $kind${paired:+1}$1; }
add_target() { echo /sys/class/infiniband_srp/srp-$kind${paired:+1}$1-1/add_target; }

# The 16 bytes of GID 0 of a device as hex digits, in `gid`.
gid() { read -r gid </sys/class/infiniband/$1/ports/1/gids/0; gid=${gid//:/}; }

# --- the target -------------------------------------------------------------------

# Back ends. Each takes a name and a size in MiB.
back_null() {
	null_blk "$1" "$2"
	iblock "$1"
}
null_blk() {
	local d=$cfg/nullb/nullb_$1
	mkdir "$d" || fail "no null_blk with configfs in this kernel"
	echo "$2" >"$d/size"; echo 1 >"$d/memory_backed"; echo 512 >"$d/blocksize"
	echo 16384 >"$d/max_sectors"		# else every request ends at 124 KiB
	echo 1 >"$d/power" || fail "null_blk $1 cannot be powered on"
	backdev[$1]=/dev/nullb_$1
	within 5 "${backdev[$1]}" test -b "${backdev[$1]}"
}
# back_held NAME MIB: one that can hold what it is given: `hold NAME` and `let_go NAME`.
back_held() {
	null_blk "$1" "$2"
	modprobe -q dm_mod
	dmsetup create "srp-$1" --table "0 $(($2 * 2048)) linear ${backdev[$1]} 0" || fail "no device mapper in this kernel"
	dmsetup mknodes
	backdev[$1]=/dev/mapper/srp-$1
	within 5 "${backdev[$1]}" test -b "${backdev[$1]}"
	iblock "$1"
}
hold() { dmsetup suspend --nolockfs "srp-$1" || fail "cannot hold back end $1"; }
let_go() { dmsetup resume "srp-$1" || fail "cannot let back end $1 go on"; }
iblock() {
	core "$1" iblock "udev_path=${backdev[$1]}"
}
back_ram() { core "$1" rd_mcp "rd_pages=$(($2 * 256))"; }
back_file() {
	truncate -s "$2"M "$tmp/$1"
	core "$1" fileio "fd_dev_name=$tmp/$1,fd_dev_size=$(($2 << 20))"
	backdev[$1]=$tmp/$1
}
# The disk of the one scsi_debug, in `debug_disk`.
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
# back_user NAME MIB [cache]: a program answers, as `rule NAME RULE` says (tcmu.py); what it says of them is in
# $tmp/NAME.said. With `cache` what was flushed is in $tmp/NAME.stable, and nothing else.
back_user() {
	modprobe -q target_core_user
	core "$1" user "dev_size=$(($2 << 20)),dev_config=srp/$1,hw_block_size=512,nl_reply_supported=-1"
	rule "$1" pass
	python3 "$here/tcmu.py" "$1" "$2" "$tmp/$1.rule" ${3:+"$tmp/$1.stable"} >"$tmp/$1.said" 2>&1 &
	handler[$1]=$!
	within 20 "the program behind $1: $(cat "$tmp/$1.said")" grep -q '^ready' "$tmp/$1.said"
}
rule() { echo "$2" >"$tmp/$1.new" && mv "$tmp/$1.new" "$tmp/$1.rule"; }
declare -A handler=()			# back end name -> process
core() {
	local d=$cfg/target/core/$2_0/$1
	mkdir -p "$d" || fail "no $2 in this kernel's target"
	echo "$3" >"$d/control" || fail "control of $1: $3"
	echo "srp-$1" >"$d/wwn/vpd_unit_serial"
	echo 1 >"$d/enable" || fail "cannot enable back end $1 ($3)"
	backdir[$1]=$d
}

# target I [off]: makes device I a target port, which stays disabled with `off`. Initiators are known by their port
# id, initiator_ext (0 to 3) and the last half of the GID they come from.
target() {
	local ext acls=()
	gid $kind$1
	wwn[$1]=$cfg/target/srpt/0x$gid
	tpg[$1]=${wwn[$1]}/0x$gid
	gid $kind${paired:+1}$1
	for ext in 0 1 2 3; do acls+=("${tpg[$1]}/acls/0x000000000000000$ext${gid:16}"); done
	mkdir "${wwn[$1]}" "${tpg[$1]}" "${acls[@]}" || fail "cannot make target port ${wwn[$1]}"
	[ "${2-}" = off ] || echo 1 >"${tpg[$1]}/enable" || fail "cannot enable target $1"
}
declare -A wwn=() tpg=()

# lun I L NAME: back end NAME becomes logical unit L of target I.
lun() {
	local t=${tpg[$1]} a acls
	acls=("$t"/acls/*)
	# With many LUNs one initiator port is enough.
	[ "$2" = 0 ] || acls=("${acls[0]}")
	mkdir "$t/lun/lun_$2" "${acls[@]/%//lun_$2}" && ln -s "${backdir[$3]}" "$t/lun/lun_$2/$3" || fail "cannot make LUN $2"
	for a in "${acls[@]}"; do ln -s "$t/lun/lun_$2" "$a/lun_$2/l" || fail "cannot map LUN $2"; done
}

untarget() {
	local w t a
	for w in $cfg/target/srpt/0x*; do
		[ -d "$w" ] || continue
		for t in "$w"/0x*; do
			[ -d "$t" ] || continue
			echo 0 >"$t/enable" 2>/dev/null
			for a in "$t"/acls/*; do
				[ -d "$a" ] || continue
				set -- "$a"/lun_*
				[ ! -d "$1" ] || { rm -f "${@/%//l}"; rmdir "$@"; }
				rmdir "$a"
			done
			set -- "$t"/lun/lun_*
			[ ! -d "$1" ] || { find "$@" -maxdepth 1 -type l -delete; rmdir "$@"; }
			rmdir "$t"
		done
		rmdir "$w"
	done
	wwn=() tpg=()
}

unback() {
	local d
	for d in "${handler[@]}"; do kill "$d"; done
	for d in $cfg/target/core/{iblock,fileio,rd_mcp,user}_0/*; do [ ! -f "$d/control" ] || rmdir "$d"; done
	for d in /dev/mapper/srp-*; do
		[ ! -b "$d" ] || { dmsetup resume "$d"; dmsetup remove --retry "$d"; }
	done
	for d in $cfg/nullb/*/; do [ ! -d "$d" ] || { echo 0 >"$d/power"; rmdir "$d"; }; done
	! loaded scsi_debug || rmmod scsi_debug
	backdev=() backdir=() handler=()
}

# --- logins -------------------------------------------------------------------------

# The SCSI hosts of ib_srp, in `list`.
find_hosts() {
	local h p
	list=
	for h in /sys/class/scsi_host/host*; do
		p=
		{ read -r p <"$h/proc_name"; } 2>/dev/null
		[ "$p" != ib_srp ] || list+="${h##*/} "
	done
}
hosts() { find_hosts; echo $list; }
no_hosts() { find_hosts; [ -z "$list" ]; }
gone() { [ ! -e "/sys/class/scsi_host/$1" ]; }

# The target takes it from the first RDMA device that it sees.
service_guid() { cat /sys/module/ib_srpt/parameters/srpt_service_guid; }

# from I: the addresses of a connection to target I, in `src` and `dest`.
from() {
	src=10.0.$1.1 dest=10.0.$1.1
	[ -z "$paired" ] || src=10.0.$1.2
	[ $kind = rxe ] || { src="[fd00:0:0:$1::2]"; dest="[fd00:0:0:$1::1]"; }
}

# The path that the driver makes itself goes by link-local addresses; LIO listens at the service of its TCP port.
link_local() { ! { ip -6 addr show dev v0 tentative; ip -n $ns -6 addr show dev w0 tentative; } | grep inet6 >/dev/null; }
listener() { printf %016x $((0x01060000 + port)); }

# login_string I [,option=value]...: how one logs in to target I, with CM=ib by the InfiniBand connection manager.
login_string() {
	guid=$(service_guid)
	if [ "${CM-}" = ib ]; then
		within 20 "link-local addresses" link_local
		gid rxe$1
		echo "id_ext=$guid,ioc_guid=$guid,dgid=$gid,pkey=ffff,service_id=$(listener)${2-}"
		return
	fi
	from $1
	echo "id_ext=$guid,ioc_guid=$guid,src=$src,dest=$dest:$port${2-}"
}

# write_login I STRING: writes to add_target of the initiator's device; prints
# the error's text, nothing on success.
write_login() {
	local out
	if [ -z "$paired" ]; then
		out=$({ printf %s "$2" >"$(add_target $1)"; } 2>&1)
	else
		out=$(timeout -k 5 60 $([ $kind = siw ] || echo "${in_ns[@]}") bash -c 'printf %s "$1" >"$2"' _ "$2" "$(add_target $1)" 2>&1)
		case $? in 124|137) out="no answer within 60 s" ;; esac
	fi
	out=${out##*: }		# "bash: line 1: printf: write error: File exists"
	printf '%s' "$out"
}

# login I [,option=value]...: sets `host`. A removed target may count for a
# moment longer than its host can be seen.
login() {
	local before error try h
	find_hosts
	before=" $list"
	for try in 1 2 3 4 5 6 7 8 9 10; do
		error=$(write_login "$1" "$(login_string "$1" "${2-}")")
		case $error in
		"File exists") sleep 0.3 ;;
		# One in 30 connections between two siw devices ends before the MPA reply, with the C driver
		# as well.
		"Connection reset by peer")
			[ "$kind" = siw ] && [ $try -le 3 ] && say "siw broke off a connection" || break
			# A test may have to prepare it once more.
			! declare -F before_login >/dev/null || before_login
			;;
		*) break ;;
		esac
	done
	[ -z "$error" ] || fail "login to target $1 ${2-}: $error"
	find_hosts
	host=
	for h in $list; do [[ $before == *" $h "* ]] || host=$h; done
	# It may have the number of one that has gone meanwhile.
	[ -n "$host" ] || h=$(dmesg | sed -n 's/.*scsi \(host[0-9]*\): SRP\.T10.*/\1/p' | tail -n 1)
	[ -n "$host" ] || [[ " $list" != *" $h "* ]] || host=$h
	[ -n "$host" ] || fail "login to target $1 made no SCSI host"
}

# delete_port HOST: its session is to go.
delete_port() { echo 1 >"/sys/class/srp_remote_ports/port-${1#host}:1/delete"; }
# logout HOST: and waits until it is gone.
logout() {
	delete_port "$1" || fail "cannot log $1 out"
	within "${2-20}" "$1 removed" gone "$1"
}

# disk HOST LUN: prints the block device, when it is there.
has_disk() {
	set -- /sys/bus/scsi/devices/"${1#host}:0:0:$2"/block/*
	# It has its files shortly before it can be opened.
	[ -e "$1/size" ] && [ -b "/dev/${1##*/}" ] && [ "$(<"$1/size")" != 0 ] && { : <"/dev/${1##*/}"; } 2>/dev/null
}
disk() {
	within 30 "LUN $2 of $1" has_disk "$1" "$2"
	set -- /sys/bus/scsi/devices/"${1#host}:0:0:$2"/block/*
	echo "/dev/${1##*/}"
}

# quiet DEVICE: nothing is in flight. udev looks at a disk that was open for writing.
nothing_in_flight() { read -r in_flight </sys/block/${1#/dev/}/inflight && [ "${in_flight// /}" = 00 ]; }
quiet() {
	udevadm settle -t 20
	within 20 "nothing in flight on $1" nothing_in_flight "$1"
}

# fio on a disk, with its report in $tmp/fio. A disk that has gone does not come back as a file.
fio_options=(--allow_file_create=0 --eta=never --name=a --ioengine=libaio --direct=1)
# It reads what it has written and compares.
fio_verify=(--verify=crc32c --verify_fatal=1)
# direct_io SECONDS DEVICE OPTION...: for so many seconds at most. verify_io has the same arguments.
direct_io() { timeout "$1" fio "${fio_options[@]}" --filename="$2" --output=$tmp/fio "${@:3}"; }
verify_io() { direct_io "$1" "$2" "${fio_verify[@]}" "${@:3}"; }
# start_io DEVICE OPTION...: in the background, where `$!` is fio itself. start_verify_io has the same arguments.
start_io() { fio "${fio_options[@]}" --filename="$1" --output=$tmp/fio "${@:2}" >/dev/null 2>&1 & }
start_verify_io() { start_io "$1" "${fio_verify[@]}" "${@:2}"; }
# io_ends PID SECONDS WHAT: it does so in time, and without an error.
io_ends() {
	within "$2" "end of fio: $3" ended "$1"
	wait "$1" || { grep -iE 'err|verify' $tmp/fio | head -n 5; fail "I/O errors: $3"; }
}

# Memory that nobody uses goes back, that of KASAN's quarantine as well.
shrink() {
	local cache
	echo 3 >/proc/sys/vm/drop_caches
	for cache in /sys/kernel/slab/*/shrink; do echo 1 >$cache; done 2>/dev/null
}

# --- leaks --------------------------------------------------------------------------

# RDMA objects that our module made and that are still there. Queue pairs of
# rdma_cm's users bear its name: those beyond what was there before the first
# login. With two hosts only the initiator's count: ib_srpt on siw keeps its own
# for long. The C driver has one PD for each device, also without a login.
# With a deadline: the dump walks all objects again for each message.
resources() { timeout -k 1 20 rdma resource show "$@" || echo "[ib_srp] rdma resource show $*: status $?"; }
qps() { resources qp 2>/dev/null | grep -c "^link $kind${paired:+1[0-9]}"; }
ours() {
	local what n
	n=$(qps)
	[ $n -le ${idle_qps=0} ] || { echo "$n queue pairs, $idle_qps before the first login"; resources qp | grep "^link $kind${paired:+1[0-9]}"; }
	# A memory region keeps its protection domain, so those of the Rust driver, whose domains are named,
	# need no look. ib_srpt has thousands on siw, and their dump takes minutes on the debug kernel.
	for what in cq mr pd cm_id; do
		case $what in
		pd) rust_driver || continue ;;
		mr) ! rust_driver || continue ;;
		esac
		resources $what 2>/dev/null | grep -F '[ib_srp]' | sed "s/^/$what: /"
	done
}
baseline() { idle_qps=$(qps); idle=$(resources 2>/dev/null); }
# As a rule all is as it was before the first login, the target's part too.
nothing_ours() { [ "$(resources 2>/dev/null)" = "$idle" ] || [ -z "$(ours)" ]; }
unused() { ! loaded ib_srp || { read -r refs </sys/module/ib_srp/refcnt && [ $refs = 0 ]; }; }

# After the last log-out nothing may be left.
clean() {
	within 20 "no SCSI host of ib_srp" no_hosts
	within 10 "no RDMA object of ib_srp" nothing_ours
	udevadm settle -t 10
	within 10 "module reference count 0" unused
	no_reports
}

# --- what ib_srp's events tell --------------------------------------------------------

# hush: nothing is in flight to the disks of the host of `dev`, and udev sends nothing either, as it leaves a disk alone
# that somebody has locked, until `unhush`.
hush() {
	local d fd
	hushed=()
	[ -b "$dev" ] || return 0
	quiet $dev
	d=$(readlink -f /sys/block/${dev#/dev/}/device)
	for d in "${d%/target*}"/target*/*/block/*; do
		{ exec {fd}</dev/${d##*/}; } 2>/dev/null || continue
		hushed+=($fd)
		flock -w 20 $fd || fail "cannot lock ${d##*/}"
	done
	within 20 "nothing in flight on $dev" nothing_in_flight $dev
}
unhush() { local fd; for fd in "${hushed[@]}"; do exec {fd}<&-; done; }

tracing=/sys/kernel/tracing
events=$tracing/events/ib_srp
dev=
# listen [EVENT]...: notes these events from now on, or all of them. The C driver has none.
listen() {
	local e
	rust_driver || return 0
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no trace events in this kernel"
	[ -d $events ] || fail "no events of ib_srp: $(ls $tracing/events)"
	# What was sent before would be seen to end only.
	hush
	# The order across CPUs; User-Mode Linux has a clock of 10 ms.
	echo counter >$tracing/trace_clock
	echo 16384 >$tracing/buffer_size_kb
	echo >$tracing/trace
	for e in "${@:-}"; do echo 1 >$events/${e:+srp_$e/}enable || fail "no event srp_$e"; done
	unhush
}
# told RULE...: what traces.py finds in it. `ended`: every command that was sent has ended, once.
told() {
	local found
	rust_driver || return 0
	hush
	cat $tracing/trace >$tmp/trace
	unhush
	found=$(python3 "$here/traces.py" $tmp/trace "$@" 2>&1) || fail "events: $found $(tail -n 30 $tmp/trace)"
	say "$found"
}
unlisten() {
	[ ! -d $events ] || echo 0 >$events/enable
	echo >$tracing/trace
	echo 1408 >$tracing/buffer_size_kb
	echo local >$tracing/trace_clock
} 2>/dev/null

# --- begin and end --------------------------------------------------------------------

# begin SECONDS [LONG SECONDS]: the deadline of the whole test.
begin() {
	[ -z "${LONG-}" ] || [ $# = 1 ] || shift
	began=$SECONDS
	mark
	tmp=$(mktemp -d /dev/shm/srp.XXXXXX)
	trap finish EXIT
	trap deadline TERM
	(
		trap - EXIT TERM
		sleep "$1" &
		trap 'kill $!; exit' TERM
		wait $!
		kill -TERM $$
		# What it has made goes first, else the next test fails, too.
		sleep 120
		kill -KILL $$
	) &
	watchdog=$!
	clock; test_begun=$now
	gauge_on
	load_target
	loaded ib_srp || load_srp
	say "$(driver), $kind, $(uname -r)"
}
# A guest that lacked its CPUs for half of the time cannot be held to it.
deadline() {
	echo w >/proc/sysrq-trigger
	clock
	without_cpu $test_begun $now
	context
	[ $stolen -lt $(((now - test_begun) / 2)) ] || too_slow "the deadline after $(ms $((now - test_begun))), $(ms $stolen) without CPU"
	say "FAILED: deadline ($(ms $stolen) without CPU)"
	exit 1
}

# Everything away, in the order in which it must go.
finish() {
	local rc=$? h d
	trap - EXIT
	trap '' TERM
	for d in "${!handler[@]}"; do rule "$d" pass; done
	for h in $(jobs -p); do [[ " $watchdog ${handler[*]} " == *" $h "* ]] || kill "$h" 2>/dev/null; done
	for d in /dev/mapper/srp-*; do [ ! -b "$d" ] || dmsetup resume "$d"; done
	loaded ib_srp && for h in $(hosts); do delete_port "$h"; done
	! declare -F undo >/dev/null || undo
	! grep -q '\[counter\]' $tracing/trace_clock 2>/dev/null || unlisten
	for h in $(seq 100); do no_hosts && break; sleep 0.1; done
	[ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null
	[ -z "$gauge" ] || gauge_off
	untarget
	unback
	for d in /sys/class/infiniband/{rxe,siw}[0-9]*; do [ ! -e "$d" ] || timeout 60 rdma link delete "$(basename "$d")"; done
	for d in /sys/class/net/dummy*; do [ ! -e "$d" ] || ip link delete "$(basename "$d")"; done
	for ((d = 0; d < ${paired:-0}; d++)); do ip link delete v$d; done
	[ -z "$paired" ] || [ $kind = siw ] || ip netns delete $ns
	[ -z "$paired" ] || [ $kind != siw ] || { ip -6 rule add pref 0 lookup local; for d in 10 100; do while ip -6 rule del pref $d; do :; done; done; }
	rm -rf "$tmp"
	case $rc in 0|75|77) ;; *) say "failed after $((SECONDS - began)) s" ;; esac
	exit $rc
} 2>/dev/null

# ok TEXT: the last line of a test that passed.
ok() {
	local h
	for h in $(hosts); do logout "$h"; done
	clean
	say "ok: ${1:-$kind} ($((SECONDS - began)) s)"
	exit 0
}
