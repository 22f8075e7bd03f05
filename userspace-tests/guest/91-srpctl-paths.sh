#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# srpctl with several paths to one target: a second portal through one port, --path, logins at once, and a port that the
# route does not name, by --src or by --device alone.
#
# deadline: 240
# takes: 60
# runs: rxe kasan fast long
. "$(dirname "$0")/lib.sh"

begin
fabric_pair 2
for i in 0 1; do target $i; back_null d$i 16; lun $i 0 d$i; done
guid=$(service_guid)
here_is="--id-ext $guid --ioc-guid $guid"
ip addr add 10.0.0.3/24 dev v0
read -r mac </sys/class/net/v0/address
ini ip neigh replace 10.0.0.3 lladdr $mac dev w0

undo() { umount /etc/srp; }
mkdir -p /etc/srp
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"

srpctl() {
	status=0
	said=$(ini timeout -k 5 100 /srp/srpctl "$@" 2>&1) || status=$?
	say "# srpctl $*"
	sed 's/^/  /' <<<"$said"
}
works() { srpctl "$@"; [ $status = 0 ] || fail "srpctl $*: status $status: $said"; }
says() { [[ $said == *"$1"* ]] || fail "not said: '$1': $said"; }
# refused TEXT ARGUMENT...
refused() {
	srpctl "${@:2}"
	[ $status = 2 ] && says "$1" || fail "srpctl ${*:2}: status $status, wanted '$1': $said"
}
ext() { echo /sys/class/scsi_host/$1/initiator_ext; }
newest() { find_hosts; host=$(printf '%s\n' $list | sort -V | tail -n 1); }

works connect $here_is --dest 10.0.0.1:$port --save a
newest
a=$host
is "the default" "$(ext $a)" 0x0000000000000000
# Without --path a second portal is refused, and so is a second name of the session.
refused "$a is already logged in at 10.0.0.1:$port; for one more session use --path" connect $here_is \
	--dest 10.0.0.3:$port --save b
refused "$a is already logged in as target a; " connect $here_is --dest 10.0.0.1:$port --save b
[ ! -e /etc/srp/targets.d/b.conf ] || fail "a file of a session that is not there"
works show a
says "$a"
works connect $here_is --dest 10.0.0.3:$port --save b --path
says "logged in at 10.0.0.3:$port through rxe10/1"
newest
b=$host
[ $b != $a ] || fail "no second session"
is "the extension of another path" "$(ext $b)" 0x0000000000000001
grep -qx 'initiator_ext = "1"' /etc/srp/targets.d/b.conf || fail "the file: $(cat /etc/srp/targets.d/b.conf)"
works disconnect b
says "$b: logged out"
[ -e "$(ext $a)" ] || fail "a is gone with b"
# A file keeps its initiator extension. Each of two concurrent logins gets its own extension and record.
pids=()
for n in c d; do
	ini /srp/srpctl connect $here_is --dest 10.0.0.3:$port --save $n --path >$tmp/$n 2>&1 & pids+=($!)
done
for p in "${pids[@]}"; do reap 100 "a login" $p || fail "one of two logins: $(cat $tmp/c $tmp/d)"; done
works list
for n in c d; do
	h=$(sed -n 's/^\(host[0-9]*\): logged in at .*/\1/p' $tmp/$n)
	grep -qx "target = \"$n\"" /run/srp/$h || fail "the record of $n: $(cat $tmp/$n /run/srp/$h)"
	read -r got <"$(ext $h)"
	grep -qx "initiator_ext = \"$(printf %x $got)\"" /etc/srp/targets.d/$n.conf ||
		fail "$n has $got: $(cat /etc/srp/targets.d/$n.conf)"
	case $((got)) in 2|3) ;; *) fail "$n has $got" ;; esac
done
works connect b
works disconnect a b c d
find_hosts
equal "the sessions" "$list" ""
rm /etc/srp/targets.d/*

# The route to the second target names the first port.
ini ip route add 10.0.1.1/32 dev w0
for only in "--src 10.0.1.2" "--device rxe11"; do
	works connect $here_is --dest 10.0.1.1:$port $only
	says "logged in at 10.0.1.1:$port through rxe11/1"
	newest
	read -r got </sys/class/scsi_host/$host/src
	[[ $got == 10.0.1.2:* ]] || fail "$only: from $got"
	works connect $here_is --dest 10.0.1.1:$port $only
	says "$host: already logged in"
	works disconnect $host
done
srpctl connect $here_is --dest 10.0.1.1:$port --src 10.0.9.9
[ $status = 3 ] && says "no network interface has the address 10.0.9.9" ||
	fail "an address of another machine: $status: $said"
clean
ok
