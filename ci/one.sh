#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make one: runs the guest test TEST (09-channels, or 09) on the adapter KIND (rxe), after building everything it needs.
. "$(dirname "$0")/lib.sh"

[ -n "${TEST-}" ] || die "which test? make one TEST=09-channels KIND=rxe; the tests are in userspace-tests/guest"
one=(--one "$TEST${KIND:+:$KIND}")
# Some tests are only in the long set.
lab guests --list "${one[@]}" >/dev/null 2>&1 || export LONG=1
exec "$top/ci/guests.sh" "${one[@]}"
