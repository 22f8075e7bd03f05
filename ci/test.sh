#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make test: runs all stages (ci/lab/stages.py) and counts the results; the last line is the sum. STAGES="name ..."
# selects stages. NAME@7.2 is a stage on that kernel series (default: SERIES or the newest). demo@rt is the demo on
# Debian's kernel with PREEMPT_RT. For Debian's own kernel the module is built. LONG=1 (make test-long): all stages on
# each series, the demo and some steps of the node on Debian's own, the long set of guest tests, the debug kernel with
# lockdep for QEMU, and two minutes for each fuzzer. PART=I/N runs one of N parts, whose results are in
# build/log/part-I-of-N.results; with N = 8 a part of the long set takes about an hour on two cores.
. "$(dirname "$0")/lib.sh"

# The series is known when there is a toolchain root, which takes one CPU to make. The node's base needs neither.
[ -n "${STAGES-}${PART-}" ] || "$top/ci/node-base.sh" >/dev/null &
pick_series
export FUZZ_SECONDS=${FUZZ_SECONDS-${LONG:+120}}
lab stages
