#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make papers: what the papers measured, with our code, in a guest whose clock counts instructions:
# build/bench/papers.json and one plot for each figure.
. "$(dirname "$0")/lib.sh"

bench=$top/userspace-tests/bench
out=$top/build/bench
mkdir -p "$out"

# Debian's kernel has no siw.
"$top/ci/module.sh" stock "$top/build/papers" "$top" modules SRP_BENCH=1 >&2
"$top/ci/module.sh" stock "$top/build/siw" "$("$top/ci/linux.sh")/source/drivers/infiniband/sw/siw" modules CONFIG_RDMA_SIW=m >&2
"$top/ci/module.sh" stock "$top/build/stock" >&2

guest() {
	local part=$1
	shift
	"$top/ci/vm.sh" stock --icount --log "papers-$part" --timeout 3600 "$@" \
		--file "$bench/papers-guest.sh" --file "$bench/papers-io.py" -- bash /srp/papers-guest.sh rxe "$part"
}
guest micro --module "$top/build/papers/rust/ib_srp.ko" --module "$top/build/siw/siw.ko"
guest io --module "$top/build/stock/rust/ib_srp.ko"
"$top/ci/plot.sh" papers.py /out /log/papers-micro.log /log/papers-io.log
