#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make test: all stages in order, each counted; the last line is the sum.
# STAGES="name ..." runs only those. LONG=1 (make test-long): the long set of guest tests, the debug kernel with
# lockdep for QEMU, and two minutes for each fuzzer. The fast set does without that kernel, which takes two cores a
# quarter of an hour to build.
. "$(dirname "$0")/lib.sh"

stages=${STAGES:-fmt unsafe abi host stock ${LONG:+test} kasan clippy doc kunit ${LONG:+kunit-test} demo bench guests}
logs=$top/build/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0
began=$SECONDS
[ -z "${LONG-}" ] || export FUZZ_SECONDS=${FUZZ_SECONDS-120}

command_of() {
	case $1 in
	fmt) echo ci/lint.sh fmt-check ;;
	unsafe|abi) echo "ci/lint.sh $1" ;;
	host) echo userspace-tests/host/run ;;
	stock|test|kasan) echo "ci/module.sh $1 build/$1" ;;
	clippy|doc) echo "ci/lint.sh $1" ;;
	kunit) echo ci/kunit.sh ;;
	kunit-test) echo "ci/kunit.sh test" ;;
	demo) echo ci/demo.sh ;;
	bench) echo "env SHORT=1 ci/bench.sh" ;;
	guests) echo ci/guests.sh ;;
	*) die "no stage $1" ;;
	esac
}

# Stages with one thread run beside others: the bench from the beginning, as it counts instructions,
# whatever else the machine does, and KUnit beside what else wants the kernel with KASAN.
ahead=()
declare -A beside=() since=()
begin() {
	local command; read -ra command <<<"$(command_of "$1")"
	since[$1]=$EPOCHSECONDS
	setsid "${command[@]}" >"$logs/stage-$1.log" 2>&1 </dev/null &
	beside[$1]=$! ahead+=($!)
}

# What takes long to make is begun beside the first stages, which wait for the network and for one
# CPU. What fails here fails once more, and is counted, in the stage that needs it.
start_ahead() {
	local s need=()
	for s in $stages; do
		case $s in
		stock) need+=("kernel.sh stock") ;;
		test|kunit-test) need+=("kernel.sh test") ;;
		clippy) need+=("kernel.sh stock" "kernel.sh kasan") ;;
		kasan|doc) need+=("kernel.sh kasan") ;;
		kunit) need+=("kernel.sh kasan" guest.sh) ;;
		demo|bench) need+=("kernel.sh stock" guest.sh) ;;
		guests) need+=("kernel.sh stock" "kernel.sh kasan" guest.sh ${LONG:+"kernel.sh test"}) ;;
		esac
	done
	[ ${#need[@]} -gt 0 ] || return 0
	while read -ra s; do
		setsid "$top/ci/${s[0]}" "${s[@]:1}" >/dev/null 2>"$logs/ahead-${s[0]%.sh}${s[1]+-${s[1]}}.log" </dev/null &
		ahead+=($!)
	done < <(printf '%s\n' "${need[@]}" | sort -u)
	case " $stages " in *' bench '*) begin bench ;; esac
	trap 'for p in "${ahead[@]}"; do kill -- "-$p" 2>/dev/null || true; done' EXIT
}

# The CPU time of all processes that have ended below this shell, in seconds: in `cpu`.
cpu_now() {
	times >"$logs/times"
	cpu=$(awk 'NR == 2 {split($0, t, /[ms ]+/); print int(t[1] * 60 + t[2] + t[3] * 60 + t[4])}' "$logs/times")
}

# A stage's last line may be a count; otherwise its status counts as one test.
# The demo must end with its own line.
stage() {
	local name=$1 log=$logs/stage-$1.log status=0 t=$SECONDS took cpu before last p=0 f=0 s=0
	local -a command; read -ra command <<<"$(command_of "$name")"
	say "$name: ${command[*]}"
	cpu_now
	before=$cpu
	case $name in
	"${beside[$name]+$name}") wait "${beside[$name]}" || status=$?; cat "$log" ;;
	stock|test|kasan|clippy|doc|fmt) "${command[@]}" >"$log" 2>&1 </dev/null || status=$? ;;
	*) "${command[@]}" 2>&1 </dev/null | tee "$log" || status=$? ;;
	esac
	cpu_now
	last=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1)
	if [[ $last =~ (^|[^0-9])([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
		p=${BASH_REMATCH[2]} f=${BASH_REMATCH[3]} s=${BASH_REMATCH[5]:-0}
		[ $status = 0 ] || [ $f -gt 0 ] || f=1
	elif [ $name = demo ] && ! [[ $last =~ ^demo:\ ok:\ /dev/srp0\ .*\ MiB\ verified$ ]]; then
		f=1
	elif [ $status = 0 ]; then
		p=1
	else
		f=1
	fi
	[ $f = 0 ] || [ ! -s "$log" ] || case $name in stock|test|kasan|clippy|doc|fmt) tail -n 60 "$log" ;; esac
	[ $f = 0 ] || { echo "$name:"; grep -aE '^fail |FAILED:|^error' "$log" || tail -n 5 "$log"; } | cut -c1-300 >>"$logs/failed"
	took=$((SECONDS - t))
	[ -z "${since[$name]-}" ] || took=$(($(stat -c %Y "$log") - since[$name]))
	printf 'stage %s: %d passed, %d failed, %d skipped (%d s, CPU %d s)\n' "$name" $p $f $s $took $((cpu - before))
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

cd "$top"
rm -f "$logs/failed"
start_ahead
for name in $stages; do
	stage "$name"
	case "$name $stages " in kasan*' kunit '*) begin kunit ;; esac
done
# Who has only the end of the output has what failed.
[ ! -e "$logs/failed" ] || { echo "failed:"; tail -n 20 "$logs/failed"; }
printf 'in %d min %d s\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
if [ $skipped -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
