#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Logins through the InfiniBand CM, with a target that sends scripted CM messages (odd-target): opensm's path in the
# request, each reason of a REJ, redirections, responses that are late, duplicated, wrong or lost, MRAs.
#
# deadline: 400 900
# takes: 133
# runs: vfab kasan long
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

[ "$kind" = vfab ] || skip "vfab only"
begin
adapters devices=3
echo "Default=0x7fff : ALL=full; other=0x0001, sl=3 : ALL=full;" >/etc/opensm/partitions.conf
cat >$tmp/qos <<EOF
qos-levels
	qos-level
		name: DEFAULT
		sl: 0
	end-qos-level
	qos-level
		name: tight
		sl: 2
		mtu-limit: 4
		packet-life: 17
	end-qos-level
	qos-level
		name: other
		sl: 3
	end-qos-level
end-qos-levels
qos-match-rules
	qos-match-rule
		service-id: 0xbb
		qos-level-name: tight
	end-qos-match-rule
	qos-match-rule
		pkey: 0x0001
		qos-level-name: other
	end-qos-match-rule
end-qos-match-rules
EOF
# A request is retransmitted after 1.5 s.
printf '%s\n' "subnet_timeout 16" "packet_life_time 0x10" "qos TRUE" "qos_policy_file $tmp/qos" >$tmp/opensm.conf
subnet_manager vfab2 -F $tmp/opensm.conf
within 60 "ACTIVE ports" all_active vfab0 vfab1 vfab2
within 10 "class device of vfab1" test -e "$(add_target 0)"
odd_ib
lid vfab1; lid1=$lid
gid vfab1; gid1=$gid

# Prints the login string, for GID `to` and with these options.
ids=id_ext=00000000000000aa,ioc_guid=00000000000000aa
login_string() { echo "$ids,dgid=${to-$gid_a},pkey=${pkey-ffff},service_id=${service-00000000000000aa}${2-}"; }
colons() { sed 's/..../&:/g; s/:$//' <<<"$1"; }

# The target's output when a channel is connected.
in='^[0-9.]+ channel='
twice_in() { [ $(times "$in") -ge 2 ]; }
# enters [OPTION]: logs in and reads. leaves: logs out.
enters() {
	mark_said
	login 0 "${1-,ch_count=1}"
	dev=$(disk $host 0)
	echo 1 >$(rport_of $host)/reconnect_delay || fail "reconnect_delay"
	block write
	block read
}
leaves() {
	logout $host
	hears "the end" dreq
}
# refused WHAT ERROR LOG [OPTION]: checks that the login fails with ERROR, and that LOG says why.
refused() {
	local got before
	find_hosts; before=$list
	mark
	mark_said
	clock; t=$now
	got=$(write_login 0 "$(login_string 0 ${4-,ch_count=1})")
	clock
	[[ $got =~ ^($2)$ ]] || fail "$1: '$got', wanted '$2'"
	! rust_driver || [ -z "$3" ] || logged "ib_srp: .*login at .* failed: $3"
	find_hosts
	equal "hosts after $1" "$list" "$before"
}
# request NAME: a field of the last request.
request() { word $1 "$(grep ' req at=' $tmp/odd | tail -n 1)"; }
# has NAME VALUE...: checks fields of the last request.
has() { while [ $# -gt 0 ]; do equal "$1 of the request" "$(request $1)" "$2"; shift 2; done; }
# qp_has NAME VALUE...: checks the queue pair connected last.
qp_has() {
	local line
	line=$(tail -n 1 /sys/kernel/debug/ib_vfab/vfab1/qps)
	while [ $# -gt 0 ]; do
		[[ " $line " == *" $1 $2 "* ]] || fail "queue pair without '$1 $2': $line"
		shift 2
	done
}

# The path's attributes are in the request and in the queue pair.
enters ,ch_count=2
equal "requests" $(times ' req at=a ') 2
equal "first ones" $(times 'login multi=0') 1
has service 00000000000000aa pkey ffff slid $lid1 dlid $lid_a sgid $gid1 dgid $gid_a sl 0 mtu 5 retries 7 \
	rnr_retries 7 \
	remote_timeout 18 local_timeout 18 depth 0 same_subnet 1
qp_has lid $lid_a sl 0 mtu 5 retries 7 rnr_retries 7
leaves
pkey=8001 enters
has pkey 8001 sl 3 mtu 5
qp_has sl 3 mtu 5
leaves
service=00000000000000bb enters
has service 00000000000000bb sl 2 mtu 4
qp_has sl 2 mtu 4
leaves
say "the path is in requests and queue pairs"

# Destinations that do not exist.
pkey=8002 refused "an unknown partition" "No such file or directory|Invalid argument" ""
! rust_driver || logged "pkey=8002: the port is not in that partition"
to=fe80000000000000dead0000beef0000 refused "an unknown GID" \
	"Invalid argument|Connection timed out|No such device|Connection reset by peer" "no path to the target's port"
at_port vfab2 cm 0
to=$gid_c refused "an unknown service" "Connection reset by peer" "connection rejected: invalid service ID \(reason 8\)"
at_port vfab2 cm $qpn_c

# Each reject reason.
reasons=(3 8 10 26)
[ -z "${LONG-}" ] || reasons=({1..3} {5..23} {26..35} 65535)
for r in "${reasons[@]}"; do
	# The C driver retries after this one.
	[ $r != 10 ] || rust_driver || continue
	tell requests rej:$r
	refused "reason $r" "Connection reset by peer" "connection rejected: .* \(reason $r\)"
	equal "requests that were refused for reason $r" $(times ' req at=') 1
done
tell login reject 10005
refused "a refusal by SRP" "Connection reset by peer" ".*0x00010005"
if rust_driver; then
	tell login length 20
	refused "a short answer" "Protocol error" "bad login response: buffer formats"
fi
tell login bytes 0 c1
refused "an answer of another kind" "Protocol error|Connection reset by peer" "the reply is not an SRP login response"
tell login ok
say "${#reasons[@]} reasons"

# info GID LID PKEY QPN: prints the redirection data of a REJ. Each value may be 0.
info() { printf '%016x%032s%08x%04x%04x%08x%08x%064x' 0 $1 0 $2 0x$3 $4 0x80010000 0 | tr ' ' 0; }
# redirected PLACE INFO [NAME VALUE]...: checks that the login is redirected to PLACE, with these fields.
redirected() {
	tell requests rej:$2
	enters "${option-,ch_count=1}"
	has at $1 "${@:3}"
	leaves
}
redirected c 24:$(info $gid_c $lid_c ffff 1) dgid $gid_c dlid $lid_c pkey ffff
ids=id_ext=00000000000000aa,ioc_guid=0005ad00000000aa redirected c 25:$gid_c dgid $gid_c dlid $lid_c
if rust_driver; then
	# The C driver takes a partition or a queue pair of 0 literally.
	redirected c 24:$(info $gid_c $lid_c 0 0) dgid $gid_c dlid $lid_c pkey ffff
	redirected c 24:$(info $gid_c 0 0 0) dgid $gid_c dlid $lid_c
	redirected c 24:$(info $gid_c $lid_c 8001 0) dgid $gid_c dlid $lid_c pkey 8001
	redirected b 24:$(info $gid_a $lid_a 0 $qpn_b) dgid $gid_a dlid $lid_a
	redirected c 24:$(info 0 $lid_c 0 0) dlid $lid_c

	# Three redirections are followed, a fourth one is not.
	tell requests 3 rej:24:$(info $gid_c $lid_c 0 0)
	enters
	has at c
	is dgid /sys/class/scsi_host/$host/dgid "$(colons $gid_c)"
	is orig_dgid /sys/class/scsi_host/$host/orig_dgid "$(colons $gid_a)"
	# The next connection starts at the original destination.
	tell disconnect
	hears "a login at the first place" ' req at=a ' 30
	hears "an answer taken" "$in"
	within 40 "running" running
	block read
	leaves
	for what in "4 rej:24:$(info $gid_c $lid_c 0 0)|more than 3 redirects in one login" \
		"rej:24:$(info $gid_c $lid_c 8003 0)|to partition 8003" \
		"rej:24:$(info fec0000000000000${gid_c:16} 0 0 0)|to subnet fec0000000000000" \
		"rej:24:$(info 0 0 0 0)|neither a GID nor a LID" \
		"rej:24:$(info ff${gid_c:2} $lid_c 0 0)|to a multicast GID" \
		"rej:24:$gid_c|16 bytes of redirect information, not 72"; do
		tell requests ${what%|*}
		refused "a redirection ${what#*|}" "Connection reset by peer" "redirect by the target not followed: ${what#*|}"
	done
	tell requests rej:25:$gid_c
	refused "a redirection by a target that is not Topspin's" "Connection reset by peer" \
		"connection rejected: port redirect \(reason 25\)"

	# An additional channel is redirected, and one that is added later.
	tell requests rep
	tell requests rej:24:$(info $gid_c $lid_c 0 0)
	enters ,ch_count=2
	equal "requests at c" $(times ' req at=c ') 1
	verified 2 --numjobs=2 --offset_increment=4m --size=1m
	leaves
	tell requests rep
	tell requests rej:3
	mark
	enters ,ch_count=2
	logged 'only 1 of 2 channels connected: connection rejected: no resources'
	within 40 "the channel that was refused" twice_in
	leaves
	say "redirections"
fi

# Repeated reconnects. again STEP...: the script for the next request.
enters
again() {
	# A short connection is not replaced immediately.
	sleep 1.5
	tell requests "$*"
	tell disconnect
	hears "a login" "$in" 40
	within 40 "running" running
	block read
}
# repeated N [WHEN]: checks how many requests were retransmitted.
repeated() { equal "repeated requests" $(times " req again${2-}$") $1; }

has ack 17
qp_has timeout 17
again rep rep
# An MRA, if the REP is still being processed.
hears "another RTU" ' rtu again$| mra of=1 '
again rep wait:1000 rep
hears "another RTU, late" ' rtu again$'
again nothing
repeated 1
equal "logins" $(times 'login multi') 1
again wait:2500 rep
[ $(times ' req again$') -ge 1 ] || fail "a late answer: $(tail -n 20 $tmp/odd)"
again rep:4:deadbeef
repeated 1 " after the answer"
# The DREQ has no effect: there is no connection yet.
again dreq
# The driver waits for the requested time, and does not retransmit.
again mra:20 wait:3500 rep
repeated 0
say "late, twice, lost"

# The numbers in the REP: the acknowledgement timeout is at most 120 s.
again rep:26:f8
qp_has timeout $(if rust_driver; then echo 19; else echo 31; fi)
again rep:27:00
qp_has rnr_retries 0
again rep:25:ff
! rust_driver || qp_has reads 16
mark
again rej:3
! rust_driver || logged "reconnect failed: connection rejected: no resources"
# The target ends the connection as soon as it is established.
lost() { if rust_driver; then cat /sys/class/scsi_host/$host/statistics/connections_lost; else echo 0; fi; }
for end in dreq rej:4; do
	before=$(lost)
	again rep wait:300 $end
	within 40 "another login" twice_in
	# Only the first losses in close succession are logged.
	! rust_driver || equal "losses" $(lost) $((before + 2))
	within 40 "running" running
	block read
done
leaves
say "numbers of the answer"

# No response, or repeated requests for more time.
if [ -n "${LONG-}" ]; then
	tell login silent
	refused "silence" "Connection timed out|No route to host|Connection reset by peer|Input/output error" \
		"(target host does not answer|[a-z ]* timed out)"
	in_time "silence" $t $now 45000000
	tell requests 20 mra:18 nothing
	refused "time that is asked for and not used" \
		"Connection timed out|No route to host|Connection reset by peer|Input/output error" \
		"(target host does not answer|[a-z ]* timed out)"
	in_time "that" $t $now 110000000
	tell requests forget
	tell login ok
	enters
	leaves
fi
no_complaints
ok "$kind"
