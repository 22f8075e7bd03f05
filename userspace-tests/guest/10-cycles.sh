#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Repeated login, read and logout (100 times in the long set): nothing leaks.
#
# deadline: 600 900
# takes: 45
# runs: rxe kasan fast long kmemleak=on
# runs: siw rxe+user siw+user kasan long LONG=
# runs: vfab kasan long
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug long LONG=
# runs: rxe 6.12 long LONG=
# runs: rxe kcsan long LONG=
. "$(dirname "$0")/lib.sh"

begin
rounds 12 100
[ "$kind" = rxe ] || rounds 10 50
n=$rounds
fabric 1
# Prints the number of queue pairs of both ends.
pairs() { resources qp | grep -c "^link $kind"; }
no_more_pairs() { [ "$(pairs)" -le $none ]; }
none=$(pairs)
back_null disk 16
target 0
lun 0 0 disk
head -c 1M /dev/urandom >$tmp/data
slowest=0
for ((i = 1; i <= n; i++)); do
	# On the debug kernel a login is expensive, because each command has a memory region. So most logins use few commands.
	options=,queue_size=8
	((i % 10)) || options=
	t=${EPOCHREALTIME/./}
	login 0 "$options"
	t=$(((${EPOCHREALTIME/./} - t) / 1000))
	[ $t -le $slowest ] || slowest=$t
	# Every third logout happens while the disk is being scanned.
	if ((i % 3)); then
		dev=$(disk "$host" 0)
		if ((i == 1)); then
			dd if=$tmp/data of=$dev bs=64k oflag=direct status=none || fail "write"
		else
			dd if=$dev bs=64k count=16 iflag=direct status=none | cmp - $tmp/data ||
				fail "what was read is wrong after $i logins"
		fi
	fi
	logout "$host"
done
within 20 "the target has let its queue pairs go: $(pairs), $none before" no_more_pairs
clean
ok "$kind: $n logins, slowest $slowest ms"
