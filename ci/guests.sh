#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guests.sh [GROUP...]: runs the groups of userspace-tests/guest/groups (all of
# them) with our module, GUESTS at a time, and counts. DRIVER=c runs them with
# the kernel's own C driver, to test the tests.
. "$(dirname "$0")/lib.sh"

tests=$top/userspace-tests/guest
at_once=${GUESTS:-$jobs}
failed_before=0

for k in stock test; do
	"$top/ci/initramfs.sh" $k >/dev/null
	[ "${DRIVER-}" = c ] || "$top/ci/module.sh" $k "$top/build/$k" >&2
done

# A group: its tests, each with the deadline that it sets itself and some more.
group() {
	local name=$1 kernel=$2 seconds=$3 memory=$4 t limit list=() parameters=() module=()
	shift 4
	for t; do
		case $t in *=*) parameters+=("$t"); continue ;; esac
		limit=$(sed -n 's/^begin \([0-9]*\).*/\1/p' "$tests/${t%:*}.sh")
		list+=("$t:$((${limit:-300} + 60))")
	done
	[ "${DRIVER-}" = c ] || module=(--module "$top/build/$kernel/rust/ib_srp.ko")
	"$top/ci/vm.sh" "$kernel" --log "$name" --timeout "$seconds" --memory "$memory" \
		--append "${parameters[*]}" "${module[@]}" --group "$name" -- "${list[@]}"
}

mapfile -t lines < <(grep -v '^ *\(#\|$\)' "$tests/groups")
if [ $# -gt 0 ]; then
	chosen=()
	for g; do
		found=
		for l in "${lines[@]}"; do [ "${l%% *}" != "$g" ] || { chosen+=("$l"); found=1; }; done
		[ -n "$found" ] || die "no group $g in $tests/groups"
	done
	lines=("${chosen[@]}")
else
	for t in "$tests"/[0-9][0-9]-*.sh; do
		t=$(basename "$t" .sh)
		grep -q "[[:space:]]$t:" "$tests/groups" || { echo "fail $t: in no group"; failed_before=$((failed_before + 1)); }
	done
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for l in "${lines[@]}"; do
	while [ "$(jobs -pr | wc -l)" -ge "$at_once" ]; do wait -n || true; done
	read -ra words <<<"$l"
	(group "${words[@]}" >"$out/${words[0]}" 2>&1 || true; cat "$out/${words[0]}") &
done
wait

passed=0 failed=$failed_before skipped=0
for l in "${lines[@]}"; do
	read -r p f s < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$out/${l%% *}" | tail -n 1) || { p=0 f=1 s=0; echo "fail ${l%% *}: the guest did not run"; }
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "guests: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
