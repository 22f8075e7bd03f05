#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make test: all stages in order, each counted; the last line is the sum.
# STAGES="name ..." runs only those.
. "$(dirname "$0")/lib.sh"

stages=${STAGES:-fmt unsafe host stock test clippy doc kunit demo guests}
logs=$top/build/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0
began=$SECONDS

command_of() {
	case $1 in
	fmt) echo ci/lint.sh fmt-check ;;
	unsafe) echo ci/lint.sh unsafe ;;
	host) echo userspace-tests/host/run ;;
	stock|test) echo "ci/module.sh $1 build/$1" ;;
	clippy|doc) echo "ci/lint.sh $1" ;;
	kunit) echo ci/kunit.sh ;;
	demo) echo ci/demo.sh ;;
	guests) echo ci/guests.sh ;;
	*) die "no stage $1" ;;
	esac
}

# A stage's last line may be a count; otherwise its status counts as one test.
# The demo must end with its own line.
stage() {
	local name=$1 log=$logs/stage-$1.log status=0 t=$SECONDS last p=0 f=0 s=0
	local -a command; read -ra command <<<"$(command_of "$name")"
	say "$name: ${command[*]}"
	case $name in
	stock|test|clippy|doc|fmt) "${command[@]}" >"$log" 2>&1 </dev/null || status=$? ;;
	*) "${command[@]}" 2>&1 </dev/null | tee "$log" || status=$? ;;
	esac
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
	[ $f = 0 ] || [ ! -s "$log" ] || case $name in stock|test|clippy|doc|fmt) tail -n 60 "$log" ;; esac
	printf 'stage %s: %d passed, %d failed, %d skipped (%d s)\n' "$name" $p $f $s $((SECONDS - t))
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

cd "$top"
for name in $stages; do stage "$name"; done
printf 'in %d min %d s\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
if [ $skipped -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
