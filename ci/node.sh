#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node.sh: follows the section "On a Debian 13 node" of README.md, docs/boot.md and docs/from-source.md, with exactly
# their commands, on a clean Debian 13 with systemd and a disk of its own, and checks the results:
# userspace-tests/node. A build takes about ten times as long on an emulated CPU, so the first installation is done in
# a chroot of the disk, by this machine's CPUs, before the disk boots. LONG=1 adds an archive on a second disk, where
# backports first has the previous kernel series. The guest then upgrades kernel and package, runs the package's own
# tests, and installs the module built from source with the commands of README. STEPS="NAME ..." selects steps, with the
# steps that they need. SERIES=6.12 (node@6.12) performs some steps on Debian 13's own kernel, KERNEL=arm64
# (node@arm64) on arm64, where qemu-user runs the programs in the chroot.
. "$(dirname "$0")/lib.sh"

counted "$@"
pick_series
case ${KERNEL:-stock} in
stock) lab steps ;;
arm64) emulated lab steps ;;
*) die "no node with the kernel $KERNEL" ;;
esac
