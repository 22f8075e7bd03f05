#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guests.sh [GROUP...]: runs the groups of userspace-tests/guest/groups (all of
# them) with our module, GUESTS at a time, and counts. DRIVER=c runs them with
# the kernel's own C driver, to test the tests. LONG=1 runs the long set: the
# groups of that set too, and every test sees LONG and does more rounds.
. "$(dirname "$0")/lib.sh"

tests=$top/userspace-tests/guest
# A guest is idle for a third of its time.
at_once=${GUESTS:-$((jobs * 3 / 2))}
failed_before=0
tools=$("$top/ci/tools.sh")
pick_series
# What tests use beside those in their folder; 27-wall runs the bench.
files=(--file "$tools/fake-umad.so" --file "$tools/target" --file "$top/ci/bench.sh" --file "$top/ci/lib.sh:ci-lib.sh")
for f in measure.py report.py counts.py workloads.tsv; do files+=(--file "$top/userspace-tests/bench/$f"); done

# A group: its tests, each with the deadline that it sets itself and some more.
group() {
	local name=$1 kernel=$2 seconds=$3 memory=$4 t limit list=() parameters=() module=() smp=2
	shift 4
	# What the kernel does not know of its parameters is the environment of init, and so of the tests.
	[ -z "${LONG-}" ] || parameters+=("LONG=1")
	for t; do
		case $t in
		ncpus=*) smp=${t#*=}; continue ;;
		*=*) parameters+=("$t"); continue ;;
		esac
		read -r _ limit long < <(grep '^begin ' "$tests/${t%:*}.sh") || true
		[ -z "${LONG-}" ] || limit=${long:-$limit}
		list+=("$t:$((${limit:-300} + 60))")
	done
	[ "${DRIVER-}" = c ] || module=(--module "$built/$kernel/rust/ib_srp.ko")
	module+=(--module "$built/slow_qp-$kernel/slow_qp.ko")
	name+=${NAME_SUFFIX-}
	"$top/ci/vm.sh" "$kernel" --log "$name" --timeout "$seconds" --memory "$memory" \
		--smp "$smp" --append "${parameters[*]}" "${module[@]}" "${files[@]}" --group "$name" -- "${list[@]}"
}

# SECONDS is `fast/long`, or one number for both; `-` is for a group that is not in that set.
pick() {
	local line words
	while read -r line; do
		read -ra words <<<"$line"
		case ${words[2]} in */*) words[2]=$([ -n "${LONG-}" ] && echo "${words[2]#*/}" || echo "${words[2]%/*}") ;; esac
		[ "${words[2]}" = - ] || echo "${words[*]}"
	done
}

mapfile -t lines < <(grep -v '^ *\(#\|$\)' "$tests/groups" | pick)
if [ $# -gt 0 ]; then
	chosen=()
	for g; do
		found=
		for l in "${lines[@]}"; do [ "${l%% *}" != "$g" ] || { chosen+=("$l"); found=1; }; done
		[ -n "$found" ] || die "no group $g in this set of $tests/groups (LONG=1 is the long one)"
	done
	lines=("${chosen[@]}")
else
	for t in "$tests"/[0-9][0-9]-*.sh; do
		t=$(basename "$t" .sh)
		grep -q "[[:space:]]$t:" "$tests/groups" || { echo "fail $t: in no group"; failed_before=$((failed_before + 1)); }
	done
fi

for k in $(printf '%s\n' "${lines[@]}" | awk '{print $2}' | sort -u); do
	"$top/ci/initramfs.sh" "$k" >/dev/null
	"$top/ci/module.sh" "$k" "$built/slow_qp-$k" "$top/userspace-tests/slow_qp" >&2
	[ "${DRIVER-}" = c ] || "$top/ci/module.sh" "$k" "$built/$k" >&2
done

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for l in "${lines[@]}"; do
	while [ "$(jobs -pr | wc -l)" -ge "$at_once" ]; do wait -n || true; done
	read -ra words <<<"$l"
	(group "${words[@]}" >"$out/${words[0]}" 2>&1 || true; cat "$out/${words[0]}") &
done
wait

count() { sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$1" | tail -n 1; }

# The soft RDMA drivers and the target stall, break connections or crash now and then, with the C
# driver as well. A test that failed runs once more in a guest of its own kind, unless data or commands were
# wrong, or the kernel reported something with our module in the trace. Both runs are shown.
again() {
	local w words name=$1 failed head=()
	read -ra words <<<"$2"
	if grep -aqE '\+0x[0-9a-f]+/0x[0-9a-f]+ \[ib_srp\]|FAILED: .*(is wrong|verif|mismatch|stale|corrupt|lost or completed)' "$built/log/$name.log"; then return 0; fi
	mapfile -t failed < <(sed -n "s|^fail $name/\([0-9][0-9]-[^:]*:[a-z]*\): .*|\1|p" "$out/$name")
	[ ${#failed[@]} -gt 0 ] || return 0
	head=("$name")
	for w in "${words[@]:1}"; do [[ $w == [0-9][0-9]-* ]] || head+=("$w"); done
	echo "once more: ${failed[*]}"
	NAME_SUFFIX=-again group "${head[@]}" "${failed[@]}" >"$out/$name-again" 2>&1 || true
	cat "$out/$name-again"
}

passed=0 failed=$failed_before skipped=0 second=0
for l in "${lines[@]}"; do
	name=${l%% *}
	read -r p f s < <(count "$out/$name") || { p=0 f=1 s=0; echo "fail $name: the guest did not run"; }
	if [ "$f" -gt 0 ]; then
		again "$name" "$l"
		if [ -e "$out/$name-again" ] && read -r p2 f2 s2 < <(count "$out/$name-again"); then
			n=$(grep -cE "^ok +$name-again/[0-9][0-9]-" "$out/$name-again" || true)
			p=$((p + n)) f=$((f - n)) second=$((second + n))
			# What the second guest found beside its tests counts, too.
			f=$((f + $(grep -cE "^fail +$name-again/[^0-9]" "$out/$name-again" || true)))
		fi
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ $second = 0 ] || echo "guests: $second of these passed only in a second run, see above"
echo "guests: $passed passed, $failed failed, $skipped skipped"
# The kernels are ours, so a test has no reason not to run; with the C driver some have.
[ $failed = 0 ] && [ $passed -gt 0 ] && { [ $skipped = 0 ] || [ "${DRIVER-}" = c ]; }
