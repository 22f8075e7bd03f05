#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fabric-hour.sh [SECONDS]: verifies I/O with the user-space target for SECONDS (default: an hour), with our driver and
# the kernel's C driver, on rxe and siw, one guest for each, GUESTS (2) at a time. RATE=100 limits reads and writes per
# second, because guests without enough CPU time lose connections. ONLY="rust-rxe c-siw" selects guests.
. "$(dirname "$0")/lib.sh"

counted "$@"
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
		--results "/log/hour-$1-$2.results" --append "kmemleak=off HOUR=$seconds ${RATE:+RATE=$RATE}" \
		"${module[@]}" --file "$tools/srp-target" --group "hour-$1" -- \
		"71-hour:$2+user:$((seconds + 400))"
}
read -ra all <<<"${ONLY:-rust-rxe rust-siw c-rxe c-siw}"
for one in "${all[@]}"; do
	while [ "$(jobs -pr | wc -l)" -ge "${GUESTS:-2}" ]; do wait -n || true; done
	say "$one: $seconds s"
	rm -f "$built/log/hour-$one.results"
	hour "${one%-*}" "${one#*-}" &
done
wait
for one in "${all[@]}"; do
	grep -a '71-hour: ok: ' "$built/log/hour-$one.log" || true
	cat "$built/log/hour-$one.results" >>"$RESULTS" || result "hour-$one" fail "the guest did not run"
done
