#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make test: runs all stages and counts the results; the last line is the sum. STAGES="name ..." selects stages.
# NAME@7.2 is a stage on that kernel series (default: SERIES or the newest). demo@rt is the demo on Debian's kernel with
# PREEMPT_RT. For the other series of trixie-backports the module is built and the demo run; for Debian's own only the
# demo is run. LONG=1 (make test-long): all stages on each series, the long set of guest tests, the debug kernel with
# lockdep for QEMU, and two minutes for each fuzzer. The fast set does not use that kernel, which takes a quarter of an
# hour to build on two cores.
. "$(dirname "$0")/lib.sh"

pick_series
export FUZZ_SECONDS=${FUZZ_SECONDS-$([ -n "${LONG-}" ] && echo 120 || echo 5)}
# The workloads of the fast set: each data path, and a login.
bench=
[ -n "${LONG-}" ] || bench=4k-read-qd16,4k-write-qd16,128k-write,login-1-channel

# A stage: its NAME, the command, the kernels it needs (built ahead of time), and its lane. The stages of a lane run one
# after the other, in parallel with the other lanes. The tools lane compiles. The qemu lane uses emulated CPUs, where
# two guests at once take more than twice the time. Stages with time limits run when these are done: the demos, two at a
# time (lane demos), and then the guests (lane last). Beside them run only the waiting lane, which mostly waits for timers,
# and the idle lane, which counts instructions in the remaining CPU time. A quiet stage prints nothing if it succeeds.
# NAME        LANE     QUIET  KERNELS  COMMAND
table="
fmt           tools    quiet  -        ci/lint.sh fmt-check
unsafe        tools    -      -        ci/lint.sh unsafe
cycles        tools    -      -        ci/lint.sh cycles
abi           tools    -      -        ci/lint.sh abi
reasons       tools    -      -        ci/lint.sh reasons
bounds        tools    -      -        ci/lint.sh bounds
lab           tools    quiet  -        ci/lint.sh lab
pages         tools    -      -        ci/lint.sh pages
host          tools    -      -        userspace-tests/host/run
fabric        tools    -      -        storage/run test
reports       tools    -      -        ci/lint.sh reports
stock         tools    quiet  stock    ci/module.sh stock build/SERIES/stock
test          tools    quiet  test     ci/module.sh test build/SERIES/test
kasan         tools    quiet  kasan    ci/module.sh kasan build/SERIES/kasan
clippy        tools    quiet  stock    ci/lint.sh clippy
doc           tools    quiet  kasan    ci/lint.sh doc
kunit         waiting  -      kasan    ci/kunit.sh
kunit-test    qemu     -      test     ci/kunit.sh test
deb           qemu     -      -        ci/deb.sh
node          qemu     -      stock    ci/node.sh
next          tools    -      -        ci/next.sh
bench         idle     -      stock    env SHORT=1 ONLY=${ONLY-$bench} ci/bench.sh
demo          demos    -      stock    ci/demo.sh
guests        last     -      stock,rt,kasan ci/guests.sh
"
# Stages on the other series. The remaining ones would need a debug kernel of that series.
on_others="stock demo"
[ -z "${LONG-}" ] || on_others="stock test kasan clippy kunit kunit-test demo bench guests"

stages=${STAGES-}
if [ -z "$stages" ]; then
	for s in $(awk '{print $1}' <<<"$table"); do
		case $s in test|kunit-test) [ -n "${LONG-}" ] || continue ;; esac
		stages+=" $s"
	done
	while read -r s _; do
		[ "$s" = "$SERIES" ] || for k in $on_others; do stages+=" $k@$s"; done
	done < <("$top/ci/series.sh")
	# Debian 13's own kernel has no Rust.
	stable=$("$top/ci/series.sh" stable)
	stages+=" demo@${stable%% *}"
	# The kernel with PREEMPT_RT.
	stages+=" demo@rt"
fi

# look NAME: looks up a stage in the table.
look() {
	series=$SERIES kernel=stock
	local on=${1#"${1%@*}"}
	on=${on#@}
	if [ -n "$on" ] && flavour "$on" >/dev/null; then kernel=$on; elif [ -n "$on" ]; then series=$on; fi
	read -r _ lane quiet kernels command < <(awk -v name="${1%@*}" '$1 == name {print; exit}' <<<"$table") || die "no stage $1"
	[ $kernel = stock ] || [ "$command" = ci/demo.sh ] || die "no stage $1: only the demo runs on $kernel"
	command=${command//SERIES/$series}
	[ "$kernels" != - ] || kernels=
	kernels=${kernels//stock/$kernel}
	[ "${1%@*}" != guests ] || [ -z "${LONG-}" ] || kernels+=,test
}

logs=$top/build/log
mkdir -p "$logs"
began=$SECONDS
ahead=()

# Starts the slow builds in parallel with the first stages, which wait for the network and for one CPU. Builds for other
# series get the CPU time that SERIES leaves. A failed build is repeated, and counted, by the stage that needs it.
start_ahead() {
	local s n k script argument need=()
	for s in $stages; do
		look "$s"
		case $s in demo*|bench*|kunit*|guests*|node) need+=("0 $SERIES guest.sh") ;; esac
		[ "$s" != node ] || need+=("0 $SERIES node.sh base")
		n=1
		[ "$series" = "$SERIES" ] || n=2
		for k in ${kernels//,/ }; do need+=("$n $series kernel.sh $k"); done
	done
	[ ${#need[@]} -gt 0 ] || return 0
	mapfile -t need < <(printf '%s\n' "${need[@]}" | sort -u)
	# A process group, so that it can be killed as a whole. A new session would be a separate autogroup of the
	# scheduler, where `nice` has no effect.
	set -m
	for s in "${need[@]}"; do
		read -r n series script argument <<<"$s"
		SERIES=$series nice -n $((n > 1 ? 10 : 0)) "$top/ci/$script" $argument >/dev/null \
			2>"$logs/ahead-${script%.sh}${argument:+-$argument-$series}.log" </dev/null &
		ahead+=($!)
	done
	set +m
}

# Sets `cpu` to the CPU time of all terminated descendants of this shell, in seconds.
cpu_now() {
	local file=$logs/times-$BASHPID
	times >"$file"
	cpu=$(awk 'NR == 2 {split($0, t, /[ms ]+/); print int(t[1] * 60 + t[2] + t[3] * 60 + t[4])}' "$file")
}

# Runs the stages of a lane in the background, in a process group, so that it can be killed as a whole.
start_lane() {
	lane=$1
	set -m
	(
		[ $lane != idle ] || renice -n 19 $BASHPID >/dev/null
		for name in ${lanes[$lane]}; do stage "$name"; done
	) &
	running[$lane]=$!
	set +m
}

# The last line of a stage may be a count; otherwise its status counts as one test. The demo must end with its own final
# line.
stage() {
	local name=$1 log=$logs/stage-$1.log status=0 t=$SECONDS cpu before last p=0 f=0 s=0
	local series kernel lane quiet kernels command
	look "$name"
	say "$name: $command"
	cpu_now
	before=$cpu
	local -a words; read -ra words <<<"$command"
	if [ "$lane" = last ]; then
		SERIES=$series KERNEL=$kernel "${words[@]}" 2>&1 </dev/null | tee "$log" || status=$?
	else
		SERIES=$series KERNEL=$kernel "${words[@]}" >"$log" 2>&1 </dev/null || status=$?
	fi
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
	[ $f = 0 ] || { echo "$name:"; grep -aE -A3 '^fail |FAILED:|^error' "$log" || tail -n 5 "$log"; } | cut -c1-300 >>"$logs/failed"
	# Only one stage at a time may print.
	{
		flock 9
		if [ "$lane" = last ]; then :; elif [ "$quiet" = - ]; then cat "$log"; elif [ $f != 0 ]; then tail -n 60 "$log"; fi
		printf 'stage %s: %d passed, %d failed, %d skipped (%d s, CPU %d s)\n' "$name" $p $f $s $((SECONDS - t)) $((cpu - before))
		echo "$p $f $s" >>"$logs/counts"
	} 9>"$logs/.output"
}

cd "$top"
rm -f "$logs"/failed "$logs"/counts "$logs"/times-*
declare -A lanes=()
for name in $stages; do
	look "$name"
	lanes[$lane]+=" $name"
done
start_ahead
declare -A running=()
for lane in "${!lanes[@]}"; do case $lane in last|demos) ;; *) start_lane "$lane" ;; esac; done
trap 'for p in "${ahead[@]}" "${running[@]}"; do kill -- "-$p" 2>/dev/null || true; done' EXIT
for lane in "${!running[@]}"; do [[ $lane =~ ^(idle|waiting)$ ]] || wait "${running[$lane]}" || true; done
n=0
for name in ${lanes[demos]-}; do lanes[demos$((n++ % 2))]+=" $name"; done
for lane in demos0 demos1; do [ -z "${lanes[$lane]-}" ] || start_lane $lane; done
for lane in demos0 demos1; do [ -z "${running[$lane]-}" ] || wait "${running[$lane]}" || true; done
for name in ${lanes[last]-}; do stage "$name"; done
wait "${running[@]}" || true
# Failures go to the end of the output.
[ ! -e "$logs/failed" ] || { echo "failed:"; tail -n 20 "$logs/failed"; }
read -r passed failed skipped stages_run < <(awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0, NR}' "$logs/counts")
# A lane that died leaves stages without a result.
missing=$(($(wc -w <<<"$stages") - stages_run))
[ $missing = 0 ] || { echo "$missing stages did not run"; failed=$((failed + missing)); }
printf 'in %d min %d s\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
if [ $skipped -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ $failed = 0 ] && [ $passed -gt 0 ]
