#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make papers: repeats the measurements of the papers with our code, in guests with a clock that counts instructions,
# GUESTS (2) at a time. Writes build/bench/papers.json and one plot per figure. FAR=0,1000 selects distances in us;
# MIB=16 moves twice as much data per run; PARTS=depth,clients selects parts of `far` (the plots need all).
# ONLY="far-2000 wss" runs only these guests, and uses the previous results of the others.
. "$(dirname "$0")/lib.sh"

bench=$top/userspace-tests/bench
out=$top/build/bench
pick_series
mkdir -p "$out"
distances=${FAR:-0,500,1000,2000}

# Debian's kernel has no siw.
"$top/ci/module.sh" stock "$built/papers" "$top" modules SRP_BENCH=1 >&2
"$top/ci/module.sh" stock "$built/siw" "$("$top/ci/linux.sh")/source/drivers/infiniband/sw/siw" modules CONFIG_RDMA_SIW=m >&2
"$top/ci/module.sh" stock "$built/stock" >&2
tools=$("$top/ci/tools.sh")
"$top/ci/initramfs.sh" stock >/dev/null

failed=$(mktemp)
trap 'rm "$failed"' EXIT
logs=()
# guest NAME PART KIND DISTANCES [OPTION]...
guest() {
	local name=papers-$1 part=$2 kind=$3 far=$4
	[[ -z "${ONLY-}" || " $ONLY " == *" $1 "* ]] || { logs+=("/log/$name.log"); return 0; }
	shift 4
	while [ "$(jobs -pr | wc -l)" -ge "${GUESTS:-2}" ]; do wait -n || true; done
	logs+=("/log/$name.log")
	(
		begun=$SECONDS
		"$top/ci/vm.sh" stock --icount --log "$name" --timeout 5400 \
			--append "FAR=$far ${MIB:+MIB=$MIB} ${PARTS:+PARTS=$PARTS}" "$@" \
			--file "$bench/papers-guest.sh" --file "$bench/papers-io.py" -- bash /srp/papers-guest.sh "$kind" "$part" || echo "$name" >>"$failed"
		say "$name: $((SECONDS - begun)) s"
	) &
}
ours=(--module "$built/stock/rust/ib_srp.ko")
set=(--file "$bench/papers-xor.sh" --file "$tools/xorset" --file "$tools/srp-target")
guest xor-ours xor rxe "$distances" "${ours[@]}" "${set[@]}"
guest xor-c xor rxe "$distances" "${set[@]}"
for distance in ${distances//,/ }; do guest "far-$distance" far rxe "$distance" "${ours[@]}"; done
guest wss wss rxe "$distances" "${ours[@]}" --file "$bench/papers-wss.sh" --file "$tools/wss" --file "$tools/srp-target"
guest io io rxe 0 "${ours[@]}"
guest reads-rxe reads rxe 0 "${ours[@]}"
guest reads-siw reads siw 0 "${ours[@]}" --module "$built/siw/siw.ko"
guest micro micro rxe 0 --module "$built/papers/rust/ib_srp.ko" --module "$built/siw/siw.ko"
wait
[ ! -s "$failed" ] || die "failed: $(paste -sd' ' "$failed")"
"$top/ci/plot.sh" papers.py /out "${logs[@]}"
