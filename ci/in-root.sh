#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# in-root.sh ROOT [HOST_DIR:ROOT_DIR[:ro]]... -- COMMAND...: runs COMMAND in ROOT with these directories bound.
. "$(dirname "$0")/lib.sh"
in_root "$@"
