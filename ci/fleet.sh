#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fleet.sh: sets up the storage systems of storage/ with exactly the commands of "On several machines" in
# storage/README.md, except for sizes. Five Debian 13 guests have the storage, a sixth one etcd and the initiator.
# Machines die and return under verified I/O (ci/lab/machines.py). All have the same disk, which is made in a chroot, as
# that of node.sh.
. "$(dirname "$0")/lib.sh"

counted "$@"
pick_series
lab fleet
