# SPDX-License-Identifier: GPL-2.0
# Objects that the initiator leaves behind.

# Frees unused memory, including KASAN's quarantine.
shrink() {
	local cache
	echo 3 >/proc/sys/vm/drop_caches
	for cache in /sys/kernel/slab/*/shrink; do echo 1 >$cache; done 2>/dev/null
}
# Sets `objects` to the KiB of the slab's objects in use, when RCU has freed the last of them. The pages of the slab say
# less: ib_core replaces each buffer of a MAD that arrives, which leaves many slabs nearly empty.
slab_objects() { within 60 "a slab that does not change" slab_is_still; }
slab_is_still() {
	local last=${objects-0}
	shrink
	objects=$(awk 'NR > 2 {bytes += $2 * $4} END {printf "%d", bytes / 1024}' /proc/slabinfo)
	[ $((objects - last)) -lt 256 ] && [ $((last - objects)) -lt 256 ]
}

# Lists remaining RDMA objects of our module. Queue pairs of rdma_cm's users are listed under rdma_cm's name, so those
# beyond the number before the first login count. With two hosts only the initiator's count, because ib_srpt on siw
# keeps its own for long. The C driver has one PD per device even without a login. The dump has a time limit, because it
# walks all objects for each message.
resources() { timeout -k 1 20 rdma resource show "$@" || echo "[ib_srp] rdma resource show $*: status $?"; }
qps() { resources qp 2>/dev/null | grep -c "^link ${initiators:-$kind${paired:+1[0-9]}}"; }
ours() {
	local what n
	n=$(qps)
	[ $n -le ${idle_qps=0} ] || {
		echo "$n queue pairs, $idle_qps before the first login"
		resources qp | grep "^link ${initiators:-$kind${paired:+1[0-9]}}"
	}
	# A memory region holds a reference to its protection domain. The domains of the Rust driver are named, so its regions
	# need no check. ib_srpt has thousands on siw, and their dump takes minutes on the debug kernel.
	for what in cq mr pd cm_id; do
		case $what in
		pd) rust_driver || continue ;;
		mr) ! rust_driver || continue ;;
		esac
		resources $what 2>/dev/null | grep -F '[ib_srp]' | sed "s/^/$what: /"
	done
}
baseline() { idle_qps=$(qps); idle=$(resources 2>/dev/null); }
# Usually everything is as it was before the first login, including the target's objects.
nothing_ours() { [ "$(resources 2>/dev/null)" = "$idle" ] || [ -z "$(ours)" ]; }
unused() { ! loaded ib_srp || { read -r refs </sys/module/ib_srp/refcnt && [ $refs = 0 ]; }; }

# Checks that nothing is left after the last logout.
clean() {
	within 20 "no SCSI host of ib_srp" no_hosts
	within 10 "no RDMA object of ib_srp" nothing_ours
	udevadm settle -t 10
	within 10 "module reference count 0" unused
	no_reports
}
