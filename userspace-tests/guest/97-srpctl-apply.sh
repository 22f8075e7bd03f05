#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# `srpctl apply` makes the sessions what the files say, and then has nothing to do. `srpctl events` reports the login, a
# loss with its length, a new disk and the logout, `srpctl show` the loss, `srpctl explain` its line in the log,
# and `srpctl doctor --ask` whether a target is there.
#
# deadline: 300
# takes: 40
# runs: rxe kasan fast long
. "$(dirname "$0")/lib.sh"

begin
fabric_pair 1
target 0
for d in 0 1; do back_null d$d 16; done
lun 0 0 d0
guid=$(service_guid)
undo() { umount /etc/srp; }
mkdir -p /etc/srp
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"
mkdir /etc/srp/targets.d
file=/etc/srp/targets.d/disk1.conf
# is_file LINE...: the file of the target, with these lines.
is_file() {
	printf '%s\n' "id_ext = \"$guid\"" "ioc_guid = \"$guid\"" "dest = \"10.0.0.1:$port\"" 'reconnect_delay = 1' "$@" >$file
}

# ends STATUS TEXT ARGUMENT...: runs srpctl, sets `said`, and checks its status and output.
ends() {
	local status=0
	said=$(ini timeout -k 5 100 /srp/srpctl "${@:3}" 2>&1) || status=$?
	say "# srpctl ${*:3}"
	sed 's/^/  /' <<<"$said"
	[ $status = "$1" ] && [[ $said == *"$2"* ]] || fail "srpctl ${*:3}: status $status, wanted $1 and '$2': $said"
}
told() { grep -q "\"event\": *\"$1\"" $tmp/events; }
tells() { within 20 "the event $1: $(tail -n 5 $tmp/events)" told "$1"; }
one_host() { find_hosts; set -- $list; [ $# = 1 ] && host=$1; }
state_is() { [ "$(cat /sys/class/srp_remote_ports/port-${host#host}:1/state 2>/dev/null)" = "$1" ]; }
not_running() { ! state_is running; }

ini /srp/srpctl events --json >$tmp/events 2>&1 &
events=$!
tells start

is_file
ends 9 "disk1: not logged in; would log in" apply --check
no_hosts || fail "--check has logged in"
ends 0 disk1 apply
one_host || fail "hosts after apply: $(hosts)"
first=$host
tells login
ends 0 "disk1: nothing to do" apply --check
ends 0 '"changed": false' apply --json
one_host && [ $host = $first ] || fail "a second apply has changed the hosts: $(hosts)"

target_off 0
within 60 "a loss" not_running
target_on 0
within 60 "running" state_is running
tells loss
tells reconnect
grep '"event": *"reconnect"' $tmp/events | grep -q '"seconds"' || fail "no length: $(<$tmp/events)"
ends 0 "losses" show disk1
line=$(log_since | grep -m 1 'ib_srp: .*connection lost') || fail "no line of a loss: $(log_since | grep ib_srp)"
ends 0 "" explain "$line"
[ -n "$said" ] || fail "nothing to say of '$line'"

lun 0 1 d1
ends 0 "is new: LUN 1" rescan disk1
tells disk-new

is_file 'queue_size = 32'
ends 9 "queue_size" apply --check
dev=$(disk $host 0)
exec 5<$dev
ends 7 "" apply
exec 5<&-
udevadm settle -t 20
ends 0 "" apply
one_host || fail "hosts after a change: $(hosts)"
equal "logins" "$(log_since | grep -c 'ib_srp: .*: logged in at')" 2
ends 0 "disk1: nothing to do" apply --check

# Each finding is a line of JSON with its level; a test machine has some.
said=$(ini timeout 100 /srp/srpctl doctor --json 2>/dev/null) || [ $? = 1 ] || fail "doctor: $said"
python3 -c 'import json, sys; levels = {f["level"] for f in json.load(sys.stdin)}; sys.exit("ok" not in levels)' \
	<<<"$said" ||
	fail "doctor: $said"

# A request that is no login tells whether a target is there, and leaves its sessions alone.
modprobe -qa ib_uverbs rdma_ucm
losses=$(cat /sys/class/scsi_host/$host/statistics/connections_lost)
sed '/^dest/s/:[0-9]*"$/:1"/' $file >${file%1.conf}3.conf
sed '$ainitiator_ext = "2"' $file >${file%1.conf}2.conf
said=$(ini timeout 100 /srp/srpctl doctor --ask) || [ $? = 1 ] || fail "doctor --ask: $said"
say "$(grep -A 1 ' target ' <<<"$said")"
rejects="the target answers, and rejects a request that is no login"
[[ $said == *"disk2: 10.0.0.1 port $port: $rejects"* ]] || fail "disk2: $said"
[[ $said == *"disk3: 10.0.0.1 port 1: connection rejected: invalid service ID (reason 8)"* ]] || fail "disk3: $said"
[[ $said != *"disk1: 10.0.0.1 port"* ]] || fail "disk1 is asked, which has a session: $said"
one_host && state_is running || fail "the session of disk1: $(hosts)"
equal "losses by the request" "$(cat /sys/class/scsi_host/$host/statistics/connections_lost)" "$losses"
equal "lines of the target" "$(log_since | grep -c 'rejected SRP_LOGIN_REQ because its length (0 bytes)')" 1
rm ${file%1.conf}[23].conf

rm $file
ends 9 "the file is removed" apply --check
ends 0 "" apply
within 30 "no host: $(hosts)" no_hosts
tells logout
pkill -f "srpctl events"
reap 10 "srpctl events" $events || fail "srpctl events failed: $(tail -n 3 $tmp/events)"
say "$(wc -l <$tmp/events) events"
clean
ok
