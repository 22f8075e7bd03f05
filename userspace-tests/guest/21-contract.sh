#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The same operations with the kernel's C driver and ours. Every difference must be in contract.tsv, and docs/abi.md
# explains each name there.
#
# deadline: 1500
# takes: 328
# runs: rxe kasan long
# runs: rxe stock long
. "$(dirname "$0")/lib.sh"

begin
for table in "$here/../bad-logins.tsv" "$here/bad-logins.tsv" ''; do [ -f "$table" ] && break; done
[ -n "$table" ] || fail "bad-logins.tsv is not in this guest"
rust_driver || skip "there is nothing to compare the C driver with"
ours=${SRP_MODULE-}
[ -n "$ours" ] || ours=$(modinfo -n ib_srp)
theirs=$(find "/lib/modules/$(uname -r)/kernel" -name 'ib_srp.ko*')
[ -f "$theirs" ] || fail "this kernel has no C driver"

# ask WHAT...: appends the results of the loaded driver to $tmp/$driver.
ask() {
	timeout 300 python3 "$here/contract.py" "$@" >>"$tmp/$driver" 2>"$tmp/err" ||
		{ show; fail "$driver: contract.py $*: $(tail -n 5 "$tmp/err")"; }
}
# Prints the results, to update the table.
show() { [ -z "${CONTRACT_OUT-}" ] || for d in c ours; do echo "=== $d"; cat "$tmp/$d"; echo "=== end"; done; }
# become DRIVER FILE [MODULE PARAMETER]...
become() {
	driver=$1
	! loaded ib_srp || unload_srp || fail "rmmod: $(cat "$tmp/rmmod")"
	insmod "${@:2}" || fail "insmod ${*:2}"
}
# identifiers FILE: records which identifiers a target receives. Topspin and Cisco targets need zeros and the node's
# GUID.
identifiers() {
	local on ioc ports='i_port_id \([0-9a-f:]*\), t_port_id \([0-9a-f:]*\)'
	for on in 1 0; do
		become $driver "$1" topspin_workarounds=$on
		for ioc in 0005ad0000001234 001b0d0000001234 0002c90000001234; do
			mark
			[ -n "$(write_login 0 "id_ext=1,ioc_guid=$ioc,dest=10.0.0.1:$port,initiator_ext=5")" ] ||
				fail "$driver: the target is not $ioc, and took the login"
			logged "Received SRP_LOGIN_REQ"
			echo "$on $ioc $(log_since | sed -n "s/.*Received SRP_LOGIN_REQ with $ports.*/\1 \2/p" | head -n 1)"
		done
	done >$tmp/identifiers.$driver
}

fabric 1
add=$(add_target 0)
for driver in c ours; do
	[ $driver = c ] && file=$theirs || file=$ours
	become $driver "$file"
	ask module "$file"
	become $driver "$file"
	ask refused "$add" "$table"
done
back_null disk 32
target 0
# The io_class of protocol revision 10 (ff00) swaps the halves of the initiator's identifier.
mkdir "${tpg[0]}/acls/0x${gid:16}0000000000000000" || fail "cannot make an ACL"
lun 0 0 disk
guid=$(service_guid)
ids="id_ext=$guid,ioc_guid=$guid,dest=10.0.0.1:$port"
for driver in c ours; do
	[ $driver = c ] && file=$theirs || file=$ours
	become $driver "$file"
	ask files "$add" "$ids"
	ask logins "$add" "$ids"
	identifiers "$file"
done
show
cmp $tmp/identifiers.c $tmp/identifiers.ours || {
	diff $tmp/identifiers.c $tmp/identifiers.ours
	fail "the drivers' identifiers differ"
}
equal "logins of an initiator that is 0 and the node" \
	"$(grep -cE '^1 00(05ad|1b0d)0000001234 (0000:){4}' $tmp/identifiers.ours)" 2
equal "logins of an initiator with its initiator_ext" \
	"$(grep -cE '^(0|1 0002c9)[^:]* 0000:0000:0000:0005:' $tmp/identifiers.ours)" 4
said=$(python3 "$here/contract.py" compare "$tmp/c" "$tmp/ours" "$here/contract.tsv") || {
	printf '%s\n' "$said"
	fail "the drivers differ"
}

# Parameters that only our driver has.
p=/sys/module/ib_srp/parameters
for value in 1 86400 0x10 0; do (echo $value >$p/keep_alive) 2>/dev/null || fail "keep_alive=$value was refused"; done
for value in 86401 4294967296 -1 off x ''; do
	if (printf '%s\n' "$value" >$p/keep_alive) 2>/dev/null; then fail "keep_alive='$value' was taken"; fi
done
is "keep_alive" $p/keep_alive 0
for values in never_register=1 register_always=0 "register_always=0 never_register=1"; do
	unload_srp || fail "rmmod: $(cat "$tmp/rmmod")"
	no_reports
	mark
	insmod "$ours" $values || fail "insmod $values"
	logged 'ib_srp: .*never_register and register_always are ignored'
	equal "log lines of $values" "$(log_since | grep -c 'ib_srp: ')" 1
done
become ours "$ours"
clean
ok "${said##*$'\n'}"
