#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# srpctl: ten failures that administrators encounter, a login by the route, its output, and the limits of --all.
#
# deadline: 240
# takes: 81
# runs: rxe kasan fast long
. "$(dirname "$0")/lib.sh"

begin
# A machine without an RDMA device.
without=$(/srp/srpctl connect --id-ext 1 --ioc-guid 1 --dest 10.0.0.1:$port 2>&1) &&
	fail "a login without a device: $without"
[[ $without == *"no RDMA port found; "* ]] || fail "without a device: $without"
fabric_pair 1
target 0
for d in 0 1; do back_null d$d 16; lun 0 $d d$d; done
guid=$(service_guid)
here_is="--id-ext $guid --ioc-guid $guid"
dest=10.0.0.1:$port
wrong=${guid%?}e
[ $wrong != $guid ] || wrong=${guid%?}d

undo() { dm remove layer; umount $tmp/mnt $tmp/cut /etc/srp; rm -f /run/modprobe.d/none.conf; }

# srpctl ARGUMENT...: sets `said` and `status` to the output and exit status, and prints both.
srpctl() {
	status=0
	said=$(ini timeout -k 5 100 /srp/srpctl "$@" 2>&1) || status=$?
	say "# srpctl $*"
	sed 's/^/  /' <<<"$said"
	[ $status = 0 ] || say "status $status"
}
# fails STATUS TEXT ARGUMENT...
fails() {
	srpctl "${@:3}"
	[ $status = "$1" ] && [[ $said == *"$2"* ]] || fail "srpctl ${*:3}: status $status, wanted $1 and '$2': $said"
	no_hosts || fail "srpctl ${*:3}: a host is there: $(hosts)"
}
works() { srpctl "$@"; [ $status = 0 ] || fail "srpctl $*: status $status: $said"; }
says() { [[ $said == *"$1"* ]] || fail "not said: '$1': $said"; }
# refused TEXT ARGUMENT...: checks that srpctl does nothing, prints TEXT, and returns the status of a disk in use.
refused() {
	srpctl "${@:2}"
	[ $status = 7 ] && says "$1" || fail "srpctl ${*:2}: status $status: $said"
}

# Failures 1 to 10.
fails 1 "login failed: address not resolved" connect $here_is --dest 10.0.0.77:$port
fails 1 "login failed: connection rejected: invalid service ID" connect $here_is --dest 10.0.0.1:$((port + 1))
fails 1 "check id_ext and ioc_guid against the target's service GUID" connect --id-ext $wrong --ioc-guid $guid \
	--dest $dest
fails 1 "check that the target's ACL has this initiator's port" connect $here_is --dest $dest --initiator-ext 77
fails 2 "'queue_size=9999': must be 1 to 4096" connect $here_is --dest $dest --queue-size 9999
fails 2 "missing in the login string: dest" connect $here_is
fails 2 "dest: invalid value: '$dest,queue_size=5'" connect $here_is --dest $dest,queue_size=5
fails 2 "'host7' cannot be the name of a target" connect $here_is --dest $dest --save host7
fails 2 "unexpected argument '--queue-sise'" connect $here_is --dest $dest --queue-sise 5
fails 2 "fast_io_fail_tmo (70) must be less than dev_loss_tmo (60)" connect $here_is --dest $dest \
	--fast-io-fail-tmo 70 --dev-loss-tmo 60
fails 6 "there is no /etc/srp/targets.d/nobody.conf" connect nobody
fails 6 "host77 is not a session of ib_srp" disconnect host77
fails 3 "no RDMA port mlx5_0; available: " connect $here_is --dest $dest --device mlx5_0
fails 3 "which belongs to no RDMA port" connect $here_is --dest 127.0.0.1:$port
fails 3 "there is no network interface nix0" connect $here_is --dest [fe80::1%nix0]:$port
fails 3 "several RDMA ports may reach the target: " connect $here_is --dgid fe80000000000000${guid: -16} --pkey ffff \
	--service-id $guid
ini ip link set w0 down
fails 3 "there is no route to 10.0.0.1" connect $here_is --dest $dest
ini ip link set w0 up
neighbours 0
status=0
said=$(setpriv --reuid 65534 --clear-groups /srp/srpctl connect $here_is --dest $dest --device rxe10 2>&1) || status=$?
say "# srpctl connect (as nobody): $said"
[ $status = 4 ] && says "srpctl must be run by root" || fail "as nobody: status $status: $said"

# Device management tells the identifiers of the target behind an address, through the link-local GID or the address.
within 20 "link-local addresses" link_local
works discover 10.0.0.1:$port
says "10.0.0.1:$port through rxe10/1: Linux SRP target"
found="srpctl connect --id-ext ${guid#0x} --ioc-guid ${guid#0x} --dest"
says "$found '$dest'"
index=$(ini ip -o link show w0)
local=fe80::53:52ff:fe50:0%${index%%:*}
works discover [$local]
says "$found '[$local]:5555'"
fails 3 "10.0.0.77 does not answer on w0" discover 10.0.0.77
fails 3 "10.0.0.1 is reached through w0 (10.0.0.2), which belongs to rxe10/1, not to rxe0/1; leave out --device" \
	discover --device rxe0 10.0.0.1
ini tc qdisc add dev w0 root netem loss 100% || fail "tc"
fails 8 "no device management agent answers" discover 10.0.0.1
ini tc qdisc del dev w0 root
modprobe -r ib_umad || fail "ib_umad is in use"

# The route selects the device of the initiator's interface.
works connect $here_is --dest $dest --reconnect-delay 7 --fast-io-fail-tmo off --dev-loss-tmo 300
says "logged in at $dest through rxe10/1"
find_hosts
host=${list% }
disk=$(disk $host 1)
says "$disk, "
r=/sys/class/srp_remote_ports/port-${host#host}:1
is "a timeout" $r/reconnect_delay 7
is "a timeout" $r/fast_io_fail_tmo off
is "a timeout" $r/dev_loss_tmo 300
works connect $here_is --dest $dest
says "$host: already logged in"
dd if=$disk of=/dev/null bs=4k count=100 iflag=direct status=none || fail "reading $disk"

version=$(cat /sys/module/ib_srp/version)
works --version
[[ $said == "srpctl $version"$'\n'"ib_srp $version (loaded)"* ]] ||
	fail "the module is $version, and srpctl says: $said"

works list
says "$host "
says " 10.0.0.1:$port "
says " running "
works list --json
echo "$said" | python3 -c '
import json, sys
session, = json.load(sys.stdin)
assert session["address"] == sys.argv[1] and session["owner"] == "srpctl" and session["state"] == "running", session
assert [d["lun"] for d in session["disks"]] == [0, 1] and session["disks"][1]["size"] == 16 << 20, session
assert session["disks"][0]["wwid"] != session["disks"][1]["wwid"], session' $dest || fail "list --json"
works show $host
says "made by            srpctl"
dd if=/dev/zero of=$disk bs=64k count=200 oflag=direct status=none & io=$!
works watch --count 1
reap 60 "dd" $io || fail "a write beside watch"
says "$host "
says "dynamic "
works stats --format prometheus
says "srp_running{host=\"${host#host}\","
# Sum of the commands on all channels.
commands=$(awk '/^srp_commands_total/ {sum += $NF} END {print sum + 0}' <<<"$said")
[ $commands -ge 300 ] || fail "$commands commands counted: $said"
works discover
says "rxe10/1 (w0): give the address of a target"

# A mounted disk is not removed; --all skips the sessions of other owners.
mkfs.ext4 -q $disk && mkdir $tmp/mnt && mount $disk $tmp/mnt || fail "cannot mount $disk"
refused "${disk#/dev/} is mounted at $tmp/mnt" disconnect --all
umount $tmp/mnt
dm create layer --table "0 2048 linear $disk 0" || fail "dmsetup"
refused "layer (device mapper) is made of ${disk#/dev/}" disconnect $host
dm remove --retry layer
ours=$host
login 0 ,initiator_ext=1
theirs=$host
works connect $here_is --dest $dest
says "$ours: already logged in"
works connect $here_is --dest $dest --initiator-ext 1
says "$theirs: already logged in"
(sleep 1; /srp/srpctl list --json 2>$tmp/pipe; echo $? >$tmp/status) | true
[ "$(<$tmp/status)" = 0 ] && [ ! -s $tmp/pipe ] || fail "list without a reader: status $(<$tmp/status): $(<$tmp/pipe)"
(sleep 1; /srp/srpctl show nobody 2>&1; echo $? >$tmp/status) | true
[ "$(<$tmp/status)" = 6 ] || fail "an error without a reader: status $(<$tmp/status)"

# A command that waits says for which process, and can be interrupted.
flock /run/srp/units.lock sleep 60 & holder=$!
within 10 "the lock" eval '! flock -n /run/srp/units.lock true'
status=0
said=$(timeout -s INT 5 /srp/srpctl disconnect --all 2>&1) || status=$?
[ $status = 124 ] || fail "disconnect beside a lock: status $status: $said"
says "waiting for 'flock /run/srp/units.lock sleep 60' (process $holder), at most 90 s"
pkill -P $holder sleep
reap 20 "the holder of the lock" $holder || say "it has released the lock"
works disconnect --all
find_hosts
equal "the sessions after --all" "$list" "$theirs "
works disconnect $theirs ${theirs#host}
within 10 "no session" no_hosts

# A session without disks is not an error, and is reported.
acl=$(echo ${tpg[0]}/acls/0x0000000000000000*)
mkdir ${acl/0x0000000000000000/0x0000000000000009} || fail "no ACL"
works connect $here_is --dest $dest --initiator-ext 9
says "no disks: the target exports none"
find_hosts
srpctl disconnect ${list% } --forget
[ $status = 6 ] && says "has no file in /etc/srp/targets.d" || fail "--forget without a file: status $status: $said"
works disconnect --all

# A target with a file.
mkdir -p /etc/srp
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"
works connect $here_is --dest $dest --save disk-1
node_guid=$(tr -d : </sys/class/infiniband/rxe10/node_guid)
grep -qx "device = \"0x$node_guid\"" /etc/srp/targets.d/disk-1.conf || fail "the file: $(cat /etc/srp/targets.d/*)"
srpctl connect $here_is --dest $dest --save disk-1
[ $status = 2 ] && says "target disk-1 already exists" || fail "--save again: status $status: $said"
[ "$(stat -c %a /etc/srp/targets.d/disk-1.conf)" = 644 ] || fail "the file: $(ls -l /etc/srp/targets.d)"
works list
says " disk-1 "
# A full file system is detected before the login, and nothing is left behind.
mkdir /etc/srp/full
mount -t tmpfs -o size=4k full /etc/srp/full && dd if=/dev/zero of=/etc/srp/full/all bs=4k count=1 2>/dev/null ||
	fail "no full disk"
mount --move /etc/srp/full /etc/srp/targets.d || fail "no full targets.d"
find_hosts
before=$list
srpctl connect $here_is --dest $dest --initiator-ext 9 --save disk-2
[ $status = 1 ] && says "disk-2.conf: No space left on device" || fail "--save on a full disk: status $status: $said"
find_hosts
[ "$list" = "$before" ] && [ "$(ls -A /etc/srp/targets.d)" = all ] ||
	fail "it left something: hosts $list, $(ls -A /etc/srp/targets.d)"
umount /etc/srp/targets.d
rmdir /etc/srp/full
echo 'queue_sise = 5' >>/etc/srp/targets.d/disk-1.conf
works disconnect disk-1
says "logged out"
fails 2 "disk-1.conf:6: no such option: queue_sise" connect disk-1
sed -i '$d' /etc/srp/targets.d/disk-1.conf
works disconnect disk-1 --forget
says "not logged in"
[ ! -e /etc/srp/targets.d/disk-1.conf ] || fail "the file is still there"

# A file is on the disk of /etc/srp when the command ends: `cut` is that disk after a power failure.
for d in etc cut; do null_blk $d 16; done
mkfs.ext4 -q ${backdev[etc]} && mount ${backdev[etc]} /etc/srp && mkdir $tmp/cut || fail "no disk of /etc/srp"
survives() {
	# What no program syncs is not on the disk for seconds.
	echo lost >/etc/srp/unsynced
	works "$@"
	dd if=${backdev[etc]} of=${backdev[cut]} bs=1M iflag=direct oflag=direct status=none &&
		mount ${backdev[cut]} $tmp/cut || fail "no copy of the disk"
	cmp {/etc/srp,$tmp/cut}/targets.d/disk-3.conf || fail "lost after srpctl $*: $(ls -lA $tmp/cut/targets.d)"
	[ ! -s $tmp/cut/unsynced ] || fail "the copy has more than a power failure leaves"
	umount $tmp/cut
	rm /etc/srp/unsynced
}
survives connect $here_is --dest $dest --save disk-3
export EDITOR="sed -i '\$a queue_size = 32'"
survives edit disk-3
grep -qx 'queue_size = 32' /etc/srp/targets.d/disk-3.conf || fail "the file: $(cat /etc/srp/targets.d/disk-3.conf)"
works disconnect disk-3 --forget
umount /etc/srp

# The target is late: the login is retried.
echo 0 >"${tpg[0]}/enable"
(sleep 6; echo 1 >"${tpg[0]}/enable") &
works connect $here_is --dest $dest --retry 60
says "; trying again"
says "logged in at "
works disconnect --all

# The module is not loaded and cannot be loaded.
unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
mkdir -p /run/modprobe.d
echo 'install ib_srp /bin/false' >/run/modprobe.d/none.conf
fails 5 "the module ib_srp is not loaded and cannot be" connect $here_is --dest $dest
rm /run/modprobe.d/none.conf
works connect $here_is --dest $dest
works disconnect --all
clean
ok
