#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make test: all stages in order, each counted; the last line is the sum.
# STAGES="name ..." runs only those; NAME@7.2 is a stage on that kernel series, one without @ on SERIES or the newest.
# The other series of trixie-backports are built, linted, and pass KUnit and the demo, Debian's own the demo. LONG=1
# (make test-long): all of the stages on each series, the long set of guest tests, the debug kernel with lockdep for
# QEMU, and two minutes for each fuzzer. The fast set does without that kernel, which takes two cores a quarter of an
# hour to build.
. "$(dirname "$0")/lib.sh"

pick_series
# What runs on each series; the fast set lets the others have a kernel for KUnit that is quicker to build.
stages=${STAGES-} on_others="stock clippy kunit demo" other_kernel=kunit
[ -z "${LONG-}" ] || on_others="stock test kasan clippy kunit kunit-test demo bench guests" other_kernel=kasan
if [ -z "$stages" ]; then
	stages="fmt unsafe abi reasons pages host stock ${LONG:+test} kasan clippy doc kunit ${LONG:+kunit-test} demo deb node bench"
	while read -r s _; do
		[ "$s" = "$SERIES" ] || for k in $on_others; do stages+=" $k@$s"; done
	done < <("$top/ci/series.sh")
	# A kernel without Rust.
	stable=$("$top/ci/series.sh" stable)
	stages+=" demo@${stable%% *}"
	stages+=" next guests"
fi
logs=$top/build/log
mkdir -p "$logs"
passed=0 failed=0 skipped=0
began=$SECONDS
export FUZZ_SECONDS=${FUZZ_SECONDS-$([ -n "${LONG-}" ] && echo 120 || echo 5)}
# What the fast set measures: each way that data takes, and a login.
bench=
[ -n "${LONG-}" ] || bench=4k-read-qd1,4k-read-qd16,4k-write-qd16,128k-write,login-1-channel

series_of() { case $1 in *@*) echo "${1#*@}" ;; *) echo "$SERIES" ;; esac; }

# The fast set has no more of another series than what these build.
command_of() {
	case $1 in
	fmt) echo ci/lint.sh fmt-check ;;
	unsafe|abi|reasons|pages|clippy|doc) echo "ci/lint.sh $1" ;;
	clippy@*) echo "ci/lint.sh clippy $other_kernel stock" ;;
	host) echo userspace-tests/host/run ;;
	stock*|test*|kasan*) echo "ci/module.sh ${1%@*} build/$(series_of "$1")/${1%@*}" ;;
	kunit-test*) echo "ci/kunit.sh test" ;;
	kunit@*) echo "ci/kunit.sh $other_kernel" ;;
	kunit) echo ci/kunit.sh ;;
	demo*) echo ci/demo.sh ;;
	bench*) echo "env SHORT=1 ONLY=${ONLY-$bench} ci/bench.sh" ;;
	deb) echo ci/deb.sh ;;
	node) echo ci/node.sh ;;
	next) echo ci/next.sh ;;
	guests*) echo ci/guests.sh ;;
	*) die "no stage $1" ;;
	esac
}

# Stages with one thread run beside others: the packages and the bench from the beginning, as that counts
# instructions, whatever else the machine does, and KUnit beside what else wants the kernel with KASAN.
ahead=()
declare -A beside=() since=()
begin() {
	local command; read -ra command <<<"$(command_of "$1")"
	since[$1]=$EPOCHSECONDS
	setsid "${command[@]}" >"$logs/stage-$1.log" 2>&1 </dev/null &
	beside[$1]=$! ahead+=($!)
}

# What takes long to make is begun beside the first stages, which wait for the network and for one
# CPU; for other series with what SERIES leaves of the CPUs. What fails here fails once more, and is counted, in
# the stage that needs it.
start_ahead() {
	local s n kernels need=()
	for s in $stages; do
		kernels=
		case $s in
		stock*|demo*|bench*|node) kernels=stock ;;
		test*|kunit-test*) kernels=test ;;
		clippy@*) kernels="stock $other_kernel" ;;
		kunit@*) kernels=$other_kernel ;;
		clippy) kernels="stock kasan" ;;
		kasan*|doc|kunit) kernels=kasan ;;
		guests*) kernels="stock kasan ${LONG:+test}" ;;
		esac
		case $s in demo*|bench*|kunit*|guests*|node) need+=("0 $SERIES guest.sh") ;; esac
		[ "$s" != node ] || need+=("0 $SERIES node.sh base")
		n=1
		[ "$(series_of "$s")" = "$SERIES" ] || n=2
		for k in $kernels; do need+=("$n $(series_of "$s") kernel.sh $k"); done
	done
	[ ${#need[@]} -gt 0 ] || return 0
	mapfile -t need < <(printf '%s\n' "${need[@]}" | sort -u)
	for s in "${need[@]}"; do
		read -r n series script kernel <<<"$s"
		SERIES=$series setsid nice -n $((n > 1 ? 10 : 0)) "$top/ci/$script" $kernel >/dev/null \
			2>"$logs/ahead-${script%.sh}${kernel:+-$kernel-$series}.log" </dev/null &
		ahead+=($!)
	done
	for s in deb bench; do
		case " $stages " in *" $s "*) begin $s ;; esac
	done
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
	local series; series=$(series_of "$name")
	local SERIES=$series
	say "$name: ${command[*]}"
	cpu_now
	before=$cpu
	case $name in
	"${beside[$name]+$name}") wait "${beside[$name]}" || status=$?; cat "$log" ;;
	stock*|test*|kasan*|clippy*|doc|fmt) "${command[@]}" >"$log" 2>&1 </dev/null || status=$? ;;
	*) "${command[@]}" 2>&1 </dev/null | tee "$log" || status=$? ;;
	esac
	cpu_now
	last=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 || true)
	if [[ $last =~ (^|[^0-9])([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
		p=${BASH_REMATCH[2]} f=${BASH_REMATCH[3]} s=${BASH_REMATCH[5]:-0}
		[ $status = 0 ] || [ $f -gt 0 ] || f=1
	elif [ "${name%@*}" = demo ] && ! [[ $last =~ ^demo:\ ok:\ /dev/srp0\ .*\ MiB\ verified$ ]]; then
		f=1
	elif [ $status = 0 ]; then
		p=1
	else
		f=1
	fi
	[ $f = 0 ] || [ ! -s "$log" ] || case $name in stock*|test*|kasan*|clippy*|doc|fmt) tail -n 60 "$log" ;; esac
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
	case "$name $stages " in 'kasan '*' kunit '*) begin kunit ;; esac
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
