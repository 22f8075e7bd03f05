# SPDX-License-Identifier: GPL-2.0
# The InfiniBand subnet of ib_vfab's adapters, and the subnet managers that tests start.

declare -A manager=()

# adapters [PARAMETER=VALUE]...: loads ib_vfab. Its adapters vfab0, vfab1 ... each have a cable from port 1 to the
# switch. DMA_BITS is the width of their DMA addresses, except for the target's, because ib_srpt sends what its memory
# contained at the time of mapping. Adapters in the mask GAPS support memory regions with gaps. Initiator adapters have
# the personality PERSONALITY. Interrupts come INTERRUPT_NS after their completions.
adapters() {
	local i like=
	if [ -n "${PERSONALITY-}" ]; then
		for ((i = 0; i < 8; i++)); do if [ $i -lt $targets ]; then like+=,default; else like+=,$PERSONALITY; fi; done
	fi
	[ -f "$here/../ib_vfab.ko" ] || skip "ib_vfab.ko is not in this guest"
	command -v opensm >/dev/null || skip "opensm is not in this guest"
	modprobe -a ib_umad ib_uverbs || fail "no user space access to RDMA devices"
	insmod "$here/../ib_vfab.ko" ${DMA_BITS:+dma_bits=$DMA_BITS direct=1} ${GAPS:+gaps=$GAPS} \
		${like:+personality=${like:1}} ${INTERRUPT_NS:+interrupt_ns=$INTERRUPT_NS} "$@" || fail "insmod ib_vfab $*"
	within 10 "class device of vfab0" test -e /sys/class/infiniband_mad/umad0
	udevadm settle -t 20
}

# subnet [N [WHERE]]: creates N (2) adapters: the target's, vfab0, where the subnet manager runs unless WHERE is given;
# the initiator's, vfab1 unless the test has more targets; and more. The manager sweeps every SWEEP seconds (10).
subnet() {
	local n=${1-2} i all=()
	adapters devices=$n
	subnet_manager ${2-vfab0} ${SWEEP:+-s $SWEEP}
	for ((i = 0; i < n; i++)); do all+=(vfab$i); done
	within 60 "ACTIVE ports" all_active "${all[@]}"
	within 10 "class device of $(initiator 0)" test -e "$(add_target 0)"
	baseline
}

# ipoib: creates two hosts on that subnet with IP over InfiniBand: the target's at 10.0.0.1 and fd00::1, and the
# initiator's in a network namespace at 10.0.0.2 and fd00::2, with the network device `inner`. unipoib: removes them.
ipoib() {
	local outer
	modprobe ib_ipoib || fail "modprobe ib_ipoib"
	ip netns add $ns && ini ip link set lo up || fail "cannot make a network namespace"
	udevadm settle -t 20
	outer=$(ls /sys/class/infiniband/vfab0/device/net) && inner=$(ls /sys/class/infiniband/$(initiator 0)/device/net) ||
		fail "no network devices"
	ip link set $inner netns $ns || fail "$inner cannot go to a namespace"
	ip addr add 10.0.0.1/24 dev $outer && ip addr add fd00::1/64 dev $outer && ip link set $outer up &&
		ini ip addr add 10.0.0.2/24 dev $inner && ini ip addr add fd00::2/64 dev $inner && ini ip link set $inner up ||
			fail "no addresses"
}
unipoib() {
	! loaded ib_ipoib || timeout 60 rmmod ib_ipoib || say "rmmod ib_ipoib fails"
	[ ! -e /run/netns/$ns ] || ip netns delete $ns
}

# fault DEVICE ORDER...: injects a fault. faulted DEVICE KIND: sets `times` to how often it occurred.
fault() { echo "${@:2}" >/sys/kernel/debug/ib_vfab/$1/fault || fail "no fault '${*:2}' at $1"; }
faulted() { times=$(sed -n "s/^$2 //p" /sys/kernel/debug/ib_vfab/$1/fault); }
# at_port DEVICE[/PORT] WHAT...: sends an order to a port.
at_port() {
	local device number
	port_of $1
	echo "$number ${*:2}" >/sys/kernel/debug/ib_vfab/$device/port || fail "port $number of $device refuses '${*:2}'"
}
# silence I [0]: drops all messages to the connection manager of target I; 0 ends this.
silence() { at_port ${tport[$1]-vfab$1} cm ${2-0xfffff}; }
# mads DEVICE[/PORT] KIND...: sets `sent` and `received` to the number of such MADs of the port.
mads() {
	local device number
	port_of $1
	read -r sent received < \
		<(awk -v p=$number -v k=" ${*:2} " '$1 == p && index(k, " " $2 " ") {s += $3; r += $4} END {print s + 0, r + 0}' \
		/sys/kernel/debug/ib_vfab/$device/mads)
}
# adapter remove|add N
adapter() {
	timeout -k 5 60 bash -c "echo $* >/sys/kernel/debug/ib_vfab/devices" ||
		fail "cannot $* an adapter: $(cat /sys/kernel/debug/ib_vfab/devices)"
}

# port_file DEVICE[/PORT] FILE: sets `got` to the content of a file of the port.
port_file() {
	local device number
	port_of $1
	{ read -r got <"/sys/class/infiniband/$device/ports/$number/$2"; } 2>/dev/null
}
port_has() { port_file "$1" "$2" && [ "$got" = "$3" ]; }
# all_active DEVICE[/PORT]...: for `within`.
all_active() { local d; for d; do port_has "$d" state "4: ACTIVE" || return; done; }
# lid DEVICE[/PORT]: sets `lid`, as a number.
lid() { port_file "$1" lid; lid=$((got)); }
# port_guid DEVICE: sets `guid`, in the format of `ibstat -p`.
port_guid() { gid "$1"; guid=0x${gid:16}; }

# subnet_manager DEVICE[/PORT] [OPTION]...: starts opensm there with the command of its systemd unit. opensm writes its
# log, `osm_log`, only when the buffer is full or at the end; state changes appear on stdout immediately.
subnet_manager() {
	local unit=/usr/lib/systemd/system/opensm@.service command
	port_guid "$1"
	read -ra command < <(sed -n 's/^ExecStart=//p' $unit)
	[ ${#command[@]} -gt 1 ] || fail "no command in $unit"
	command=("${command[@]//%I/$guid}")
	osm_log=/var/log/opensm.$guid.log
	"${command[@]}" "${@:2}" >$tmp/opensm.${1//\//.} 2>&1 &
	manager[$1]=$!
}
# subnet_manager_ends DEVICE
subnet_manager_ends() {
	kill "${manager[$1]}" 2>/dev/null
	reap 60 "opensm at $1" "${manager[$1]}"
	unset "manager[$1]"
}
# manager_is DEVICE STATE: for `within`.
manager_is() { grep -q "^Entering $2 state" $tmp/opensm.${1//\//.}; }
# other_lids DEVICE FIRST DEVICE[/PORT]...: restarts opensm at DEVICE so that the ports get LIDs from FIRST on. Sets
# `t0` to its start.
other_lids() {
	local lid=$2 p all=()
	subnet_manager_ends $1
	for p in "${@:3}"; do
		port_guid $p
		printf -v all[lid] '%s 0x%04x 0x%04x' $guid $lid $lid
		grep -q "^$guid " /var/cache/opensm/guid2lid || fail "opensm has not noted $p: $(cat /var/cache/opensm/guid2lid)"
		sed -i "s/^$guid .*/${all[lid]}/" /var/cache/opensm/guid2lid
		lid=$((lid + 1))
	done
	echo "honor_guid2lid_file TRUE" >$tmp/opensm.conf
	clock; t0=$now
	subnet_manager $1 -F $tmp/opensm.conf
	lid=$2
	for p in "${@:3}"; do
		within 60 "LID $lid for $p" port_has $p lid $(printf 0x%x $lid)
		lid=$((lid + 1))
	done
	within 60 "ACTIVE ports" all_active "${@:3}"
}

unsubnet() {
	local d
	for d in "${!manager[@]}"; do subnet_manager_ends "$d"; done
	# `rc` is the status of the test. opensm has flushed its log.
	case ${rc-0} in 0|75|77) ;; *) tail -n 60 /var/log/opensm.*.log >&$console 2>/dev/null ;; esac
	rm -f /var/log/opensm.*.log /var/cache/opensm/* /etc/opensm/partitions.conf
	unipoib
	! loaded ib_vfab || timeout 60 rmmod ib_vfab
}

# tool COMMAND...: runs one of infiniband-diags; sets `said` to its output.
tool() { said=$(timeout -k 5 60 "$@" 2>&1) || fail "$*: $said"; }
# tool_says WHAT LINE: `said` must have that line, regardless of the spacing.
tool_says() {
	sed 's/[[:space:]]\+/ /g; s/^ //; s/ $//' <<<"$said" | grep -qxF -- "$2" || fail "$1: no line '$2' in: $said"
}
