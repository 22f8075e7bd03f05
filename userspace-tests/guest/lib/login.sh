# SPDX-License-Identifier: GPL-2.0
# Logins and the SCSI hosts that they create.

# Sets `list` to the SCSI hosts of ib_srp.
find_hosts() {
	local h p
	list=
	for h in /sys/class/scsi_host/host*; do
		p=
		{ read -r p <"$h/proc_name"; } 2>/dev/null
		[ "$p" != ib_srp ] || list+="${h##*/} "
	done
}
hosts() { find_hosts; echo $list; }
no_hosts() { find_hosts; [ -z "$list" ]; }
gone() { [ ! -e "/sys/class/scsi_host/$1" ]; }

# Prints the target's service GUID, which LIO derives from its first RDMA device.
service_guid() { cat /sys/module/ib_srpt/parameters/srpt_service_guid; }

# from I: sets `src` and `dest` to the addresses of a connection to target I.
from() {
	src=10.0.$1.1 dest=10.0.$1.1
	[ -z "$paired" ] || src=10.0.$1.2
	[ $kind != siw ] || { src="[fd00:0:0:$1::2]"; dest="[fd00:0:0:$1::1]"; }
}

# link_local: checks that the link-local addresses, which the driver's own paths use, are ready. listener: prints the
# service ID of LIO's TCP port, at which it listens.
link_local() {
	! { ip -6 addr show dev v0 tentative; ip -n $ns -6 addr show dev w0 tentative; } | grep inet6 >/dev/null
}
listener() { printf %016x $((0x01060000 + port)); }

# login_string I [,option=value]...: prints the login string for target I, with CM=ib for the InfiniBand CM, which is
# the default on vfab unless CM=rdma.
login_string() {
	guid=$(service_guid)
	if [ $kind = vfab ] && [ "${CM-}" != rdma ]; then
		gid ${tport[$1]-vfab$1}
		echo "id_ext=$guid,ioc_guid=$guid,dgid=$gid,pkey=ffff,service_id=${guid#0x}${2-}"
		return
	fi
	if [ "${CM-}" = ib ]; then
		within 20 "link-local addresses" link_local
		gid rxe$1
		echo "id_ext=$guid,ioc_guid=$guid,dgid=$gid,pkey=ffff,service_id=$(listener)${2-}"
		return
	fi
	from $1
	echo "id_ext=$guid,ioc_guid=$guid,src=$src,dest=$dest:$port${2-}"
}

# write_login I STRING: writes to add_target of the initiator's device. Prints the error message, or nothing on success.
write_login() {
	local out
	target_up $1
	if [ -z "$paired" ]; then
		out=$({ printf %s "$2" >"$(add_target $1)"; } 2>&1)
	else
		out=$(timeout -k 5 60 $([ $kind = siw ] || echo "${in_ns[@]}") \
			bash -c 'printf %s "$1" >"$2"' _ "$2" "$(add_target $1)" 2>&1)
		case $? in 124|137) out="no answer within 60 s" ;; esac
	fi
	out=${out##*: }		# "bash: line 1: printf: write error: File exists"
	printf '%s' "$out"
}

# login I [,option=value]...: logs in; sets `host`. A login may be refused for a moment after the host of the previous
# one disappeared.
login() {
	local before error try h
	find_hosts
	before=" $list"
	for try in 1 2 3 4 5 6 7 8 9 10; do
		error=$(write_login "$1" "$(login_string "$1" "${2-}")")
		[ "$error" = "File exists" ] || break
		sleep 0.3
	done
	[ -z "$error" ] || fail "login to target $1 ${2-}: $error"
	find_hosts
	host=
	for h in $list; do [[ $before == *" $h "* ]] || host=$h; done
	# The new host may have the number of one that disappeared meanwhile.
	[ -n "$host" ] || h=$(dmesg | sed -n 's/.*scsi \(host[0-9]*\): SRP\.T10.*/\1/p' | tail -n 1)
	[ -n "$host" ] || [[ " $list" != *" $h "* ]] || host=$h
	[ -n "$host" ] || fail "login to target $1 made no SCSI host"
}

# delete_port HOST: starts the teardown of its session.
delete_port() { echo 1 >"/sys/class/srp_remote_ports/port-${1#host}:1/delete"; }
# logout HOST [SECONDS]: logs out and waits until the host is gone.
logout() {
	delete_port "$1" || fail "cannot log $1 out"
	within "${2-20}" "$1 removed" gone "$1"
}
