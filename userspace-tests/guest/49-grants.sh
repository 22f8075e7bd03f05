#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Limits that a target grants at login: fewer channels, which are added later; less than required, which is an error;
# nothing.
#
# deadline: 300
# takes: 163
# runs: rxe kasan long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
odd_target
rust_driver || skip "the C driver keeps what it had at the login"
cpus=$(nproc)
[ $cpus -gt 1 ] || fail "one CPU has one channel"
channels() { [ "$(</sys/class/scsi_host/$host/ch_count)" = $1 ]; }

tell login only 1
mark
enter ,ch_count=4
logged 'only 1 of [2-4] channels connected'
all=$(log_since | sed -n 's/.*1 of \([2-4]\) channels.*/\1/p' | head -n 1)
channels 1 || fail "channels: $(</sys/class/scsi_host/$host/ch_count)"
is "channels asked for" /sys/class/scsi_host/$host/requested_ch_count $all
verified 2 --numjobs=4 --offset_increment=4m --size=1m
tell login ok
within 25 "$all channels" channels $all
mark_said
verified 2 --numjobs=4 --offset_increment=4m --size=1m --cpus_allowed=0-$((cpus - 1)) --cpus_allowed_policy=split
for ((i = 1; i < all; i++)); do has_said "command channel=$i" || fail "nothing was sent on channel $i of $all"; done
say "$all channels in the end"

# A new connection with fewer channels, then with more again.
sleep 1.5
verified 20 --numjobs=2 --offset_increment=4m --size=1m &
fio=$!
sleep 1
tell login only 1
tell disconnect
hears "another login" 'login multi=0'
within 10 "running" running
within 5 "one channel" channels 1
sleep 2
tell login ok
within 25 "$all channels again" channels $all
reap 110 "fio" $fio || exit 1

# Refused attempts: the first is immediate, then one per second; in the long set enough of them that the delays grow.
rounds 4 15
tell login reject 10001
tell disconnect
clock; since=$now
all_attempts() { [ "$(times 'login multi=0')" -ge $rounds ]; }
within $((rounds + 30)) "$rounds attempts" all_attempts
clock
# The transport class multiplies the delay by its failed attempts beyond ten. Times are the target's. The delay before
# the second attempt starts at the loss, as for the first one.
bad=$(tail -n +$((heard + 1)) $tmp/odd | awk '/did disconnect/ {n = 0; last = $1} /login multi=0/ {
	n++; pause = n > 13 ? n - 12 : n > 1
	over = $1 - last - pause - 0.9
	if ($1 - last < pause - 0.2 || over > 0) {
		print (over > 0 ? int(over * 1e6) + 1 : 0), "attempt " n " came after " $1 - last " s, wanted " pause
		exit
	}
	if (n > 1) last = $1
}')
[ -z "$bad" ] || exceeded ${bad%% *} $since $now "${bad#* }"
# Each attempt is counted by the target, and by the class when it has failed.
n=
counted() { n=$(times 'login multi=0'); [ $(<$(rport_of $host)/failed_reconnects) = $((n - 1)) ]; }
within 2 "the count of the class" counted
tell login ok
within 10 "running" running
is "attempts after success" $(rport_of $host)/failed_reconnects 0
verified 1
say "$n attempts, each in its time"

# A target that violates the protocol at the end of each login is given up.
sleep 1.5
mark
tell login break
tell disconnect
within 30 "the last attempt" log_has '5 protocol violations in a minute: no further reconnect attempts'
attempts=$(times 'login multi=0')
[ $attempts -le 6 ] || fail "$attempts attempts for five violations"
sleep 3
equal "attempts after that" $(times 'login multi=0') $attempts
! running || fail "it is running"
no_reports
say "given up after $attempts attempts"
tell login ok
logout $host
clean

# refused ERROR WHAT REGEX: checks that a login fails now, reports why, and leaves nothing behind.
refused() {
	local error
	mark
	error=$(write_login 0 "$(login_string 0)")
	equal "$2" "$error" "$1"
	[ -z "$3" ] || logged "ib_srp: .*($3)"
	no_hosts || fail "$2: there is a host"
	no_reports
}
while read -r offset bytes why; do
	tell login bytes $offset $bytes
	refused "Protocol error" "response with $bytes at $offset" "$why"
	hears "the end" gone
done <<-EOF
	0 c1 not an SRP login response
	4 00000000 request limit 0
	4 00000001 request limit 1
	4 ffffffff request limit -1
	4 7fffffff request limit
	8 0123456789abcdef tag 0x123456789abcdef is not ours
	16 0000003f max_it_iu_len 63
	20 00000037 max_ti_iu_len 55
	24 0002 buffer formats
	24 0004 buffer formats
EOF
# On InfiniBand and RoCE the private data has a fixed length and is padded with zeros.
for length in 0 1 51; do
	[ $kind = siw ] || [ $length -lt 4 ] || continue
	tell login length $length
	refused "Protocol error" "a response of $length bytes" "not an SRP login response|tag 0x0 is not ours"
done
# The SRP reject reasons, and an undefined one. siw loses them.
while read -r reason why; do
	tell login reject $reason
	[ $kind != siw ] || why=rejected
	refused "Connection reset by peer" "rejected with $reason" "$why"
done <<-EOF
	10000 unable to establish
	10001 insufficient.*resources
	10002 too large
	10003 associate
	10004 descriptor
	10005 multi
	10006 limit
	4711 0x0*4711
EOF
tell login silent
clock; t=$now
refused "Connection timed out" "no answer" "login response"
clock; in_time "a login without an answer" $t $now 36000000
tell login ok
enter
verified 1
logout $host
clean
no_complaints
ok "$kind"
