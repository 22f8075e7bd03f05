#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make one: runs the guest test TEST (09-channels) on the adapter KIND (rxe), after building everything it needs.
. "$(dirname "$0")/lib.sh"

tests=$top/userspace-tests/guest
[ -n "${TEST-}" ] || die "which test? make one TEST=09-channels KIND=rxe; the tests are in userspace-tests/guest"
mapfile -t found < <(cd "$tests" && ls -d "$TEST"*.sh 2>/dev/null || true)
[ -e "$tests/$TEST.sh" ] && found=("$TEST.sh")
[ ${#found[@]} = 1 ] || die "TEST=$TEST is ${#found[@]} files of userspace-tests/guest: ${found[*]}"
test=${found[0]%.sh}
# Some tests are only in the long set.
runs() { grep -oE "[[:space:]]$test:[a-z0-9+]+" "$tests/groups" | sed 's/.*://' | sort -u | paste -sd ' '; }
kind=${KIND:-$(runs | cut -d ' ' -f 1)}
[[ " $(runs) " == *" $kind "* ]] || die "$test does not run on KIND=$kind; it runs on: $(runs)"
if [ -n "${LONG-}" ]; then exec "$top/ci/guests.sh" "$test:$kind"; fi
awk -v t=" $test:$kind" '!/^ *#/ && $3 !~ /^-/ && index($0 " ", t " ") {found = 1} END {exit !found}' "$tests/groups" || export LONG=1
exec "$top/ci/guests.sh" "$test:$kind"
