#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kunit.sh [test|kasan|kunit]: builds the module and the test device with their KUnit suites, loads them one after the
# other in a guest with that kernel (default: kasan), and counts the results. SUITES=GLOB (ONLY=GLOB of make kunit)
# selects suites by name.
. "$(dirname "$0")/lib.sh"

kernel=${1:-kasan}
pick_series
out=$built/kunit-$kernel
"$top/ci/module.sh" "$kernel" "$out" "$top" modules SRP_KUNIT=1 SRP_VFAB=1 >&2
results=$(mktemp)
trap 'rm -f "$results"' EXIT
run() {
	status=0
	"$top/ci/vm.sh" "$kernel" --log kunit --timeout 1500 --kunit ${SUITES:+--append "kunit.filter_glob=$SUITES"} --module "$out/rust/ib_srp.ko" --module "$out/rust/ib_vfab.ko" -- bash -c '
		modprobe -a dummy rdma_rxe siw || exit 1
		for k in rxe:0 siw:1; do
			d=dummy${k#*:}
			ip link add $d type dummy && ip addr add 10.0.${k#*:}.1/24 dev $d && ip link set $d up || exit 1
			rdma link add ${k%:*}0 type ${k%:*} netdev $d || exit 1
		done
		modprobe ib_srp || exit 1
		cat /sys/kernel/debug/kunit/*/results
		rmmod ib_srp || exit 1
		modprobe ib_vfab || exit 1
		cat /sys/kernel/debug/kunit/*/results
		rmmod ib_vfab' >"$results" || status=$?
}
run
# User-Mode Linux with several CPUs rarely dies in its own code. Such a guest is shown, and booted once more.
console=$built/log/kunit.log
if [ $status != 0 ] && grep -aq 'Kernel panic' "$console" && ! grep -aqE '\[ib_(srp|vfab)\]' "$console"; then
	cat "$results"
	echo "kunit: the guest died without our code in its trace; once more"
	run
fi

# KTAP: each suite announces 1..N, followed by N verdicts. A skip is an error: tests only skip without their device,
# which is present.
awk -v status=$status '
	/^ *# Subtest: / { suite = $NF }
	/^ +1\.\.[0-9]+/ { sub(/.*\.\./, ""); planned += $0 }
	/^ +(not )?ok [0-9]+/ {
		line = $0; sub(/^ +/, "", line)
		if (line ~ /^ok/ && line !~ /# SKIP/) p++; else { f++; bad = bad "fail kunit/" suite ": " line "\n" }
	}
	END {
		if (planned > p + f) { bad = bad "fail kunit: " planned - p - f " tests without a verdict\n"; f = planned - p }
		if (p + f == 0) { bad = bad "fail kunit: no suite ran\n"; f++ }
		if (status && !f) { bad = bad "fail kunit: the guest failed\n"; f++ }
		if (f) { while ((getline line < ARGV[1]) > 0) print "    | " line }
		printf "%s%d passed, %d failed\n", bad, p, f
		exit f > 0
	}' "$results"
