#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make papers: what the papers measured, with our code, in a guest whose clock counts instructions:
# build/bench/papers.json and one plot for each figure. FAR=0,1000 has these distances only, in us; MIB=8 moves a fourth in
# each run; PARTS=depth,clients does only these of the part far (the plots want all).
. "$(dirname "$0")/lib.sh"

bench=$top/userspace-tests/bench
out=$top/build/bench
pick_series
mkdir -p "$out"

# Debian's kernel has no siw.
"$top/ci/module.sh" stock "$built/papers" "$top" modules SRP_BENCH=1 >&2
"$top/ci/module.sh" stock "$built/siw" "$("$top/ci/linux.sh")/source/drivers/infiniband/sw/siw" modules CONFIG_RDMA_SIW=m >&2
"$top/ci/module.sh" stock "$built/stock" >&2

# guest PART KIND [OPTION]...
logs=()
guest() {
	local part=$1 kind=$2
	shift 2
	"$top/ci/vm.sh" stock --icount --log "papers-$part-$kind" --timeout 3600 \
		--append "${FAR:+FAR=$FAR} ${MIB:+MIB=$MIB} ${PARTS:+PARTS=$PARTS}" "$@" \
		--file "$bench/papers-guest.sh" --file "$bench/papers-io.py" -- bash /srp/papers-guest.sh "$kind" "$part"
	logs+=("/log/papers-$part-$kind.log")
}
guest micro rxe --module "$built/papers/rust/ib_srp.ko" --module "$built/siw/siw.ko"
guest io rxe --module "$built/stock/rust/ib_srp.ko"
guest far rxe --module "$built/stock/rust/ib_srp.ko"
guest reads rxe --module "$built/stock/rust/ib_srp.ko"
guest reads siw --module "$built/stock/rust/ib_srp.ko" --module "$built/siw/siw.ko"
tools=$("$top/ci/tools.sh")
guest wss rxe --module "$built/stock/rust/ib_srp.ko" --file "$bench/papers-wss.sh" --file "$tools/wss" --file "$tools/srp-target"
guest xor rxe --module "$built/stock/rust/ib_srp.ko" --file "$bench/papers-xor.sh" --file "$tools/xorset" --file "$tools/srp-target"
"$top/ci/plot.sh" papers.py /out "${logs[@]}"
