#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make bench: the kernel's C ib_srp and ours, in turns, in guests with an instruction-counting clock.
# ROUNDS=n (5); ONLY=workload,...; SHORT=1: one short round of the workloads in bounds.tsv, three full rounds of those
# that exceed their bounds in it, no plots;
# MTU=n of the link (1500: packets of 1 KiB; 4200: packets of 4 KiB); KERNEL=arm64|arm64-16k: on this kernel, with
# bounds-arm64.tsv, only the workloads for one CPU, without plots.
# MODE=peers, make bench-peers: both drivers and other initiators of the kernel. ROUNDS and ONLY as above.
# MODE=path, make bench-path: the initiator's instructions for an I/O, by layer, with the peers,
# on the adapters of ib_vfab, and for 4 KiB also on soft-RoCE. ROUNDS=n (1), ONLY as above, from path-workloads.tsv;
# DEVICES="vfab vfab+fsrm rxe". `+fsrm`: on a CPU with fast string instructions; `+direct`: the target completes where
# its back end does, by ib_srpt-direct-completion.patch; `+noinit`: with init_on_alloc=0; `+mlx5`: the initiator's
# adapter behaves as mlx5; `+late`: interrupts take 1 us; `+still`: without adaptive moderation of interrupts.
# INITIATORS=rust,c,nvme,rnbd,iser: only these.
# MODE=moderation, make bench-moderation: the same for polled I/O, interrupts, and interrupts that ib_core moderates.
# MODE=curves, make bench-curves: the same for 4 KiB of ours, C and NVMe against depth, CPUs, LUNs and sessions.
# DEVICES="vfab vfab+fsrm"; ONLY=curve,...; ROUNDS and INITIATORS as above. Writes build/bench/curves.tsv.
# MODE=scale, make bench-scale: how both drivers scale with sessions, LUNs, targets and channels. ROUNDS=n (3),
# ONLY=curve,...
# MODE=cores, make bench-cores: both drivers, NVMe/RDMA, RNBD and iSER by the clock, in a guest with as many CPUs as
# this machine. MINUTES=n of all rounds on a device (9; SHORT=1: 1.2), ROUNDS=n instead, CPUS=n, DEVICES="vfab rxe",
# MTU=n (4200), ONLY='4k-*-d8,64k-read-d*': names of points by size, direction and depth per CPU (1, 2, 4, 8, 16, 32);
# with `-apart` both ends have CPUs of their own. Status 3: the machine is too noisy. Writes build/bench/cores.tsv and
# cores.txt.
# MODE=rt, make bench-rt: latency of 4 KiB I/O with PREEMPT_RT, under load, on ib_vfab, of both drivers (ONLY=rust,c).
# MODE=wall DEVICE=mlx5_0/1 LOGIN=id_ext=...,ioc_guid=...,dest=... OVERWRITE=1: the same on this machine with its
# adapter, against C and those that are given: NVME=traddr=...,trsvcid=4420,nqn=...
# RNBD='sessname=... path=ip:... device_path=...' ISER='IQN ADDRESS:PORT'. Destroys the data of LUN 0 and of these
# disks. ROUNDS, MINUTES (20), ONLY as above; SECONDS_EACH=n of a run (3). Writes build/bench/wall.tsv and wall.txt.
# srp_daemon and multipathd must not be running.
. "$(dirname "$0")/lib.sh"

case ${MODE:-icount} in
wall)
	[ -n "$(command -v python3)" ] || host_needs python3
	exec python3 -B "$top/userspace-tests/bench/wall.py"
	;;
icount) counted "$@" ;;
peers|path|moderation|curves|scale|cores|rt) ;;
*) die "MODE is icount, wall, peers, path, moderation, curves, scale, cores or rt" ;;
esac
pick_series
lab bench
