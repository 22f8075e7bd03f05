# SPDX-License-Identifier: GPL-2.0
# What the initiator leaves behind.

# Memory that nobody uses goes back, that of KASAN's quarantine as well.
shrink() {
	local cache
	echo 3 >/proc/sys/vm/drop_caches
	for cache in /sys/kernel/slab/*/shrink; do echo 1 >$cache; done 2>/dev/null
}

# RDMA objects that our module made and that are still there. Queue pairs of
# rdma_cm's users bear its name: those beyond what was there before the first
# login. With two hosts only the initiator's count: ib_srpt on siw keeps its own
# for long. The C driver has one PD for each device, also without a login.
# With a deadline: the dump walks all objects again for each message.
resources() { timeout -k 1 20 rdma resource show "$@" || echo "[ib_srp] rdma resource show $*: status $?"; }
qps() { resources qp 2>/dev/null | grep -c "^link ${initiators:-$kind${paired:+1[0-9]}}"; }
ours() {
	local what n
	n=$(qps)
	[ $n -le ${idle_qps=0} ] || { echo "$n queue pairs, $idle_qps before the first login"; resources qp | grep "^link ${initiators:-$kind${paired:+1[0-9]}}"; }
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
