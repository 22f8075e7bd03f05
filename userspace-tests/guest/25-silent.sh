#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A first login to a host that never responds ends by itself, and immediately when the RDMA device is deleted or the
# module is unloaded. On siw the write opens a TCP connection, with TCP's own retries.
#
# deadline: 300
# takes: 90
# runs: siw kasan long LONG=
# runs: rxe kasan fast long kmemleak=on
# runs: vfab kasan long LONG=
# runs: vfab kasan long LONG= PERSONALITY=*
# runs: rxe rt rtdebug long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/faults.sh"

begin
rust_driver || skip "the C driver waits for the retries of the connection manager, or of TCP"
fabric_pair 2
back_ram disk 4
for i in 0 1; do target $i; lun $i 0 disk; done
silent=10.0.0.99
from 0
[ $kind != siw ] || silent="[fd00::99]"
string="id_ext=$(service_guid),ioc_guid=$(service_guid),src=$src,dest=$silent:$port"
no_neighbor() {
	if [ $kind = vfab ]; then silence 0; else ini ip neigh replace ${silent//[][]/} lladdr 02:00:00:00:00:99 dev w0; fi
}
[ $kind != vfab ] || string=$(login_string 0)
# took WHAT MS: checks the time since `t`.
took() { clock; in_time "$1" $t $now ${2}000; times+=", $1 $(ms $((now - t)))"; }
begin_login() {
	no_neighbor
	write_login 0 "$string" >$tmp/said &
	writer=$!
	sleep 1.5
	kill -0 $writer 2>/dev/null || fail "the login has ended already: $(<$tmp/said)"
	t=${EPOCHREALTIME/./}
}
login_ends() { within 3 "end of the login" ended $writer; [ -s $tmp/said ] || fail "the login succeeded"; }

times=
no_neighbor
t=${EPOCHREALTIME/./}
equal "login" "$(write_login 0 "$string")" "Connection timed out"
took "login" 33000
no_hosts || fail "a host is left"

begin_login
device_goes 0 || fail "the device does not go"
took "removal of the device" $((3000 + ipoib_ms))
login_ends
pair_device 0

begin_login
unload_srp || fail "rmmod: $(<$tmp/rmmod)"
took "rmmod" 3000
login_ends
load_srp
within 10 "the port" test -e "$(add_target 0)"
[ $kind != vfab ] || silence 0 0

login 0
logout "$host"
clean

# If an additional channel cannot connect, the login continues without it.
if [ $kind = siw ]; then
	mark
	hole target 0 'tcp flags & (syn | ack) == syn limit rate over 1/hour burst 1 packets'
	t=${EPOCHREALTIME/./}
	login 0 ,ch_count=2
	took "login without the second channel" 34000
	equal "channels" "$(</sys/class/scsi_host/$host/ch_count)" 1
	logged 'only 1 of 2 channels connected: .* timed out'
	equal "logins" "$(log_since | grep -c 'ib_srp: .*1 of 2 channels')" 1
	heal 0
	logout "$host"
	clean
fi

# dead N: measures rmmod with N targets that have stopped responding, each on its own device; from `since` to `until`.
dead() {
	local i t
	for ((i = 0; i < $1; i++)); do
		login $i ,tl_retry_count=2
		disk $host 0 >/dev/null
	done
	# An open disk would hold a reference to the module.
	udevadm settle -t 30
	for ((i = 0; i < $1; i++)); do hole both $i; done
	t=${EPOCHREALTIME/./}
	unload_srp || fail "rmmod with $1 dead targets: $(<$tmp/rmmod)"
	clock; since=$t until=$now
	for ((i = 0; i < $1; i++)); do heal $i; done
	load_srp
	for ((i = 0; i < 2; i++)); do within 10 "the port" test -e "$(add_target $i)"; done
}
dead 1
one=$((until - since))
times+=", with one dead target $(ms $one)"
dead 2
times+=", with two $(ms $((until - since)))"
# The teardowns run in parallel.
in_time "rmmod with two dead targets" $since $until $((one * 3 / 2 + 500000))
in_time "rmmod with two dead targets" $since $until 20000000
ok "$kind${times/,/:}"
