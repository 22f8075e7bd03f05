#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Unmodified srp_daemon on the subnet of ib_vfab: it finds the target, obeys its rules, recognizes existing sessions
# (also those of srpctl) by our sysfs files, finds a target that appears later, and logs in to each exactly once,
# whatever the subnet manager does.
#
# deadline: 500
# takes: 185
# runs: vfab kasan fast long
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
command -v srp_daemon >/dev/null || skip "srptools is not in this guest"
begin
subnet 3
gid vfab1; gid1=$gid
for i in 0 2; do
	back_null disk$i 32
	target $i
	# With -n the initiator extension is derived from the target's port.
	gid vfab$i
	mkdir "${tpg[$i]}/acls/0x${gid:16}${gid1:16}" || fail "cannot make an ACL"
	lun $i 0 disk$i
done
gid2=$gid
gid vfab0; gid0=$gid
guid=$(service_guid) guid=${guid#0x}
# string GID: prints the login string for that port.
string() { echo "id_ext=$guid,ioc_guid=$guid,dgid=$1,pkey=ffff,service_id=$guid"; }

# ib_srpt also listens on the initiator's adapter, which has no target.
conf=/etc/srp_daemon.conf
echo "d dgid=$gid1" >$tmp/rules
[ -e $conf ] || touch $conf
mount --bind $tmp/rules $conf || fail "cannot have other rules"
undo() { local n; for n in 1 2 3 4 5; do umount $conf 2>/dev/null || break; done; }

# The second target does not exist yet.
is_target() { timeout 20 saquery PortInfoRecord "$1" 2>/dev/null | grep -q IsDeviceManagement; }
lid vfab2; lid2=$lid
lid vfab0; lid0=$lid
at_port vfab2 down
within 30 "opensm without vfab2" not is_target $lid2
within 30 "the target's capability" is_target $lid0

# finds WHAT WANTED [OPTION]...: checks which targets srp_daemon would log in to.
finds() {
	local got
	got=$(timeout 60 srp_daemon -o -c -i vfab1 "${@:3}" 2>$tmp/err | sort)
	[ "$got" = "$2" ] || {
		cat $tmp/err
		timeout 60 srp_daemon -o -c -V -i vfab1 "${@:3}"
		fail "$1: '$got', wanted '$2'"
	}
}
# ruled WHAT WANTED RULE...
ruled() { printf '%s\n' "${@:3}" >$tmp/ruled; finds "$1" "$2" -f $tmp/ruled; }
for u in /sys/class/infiniband_mad/umad*; do [ "$(cat $u/ibdev)" != vfab1 ] || umad=${u##*/}; done
tool ibsrpdm -c -d /dev/infiniband/$umad
only=$(string $gid0)
both=$({ echo "$only"; string $gid1; } | sort)
equal "ibsrpdm" "$(sort <<<"$said")" "$both"
other=0123456789abcdef
finds "a new target" "$only"
ruled "no rules" "$both"
ruled "an allowed port" "$only,queue_size=40,max_cmd_per_lun=7" "a dgid=$gid0,queue_size=40,max_cmd_per_lun=7" d
ruled "a controller that is not allowed" "" "d ioc_guid=$guid"
ruled "another controller" "" "a ioc_guid=$other" d
ruled "another service, and its partition" "$only" "d service_id=$other" "d pkey=1234" "d id_ext=$other" \
	"a dgid=$gid0,pkey=ffff" d

# The message length must be limited if immediate data could exceed the target's limit.
parameters=/sys/module/ib_srp/parameters
read -r size </sys/module/ib_srpt/parameters/srp_max_req_size
[ $size -lt 32768 ] || fail "the target takes $size bytes"
echo 32768 >$parameters/max_imm_data
finds "a target with shorter messages" "$only,max_it_iu_size=$size"
echo N >$parameters/use_imm_data
finds "the same with use_imm_data=N" "$only"
echo Y >$parameters/use_imm_data
echo 8192 >$parameters/max_imm_data

# sessions N: returns whether there are N sessions. With N = 1 it sets `host` to the host of the session.
sessions() { find_hosts; set -- $1 $list; host=${2-}; [ $# = $(($1 + 1)) ]; }
once() { timeout 60 srp_daemon -o -e -c -i vfab1 "$@" >$tmp/out 2>$tmp/err || fail "srp_daemon -e: $(cat $tmp/err)"; }
printf '%s\n' "a dgid=$gid0,max_cmd_per_lun=7" d >$tmp/ruled
once -f $tmp/ruled
sessions 1 || fail "srp_daemon logged in to '$list': $(cat $tmp/out)"
disk "$host" 0 >$tmp/disk
is "a rule's option" /sys/class/scsi_host/$host/cmd_per_lun 7
finds "a connected target" ""
finds "a connected target with -a" "$only" -a
once
[ ! -s $tmp/out ] || fail "srp_daemon logs in again: $(cat $tmp/out)"
# srp_daemon checks each of these files.
seen_as() {
	echo "$2" >$tmp/over
	mount --bind $tmp/over /sys/class/scsi_host/$host/$1 || fail "cannot stand in for $1"
	finds "$1 is $2" "$only"
	umount /sys/class/scsi_host/$host/$1
}
seen_as id_ext 0x$other
seen_as ioc_guid 0x$other
seen_as service_id 0x$other
seen_as orig_dgid fe80:0000:0000:0000:0123:4567:89ab:cdef
seen_as pkey 0x8001
seen_as local_ib_port 2
seen_as local_ib_device vfab0

# srp_daemon and srpctl ignore the sessions of each other.
if rust_driver && [ -x /srp/srpctl ]; then
	srpctl() { said=$(timeout -k 5 100 /srp/srpctl "$@" 2>&1) || fail "srpctl $*: $said"; }
	same=(--device vfab1 --id-ext $guid --ioc-guid $guid --dgid $gid0 --pkey ffff --service-id $guid)
	srpctl connect "${same[@]}"
	[[ $said == "$host: already logged in"* ]] || fail "srpctl connect beside srp_daemon: $said"
	theirs=$host
	srpctl connect "${same[@]}" --initiator-ext 1
	sessions 2 || fail "sessions of both: $list"
	srpctl disconnect --all
	sessions 1 && [ $host = $theirs ] || fail "srpctl leaves '$list' of srp_daemon's '$theirs'"
	logout "$host"
	srpctl connect "${same[@]}"
	sessions 1 || fail "srpctl logged in to '$list': $said"
	finds "a target that srpctl has connected" ""
	once
	[ ! -s $tmp/out ] || fail "srp_daemon beside srpctl: $(cat $tmp/out)"
	srpctl disconnect --all
	no_hosts || fail "left by srpctl disconnect --all: $list"
	finds "a target that srpctl has left" "$only"
else
	logout "$host"
fi

# udev has systemd start srp_daemon for each port if the service is active.
printf '#!/bin/sh\necho ActiveState=active\n' >$tmp/systemctl
chmod +x $tmp/systemctl
[ -e /bin/systemctl ] || touch /bin/systemctl
mount --bind $tmp/systemctl /bin/systemctl || fail "cannot stand in for systemctl"
udevadm trigger --settle --action=add /sys/class/infiniband_mad/$umad
umount /bin/systemctl
udevadm info --query=property /sys/class/infiniband_mad/$umad >$tmp/properties
grep -q '^SYSTEMD_WANTS=.*srp_daemon_port@vfab1:1\.service' $tmp/properties || {
	cat $tmp/properties
	fail "the rule of srp_daemon does not start it"
}

# Starts srp_daemon like systemd does, with the modules it requires.
unit=/usr/lib/systemd/system/srp_daemon_port@.service
modules=/etc/rdma/modules/srp_daemon.conf
[ -f $unit ] && [ -f $modules ] || fail "no $unit or $modules"
if [ -z "${SRP_MODULE-}" ]; then
	unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
	while read -r m; do modprobe "$m" || fail "modprobe $m"; done < <(grep -v '^ *\(#\|$\)' $modules)
	loaded ib_srp || fail "$modules does not load ib_srp"
fi
read -ra command < <(sed -n 's/^ExecStart=//p' $unit)
[ ${#command[@]} -gt 2 ] || fail "no command in $unit"
"${command[@]/\%I/vfab1:1}" >$tmp/out 2>&1 &
daemon=$!
within 30 "a login by ${command[*]}" or_ended $daemon sessions 1
disk "$host" 0 >$tmp/disk
kill $daemon
reap 20 "${command[*]}" $daemon || fail "the end of ${command[*]}: status $?"
equal "what ${command[*]} wrote" "$(head -n 1 $tmp/out)" "$only,initiator_ext=${gid0:16}"
logout "$host"

# From here on srp_daemon only rescans after a notification.
daemon() {
	stdbuf -oL srp_daemon -e -c -n -V -T 0 -i vfab1 >$tmp/out 2>&1 &
	daemon=$!
}
times() { grep -c "$1" $tmp/out; }
looks='^Starting a recalculation' skips='already connected - skip' logins='^id_ext='
remember() { looked=$(times "$looks") skipped=$(times "$skips") added=$(times "$logins"); }
more() { [ "$(times "$1")" -gt $2 ]; }
# only_looks WHAT: checks that srp_daemon rescans and has nothing to do.
only_looks() {
	within 40 "srp_daemon looks again: $1" or_ended $daemon more "$looks" $looked
	within 20 "srp_daemon finds what is connected: $1" or_ended $daemon more "$skips" $skipped
	no_login "$1"
}
no_login() {
	sleep 2
	! ended $daemon || fail "srp_daemon has ended: $1: $(tail -n 5 $tmp/out)"
	equal "logins: $1" "$(times "$logins")" $added
}
# session_of GID: sets `host` to the host of the session with the port GID. Fails if there is none.
session_of() {
	local h got
	find_hosts
	for h in $list; do read -r got </sys/class/scsi_host/$h/dgid; [ "${got//:/}" != $1 ] || { host=$h; return 0; }; done
	return 1
}
# A session exists until its connections have ended, which takes a while without the target.
connections() { n=$(resources qp | grep -c '^link vfab1/1 .*\[ib_srp\]'); }
half() { local n; connections; [ $n -le $((had / 2)) ]; }
goes() {
	local n had
	connections
	had=$n
	at_port vfab2 down
	logout "$second"
	within 20 "the end of the connections to the second target" half
	within 30 "opensm without vfab2" not is_target $lid2
}
comes() {
	remember
	at_port vfab2 up
	within 60 "the second target is found: $1" or_ended $daemon session_of $gid2
	session_of $gid2 || fail "$1: $(tail -n 5 $tmp/out)"
	second=$host
	sessions 2 || fail "$1: sessions $list"
	equal "logins: $1" "$(times "$logins")" $((added + 1))
	disk "$second" 0 >$tmp/disk
}
daemon
within 30 "a login" or_ended $daemon session_of $gid0
comes "at first"

remember
kill -HUP ${manager[vfab0]}
no_login "a heavy sweep"
remember
at_port vfab1 reregister
only_looks "reregistration"

goes
remember
subnet_manager_ends vfab0
subnet_manager vfab0
within 30 "opensm is the master again" manager_is vfab0 MASTER
only_looks "opensm was started again"
comes "opensm was started again"

subnet_manager vfab1 --priority 0
within 30 "a standby" manager_is vfab1 STANDBY
remember
subnet_manager_ends vfab0
lid vfab1
at_other() { port_has vfab1 sm_lid "$(printf 0x%x $lid)"; }
within 90 "another manager" at_other
only_looks "another manager"
goes
comes "another manager"

remember
at_port vfab1 pkey 3 0x8003
only_looks "another partition"
sessions 2 || fail "sessions at last: $list"
kill $daemon
reap 20 "srp_daemon" $daemon
subnet_manager_ends vfab1
ok "srp_daemon logs in once to all that it finds"
