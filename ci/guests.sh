#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guests.sh [SELECTION...]: runs the guest tests with our module, GUESTS guests at a time, and counts the results. A
# SELECTION is TEST[:KIND][@KERNEL], with patterns, numbers or 46-59 as TEST; PARAMETER=VALUE restricts the others. The
# default is the whole set. DRIVER=c uses the kernel's C driver, to test the tests. LONG=1 runs the long set: also the
# tests of that set, and more rounds in those that check LONG.
. "$(dirname "$0")/lib.sh"

tests=$top/userspace-tests/guest
# A guest is idle half of the time.
at_once=${GUESTS:-$((jobs * 2))}
tools=$("$top/ci/tools.sh")
pick_series
# Files that tests use from outside their folder. 27-wall runs the bench.
files=(--file "$tools/odd-target" --file "$tools/user-verbs" --file "$tools/srpctl" --file "$tools/srp-target" --file "$tools/srp-hostile"
	--file "$tools/wss" --file "$tools/xorset" --file "$top/ci/bench.sh" --file "$top/ci/lib.sh:ci-lib.sh" --file "$top/tools/srplat" --file "$top/tools/srplat:srpslow")
for f in measure.py report.py counts.py workloads.tsv; do files+=(--file "$top/userspace-tests/bench/$f"); done

# group NAME KERNEL MEMORY CPUS [PARAMETER=VALUE]... TEST:KIND:SECONDS...: runs a guest that lab.plan prints.
group() {
	local name=$1 kernel=$2 memory=$3 smp=$4 w tests=() parameters=() module=()
	shift 4
	for w; do case $w in [0-9][0-9]-*) tests+=("$w") ;; *) parameters+=("$w") ;; esac; done
	[ "${DRIVER-}" = c ] || module=(--module "$built/$kernel/rust/ib_srp.ko")
	module+=(--module "$built/slow_qp-$kernel/slow_qp.ko")
	[ "$kernel" != rt ] || module+=(--module "$built/rxe-rt/rdma_rxe.ko" --module "$built/srpt-rt/ib_srpt.ko")
	[[ "${tests[*]}" != *:vfab:* ]] || module+=(--file "$built/vfab-$kernel/rust/ib_vfab.ko")
	name+=${NAME_SUFFIX-}
	"$top/ci/vm.sh" "$kernel" --log "$name" --memory "$memory" --smp "$smp" --append "${parameters[*]}" \
		"${module[@]}" "${files[@]}" --group "$name" -- "${tests[@]}"
}

planned=$(lab plan ${LONG:+--long} "$@")
mapfile -t lines <<<"$planned"

for k in $(printf '%s\n' "${lines[@]}" | awk '{print $2}' | sort -u); do
	"$top/ci/initramfs.sh" "$k" >/dev/null
	"$top/ci/module.sh" "$k" "$built/slow_qp-$k" "$top/userspace-tests/slow_qp" >&2
	[ "${DRIVER-}" = c ] || "$top/ci/module.sh" "$k" "$built/$k" >&2
	# Preemption provokes the bugs of soft RoCE and of the target that patches/linux/applied repair in our own kernels.
	[ "$k" != rt ] || for d in sw/rxe ulp/srpt; do
		"$top/ci/module.sh" rt "$built/${d#*/}-rt" "$("$top/ci/kernel.sh" patched)/drivers/infiniband/$d" >&2
	done
	! printf '%s\n' "${lines[@]}" | grep -E "^[^ ]+ $k .*:vfab" >/dev/null ||
		"$top/ci/module.sh" "$k" "$built/vfab-$k" "$top" modules SRP_VFAB=1 >&2
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

# Prints the tests of NAME with that verdict.
with_verdict() { sed -n "s|^$1 *$2/\([0-9][0-9]-[^:]*:[a-z0-9+]*\): .*|\1|p" "$out/$2"; }

# once_more SUFFIX GROUP LINE TEST...: runs the tests again in a guest of the same kind, without our other guests. The
# verdicts are in $out/GROUPSUFFIX.
once_more() {
	local w words suffix=$1 name=$2 head=("$2")
	read -ra words <<<"$3"
	shift 3
	# Only these of its tests, with their limits.
	for w in "${words[@]:1}"; do [[ $w == [0-9][0-9]-* && " $* " != *" ${w%:*} "* ]] || head+=("$w"); done
	echo "once more: $*"
	NAME_SUFFIX=$suffix group "${head[@]}" >"$out/$name$suffix" 2>&1 || true
	cat "$out/$name$suffix"
}

# The soft RDMA drivers and the target sometimes stall, break connections or crash, also with the C driver. A failed
# test runs once more in a guest of the same kind, unless it found wrong data or lost commands, or the kernel reported
# something with our module in the trace. Both runs are shown.
again() {
	local name=$1 which
	local wrong='is wrong|verif|mismatch|stale|corrupt|lost or completed'
	! grep -aqE "\+0x[0-9a-f]+/0x[0-9a-f]+ \[ib_srp\]|FAILED: .*($wrong)" "$built/log/$name.log" || return 0
	mapfile -t which < <(with_verdict fail "$name")
	[ ${#which[@]} = 0 ] || once_more -again "$name" "$2" "${which[@]}"
}

# A test without a verdict, because the machine was too slow, runs again after all others, each in a guest of its own.
passed=0 failed=0 skipped=0 second=0
slow=() slow_lines=()
for l in "${lines[@]}"; do
	name=${l%% *}
	read -r p f s < <(count "$out/$name") || { p=0 f=1 s=0; echo "fail $name: the guest did not run"; }
	mapfile -t which < <(with_verdict slow "$name")
	if [ "$f" -gt 0 ]; then
		again "$name" "$l"
		if [ -e "$out/$name-again" ] && [ -n "$(count "$out/$name-again")" ]; then
			n=$(grep -cE "^ok +$name-again/[0-9][0-9]-" "$out/$name-again" || true)
			p=$((p + n)) f=$((f - n)) second=$((second + n))
			# What the second guest found outside of its tests counts too.
			f=$((f + $(grep -cE "^fail +$name-again/[^0-9]" "$out/$name-again" || true)))
			mapfile -t -O ${#which[@]} which < <(with_verdict slow "$name-again")
			n=$(with_verdict slow "$name-again" | wc -l)
			f=$((f - n)) s=$((s + n))
		fi
	fi
	for t in "${which[@]}"; do slow+=("$t") slow_lines+=("$l"); done
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
unjudged=()
for i in "${!slow[@]}"; do
	name=${slow_lines[i]%% *} suffix=-alone-${slow[i]%%-*}${slow[i]#*:}
	suffix=${suffix//+/-}
	once_more "$suffix" "$name" "${slow_lines[i]}" "${slow[i]}"
	file=$out/$name$suffix
	read -r _ f s < <(count "$file") || { f=1 s=0; echo "fail $name$suffix: the guest did not run"; }
	p=$(grep -cE "^ok +$name$suffix/[0-9][0-9]-" "$file" || true)
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s - 1)) second=$((second + p))
	mapfile -t -O ${#unjudged[@]} unjudged < <(grep '^slow ' "$file" || true)
done
[ $second = 0 ] || echo "guests: $second of these passed only in a second run, see above"
[ ${#unjudged[@]} = 0 ] || printf 'guests: not judged: %s\n' "${unjudged[@]#slow }"
echo "guests: $passed passed, $failed failed, $skipped skipped"
# With our kernels no test may be skipped, except on a slow machine. With the C driver some are.
[ $failed = 0 ] && [ $passed -gt 0 ] && { [ $skipped = ${#unjudged[@]} ] || [ "${DRIVER-}" = c ]; }
