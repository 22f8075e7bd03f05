#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Login strings that add_target must refuse: the errno is right, one log line names the error, and nothing changes.
#
# deadline: 120
# takes: 8
# runs: rxe kasan fast long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

begin
for table in "${BAD_LOGINS-}" "$here/../bad-logins.tsv" "$here/bad-logins.tsv" ''; do [ -f "$table" ] && break; done
[ -n "$table" ] || fail "bad-logins.tsv is not in this guest"
fabric 1
# The C driver accepts some of these strings and then starts a login.
rust_driver || skip "the C driver does not promise this"
said=$(timeout 100 python3 $here/bad-logins.py "$(add_target 0)" "$table" 1 2>&1) ||
	{ printf '%s\n' "$said" | tail -n 40; fail "strings that were not refused as they must be"; }
no_hosts || fail "there are hosts: $(hosts)"
clean
ok "${said##*$'\n'}"
