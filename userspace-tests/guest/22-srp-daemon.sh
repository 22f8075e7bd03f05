#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# srp_daemon as it is, on a subnet that fake-umad.so makes up: it finds a target, logs in, and knows
# by our files what is connected, also by srpctl.
. "$(dirname "$0")/lib.sh"

begin 300
fake=$here/../fake-umad.so
[ -f "$fake" ] || skip "fake-umad.so is not in this guest"
command -v srp_daemon >/dev/null || skip "srptools is not in this guest"
[ -x /srp/srpctl ] || skip "srpctl is not in this guest"
modprobe -a ib_umad ib_uverbs || fail "no user space access to RDMA devices"
fabric_pair 1
rust_driver || skip "the C driver needs a subnet administrator for its logins"
back_null disk 32
target 0
gid rxe10
mine=$gid
gid rxe0
# With -n, initiators are told apart by the target's port.
mkdir "${tpg[0]}/acls/0x${gid:16}${mine:16}" || fail "cannot make an ACL"
lun 0 0 disk
within 20 "link-local addresses" link_local
udevadm settle -t 20

guid=$(service_guid) guid=${guid#0x}
# The target listens by rdma_cm, at the service that stands for its TCP port.
service=$(printf %016x $((0x01060000 + port)))
export FAKE_PREFIX=0x${gid:0:16} FAKE_GUID=0x${gid:16} FAKE_IOC=0x$guid FAKE_SERVICE=0x$service FAKE_ID_EXT=$guid
export FAKE_SEND_SIZE=9000
string="id_ext=$guid,ioc_guid=$guid,dgid=$gid,pkey=ffff,service_id=$service"
mkdir $tmp/over
host=

# alone COMMAND...: with InfiniBand ports, a subnet manager at LID 7, and the files of $tmp/over in
# place of the host's.
alone() {
	echo 0x7 >$tmp/sm_lid
	echo InfiniBand >$tmp/link_layer
	timeout ${seconds-60} "${in_ns[@]}" unshare -m bash -c '
		for f in sm_lid link_layer; do
			for d in rxe0 rxe10; do mount --bind "$1/$f" /sys/class/infiniband/$d/ports/1/$f || exit 90; done
		done
		[ -z "$2" ] || for f in "$1"/over/*; do
			[ ! -e "$f" ] || mount --bind "$f" "/sys/class/scsi_host/$2/${f##*/}" || exit 91
		done
		export LD_PRELOAD=$3
		exec "${@:4}"' _ "$tmp" "$host" "$fake" "$@" 2>$tmp/err
}
# finds WHAT WANTED DEVICE [OPTION]...: the targets that it would log in to.
finds() {
	local got
	got=$(alone srp_daemon -o -c -i "${@:3}")
	[ "$got" = "$2" ] || { cat $tmp/err; alone srp_daemon -o -c -V -i "${@:3}"; fail "$1: '$got', wanted '$2'"; }
}

finds "a new target" "$string" rxe10
for u in /sys/class/infiniband_mad/umad*; do [ "$(cat $u/ibdev)" != rxe10 ] || umad=/dev/infiniband/${u##*/}; done
alone ibsrpdm -c -d $umad >$tmp/out || fail "ibsrpdm: $(cat $tmp/err)"
equal "ibsrpdm" "$(cat $tmp/out)" "$string"

# The length of messages is limited if immediate data could exceed it.
parameters=/sys/module/ib_srp/parameters
FAKE_SEND_SIZE=4096 finds "a target with small messages" "$string,max_it_iu_size=4096" rxe10
echo 4096 >$parameters/max_imm_data
FAKE_SEND_SIZE=4096 finds "the same with max_imm_data=4096" "$string" rxe10
echo 8192 >$parameters/max_imm_data
echo N >$parameters/use_imm_data
FAKE_SEND_SIZE=4096 finds "the same with use_imm_data=N" "$string" rxe10
echo Y >$parameters/use_imm_data

# A login by RDMA/CM has no service, so it is another target for srp_daemon, with the C driver as well.
login 0 ,initiator_ext=1
finds "a target connected by RDMA/CM" "$string" rxe10
logout "$host"
host=

# one_host: logged in once; sets `host`.
one_host() { find_hosts; set -- $list; [ $# = 1 ] || return; host=$1; }
alone srp_daemon -o -e -c -V -i rxe10 >$tmp/out || fail "srp_daemon -e: $(cat $tmp/err)"
one_host || fail "srp_daemon logged in to '$list': $(cat $tmp/out)"
disk "$host" 0 >$tmp/disk
finds "a connected target" "" rxe10
finds "a connected target with -a" "$string" rxe10 -a
FAKE_SEND_SIZE=4096 finds "a connected target with small messages" "" rxe10
alone srp_daemon -o -e -c -i rxe10 >$tmp/out || fail "srp_daemon -e: $(cat $tmp/err)"
[ ! -s $tmp/out ] || fail "srp_daemon logs in again: $(cat $tmp/out)"
# Each of our files decides.
other=0123456789abcdef
FAKE_IOC=0x$other finds "another controller" "${string/ioc_guid=$guid/ioc_guid=$other}" rxe10
FAKE_ID_EXT=$other finds "another extension" "${string/id_ext=$guid/id_ext=$other}" rxe10
FAKE_SERVICE=0x$other finds "another service" "${string/service_id=$service/service_id=$other}" rxe10
FAKE_GUID=0x$other finds "another port of the target" "${string/$gid/${gid:0:16}$other}" rxe10
finds "another device of ours" "$string" rxe0
for file in local_ib_port=2 pkey=0x8001; do
	echo ${file#*=} >$tmp/over/${file%=*}
	finds "$file" "$string" rxe10
	rm $tmp/over/${file%=*}
done

# Beside srpctl: each sees what the other has made, and leaves it alone.
srpctl() { said=$("${in_ns[@]}" timeout -k 5 100 /srp/srpctl "$@" 2>&1) || fail "srpctl $*: $said"; }
same=(--device rxe10 --id-ext $guid --ioc-guid $guid --dgid $gid --pkey ffff --service-id $service)
srpctl connect "${same[@]}"
[[ $said == "$host: is logged in already"* ]] || fail "srpctl connect beside srp_daemon: $said"
srpctl connect "${same[@]}" --initiator-ext 1
find_hosts
equal "sessions of both" "$(wc -w <<<"$list")" 2
srpctl disconnect --all
find_hosts
equal "what srpctl leaves to srp_daemon" "$list" "$host "
logout "$host"
host=
srpctl connect "${same[@]}"
one_host || fail "srpctl logged in to '$list': $said"
theirs=$host
finds "a target that srpctl has connected" "" rxe10
alone srp_daemon -o -e -c -i rxe10 >$tmp/out || fail "srp_daemon -e: $(cat $tmp/err)"
[ ! -s $tmp/out ] && one_host && [ "$host" = "$theirs" ] || fail "srp_daemon beside srpctl: '$list' instead of '$theirs': $(cat $tmp/out)"
srpctl disconnect --all
no_hosts || fail "left by srpctl disconnect --all: $list"
host=
finds "a target that srpctl has left" "$string" rxe10

# udev has systemd start it for each port, if systemd says that the service is on.
printf '#!/bin/sh\necho ActiveState=active\n' >$tmp/systemctl
chmod +x $tmp/systemctl
[ -e /bin/systemctl ] || touch /bin/systemctl
mount --bind $tmp/systemctl /bin/systemctl || fail "cannot stand in for systemctl"
udevadm trigger --settle --action=add /sys/class/infiniband_mad/${umad##*/}
umount /bin/systemctl
udevadm info --query=property /sys/class/infiniband_mad/${umad##*/} >$tmp/properties
grep -q '^SYSTEMD_WANTS=.*srp_daemon_port@rxe10:1\.service' $tmp/properties || { cat $tmp/properties; fail "the rule of srp_daemon does not start it"; }

# As systemd starts it, after the modules that it wants.
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
command=("${command[@]/\%I/rxe10:1}")
# It looks again 20 s after it has seen that a target is connected.
seconds=18 alone "${command[@]}" >$tmp/out &
within 17 "a login by ${command[*]}" one_host
wait $!
equal "status of ${command[*]}" $? 124
equal "what ${command[*]} wrote" "$(head -n 1 $tmp/out)" "$string,initiator_ext=${gid:16}"
disk "$host" 0 >$tmp/disk
ok "srp_daemon logs in and sees what is connected"
