#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fabric-hour.sh [SECONDS]: verifies I/O with the user-space target for SECONDS (default: an hour), with our driver and
# the kernel's C driver, on rxe and siw, one guest for each, GUESTS (2) at a time. RATE=100 limits reads and writes per
# second, because guests without enough CPU time lose connections. ONLY="rust-rxe c-siw" selects guests. The last line
# is "N passed, M failed".
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
	"$top/ci/vm.sh" kasan --log "hour-$1-$2" --memory 3072 --smp 2 \
		--append "kmemleak=off HOUR=$seconds ${RATE:+RATE=$RATE}" "${module[@]}" --file "$tools/srp-target" --group "hour-$1" -- \
		"71-hour:$2+user:$((seconds + 400))"
}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
read -ra all <<<"${ONLY:-rust-rxe rust-siw c-rxe c-siw}"
for one in "${all[@]}"; do
	while [ "$(jobs -pr | wc -l)" -ge "${GUESTS:-2}" ]; do wait -n || true; done
	say "$one: $seconds s"
	(hour "${one%-*}" "${one#*-}" >"$out/$one" 2>&1 || true; cat "$out/$one"
		grep -a '71-hour: ok: ' "$built/log/hour-$one.log" || true) &
done
wait
passed=$(cat "$out"/* | grep -c '^ok ' || true)
echo "$passed passed, $((${#all[@]} - passed)) failed"
[ "$passed" = ${#all[@]} ]
