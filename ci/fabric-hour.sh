#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fabric-hour.sh [SECONDS]: verified I/O at the target in user space for so long, an hour if it is not said: with our driver
# and the kernel's C driver, on rxe and siw, a guest for each, GUESTS (2) at a time. The last line is "N passed, M failed".
. "$(dirname "$0")/lib.sh"

seconds=${1:-3600}
[[ $seconds =~ ^[1-9][0-9]*$ ]] && [ "$seconds" -le 3900 ] || die "usage: fabric-hour.sh [SECONDS], 3900 at most"
pick_series
tools=$("$top/ci/tools.sh")
"$top/ci/initramfs.sh" kasan >/dev/null
"$top/ci/module.sh" kasan "$built/kasan" >&2

# hour DRIVER KIND
hour() {
	local module=()
	[ "$1" = c ] || module=(--module "$built/kasan/rust/ib_srp.ko")
	"$top/ci/vm.sh" kasan --log "hour-$1-$2" --timeout $((seconds + 600)) --memory 3072 --smp 2 \
		--append "kmemleak=off HOUR=$seconds" "${module[@]}" --file "$tools/srp-target" --group "hour-$1" -- \
		"71-hour:$2+user:$((seconds + 400))"
}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for driver in rust c; do
	for kind in rxe siw; do
		while [ "$(jobs -pr | wc -l)" -ge "${GUESTS:-2}" ]; do wait -n || true; done
		say "$driver on $kind: $seconds s"
		(hour $driver $kind >"$out/$driver-$kind" 2>&1 || true; cat "$out/$driver-$kind"
			grep -a '71-hour: ok: ' "$built/log/hour-$driver-$kind.log" || true) &
	done
done
wait
passed=$(cat "$out"/* | grep -c '^ok ' || true)
echo "$passed passed, $((4 - passed)) failed"
[ "$passed" = 4 ]
