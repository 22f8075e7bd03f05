#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The subnet of two virtual adapters and their switch: Debian's opensm finds it, assigns LIDs and brings the ports to
# ACTIVE; the tools of infiniband-diags see it; partitions, a cable, a second subnet manager; ib_srpt is found.
#
# deadline: 300
# takes: 100
# runs: vfab kasan long GAPS=2
# runs: vfab 6.12 long LONG=
. "$(dirname "$0")/lib.sh"

[ "$kind" = vfab ] || skip "vfab only"
for c in opensm ibstat ibnetdiscover ibroute smpquery saquery sminfo ibsrpdm; do
	command -v $c >/dev/null || skip "$c is not in this guest"
done
begin
adapters devices=2
baseline

# Without a subnet manager the ports stay in INIT.
for d in vfab0 vfab1; do
	port_has $d state "2: INIT" || fail "state of $d is '$got', wanted INIT"
	port_has $d phys_state "5: LinkUp" || fail "physical state of $d is '$got'"
	port_has $d link_layer InfiniBand || fail "link layer of $d is '$got'"
	port_has $d lid 0x0 || fail "$d has LID $got"
done
tool ibstat vfab1 1
tool_says "ibstat at first" "State: Initializing"
tool_says "ibstat at first" "Physical state: LinkUp"
tool_says "ibstat at first" "SM lid: 0"

subnet_manager vfab0
within 30 "ACTIVE ports" all_active vfab0 vfab1
manager_is vfab0 MASTER || fail "opensm is no master: $(cat $tmp/opensm.vfab0)"
first_log=$osm_log

lid vfab0; lid0=$lid
lid vfab1; lid1=$lid
port_guid vfab0; guid0=$guid
port_guid vfab1; guid1=$guid
[ $lid0 != $lid1 ] && [ $lid0 != 0 ] && [ $lid1 != 0 ] || fail "LIDs $lid0 and $lid1"
n=0
for d in vfab0 vfab1; do
	port_has $d sm_lid "$(printf 0x%x $lid0)" || fail "the manager is at $got for $d"
	tool ibstat $d 1
	for line in "State: Active" "Physical state: LinkUp" "SM lid: $lid0" "LMC: 0" "Link layer: InfiniBand" "Rate: 40"; do
		tool_says "ibstat of $d" "$line"
	done
	both=($lid0 $lid1)
	tool_says "ibstat of $d" "Base lid: ${both[n++]}"
done
tool ibstat -p
equal "ibstat -p" "$said" "$guid0"$'\n'"$guid1"

# The cables, as seen from both ends.
tool ibnetdiscover
switch=$(sed -n 's/^switchguid=0x\([0-9a-f]*\)(.*/\1/p' <<<"$said")
switch_lid=$(sed -n 's/^Switch.* base port 0 lid \([0-9]*\) lmc 0$/\1/p' <<<"$said")
[ -n "$switch" ] && [ "${switch_lid:-0}" != 0 ] || fail "ibnetdiscover has no switch: $said"
hex() { printf %016x $((16#${1#0x} - ${2:-0})); }
n=0
for g in $guid0 $guid1; do
	# A port's GUID is that of its node plus one.
	node=$(hex $g 1) port=${g#0x} l=${both[n++]}
	sed 's/[[:space:]]\+/ /g; s/ #.*//; s/ $//' <<<"$said" >$tmp/cables
	for line in "[$n] \"H-$node\"[1]($port)" "[1]($port) \"S-$(hex $switch)\"[$n]" "Ca 1 \"H-$node\""; do
		grep -qxF "$line" $tmp/cables || fail "ibnetdiscover: no line '$line' in: $said"
	done
	grep -q "lid $l 4xQDR" <<<"$said" || fail "ibnetdiscover: no lid $l: $said"
done
[ "$(grep -c '^Switch' <<<"$said") $(grep -c '^Ca' <<<"$said")" = "1 2" ] || fail "ibnetdiscover: $said"

# The switch forwards each LID to its port.
tool ibroute $switch_lid
wanted=$(printf '0x%04x %03d\n' $lid0 1 $lid1 2 $switch_lid 0 | sort)
equal "ibroute" "$(sed -n 's/^\(0x[0-9a-f]* [0-9]*\) : .*/\1/p' <<<"$said" | sort)" "$wanted"

# Responses of the management agents, by LID and by a path of ports.
tool smpquery nodeinfo $lid1
tool_says "nodeinfo of vfab1" "NodeType:........................Channel Adapter"
tool_says "nodeinfo of vfab1" "PortGuid:........................$guid1"
tool smpquery -D nodeinfo 0,1
tool_says "nodeinfo of the switch" "NodeType:........................Switch"
tool_says "nodeinfo of the switch" "LocalPort:.......................1"
tool smpquery -D nodeinfo 0,1,2
tool_says "nodeinfo by 0,1,2" "PortGuid:........................$guid1"
tool smpquery -D nodeinfo 0,1,1
tool_says "nodeinfo by 0,1,1" "PortGuid:........................$guid0"
! timeout 20 smpquery -D nodeinfo 0,1,2,1 >/dev/null 2>&1 || fail "a path through an adapter leads on"
tool smpquery portinfo $lid1 1
for line in "LinkState:.......................Active" "NeighborMTU:.....................4096" \
	"MtuCap:..........................4096" \
	"SMLid:...........................$lid0" "OperVLs:.........................VL0-7" \
	"MkeyViolations:..................0"; do
	tool_says "portinfo of vfab1" "$line"
done
tool smpquery portinfo $switch_lid 0
tool_says "portinfo of port 0" "LinkState:.......................Active"
# When opensm brings up a link, this counts as a change, which opensm then handles.
no_change() { tool smpquery switchinfo $switch_lid; grep -qx 'StateChange:\.*0' <<<"$said"; }
within 20 "no change of the switch" no_change
tool smpquery pkeys $lid1
grep -q '^ *0: 0xffff 0x0000 ' <<<"$said" || fail "pkeys of vfab1: $said"
! timeout 20 smpquery nodeinfo $((lid0 + lid1 + switch_lid + 50)) >/dev/null 2>&1 ||
	fail "a LID without an owner answers"

# The subnet administrator.
tool sminfo
grep -q "^sminfo: sm lid $lid0 sm guid $guid0, activity count [0-9]* priority 0 state 3 SMINFO_MASTER" <<<"$said" ||
	fail "sminfo: $said"
tool saquery NodeRecord
equal "nodes that saquery knows" "$(sed -n 's/^[[:space:]]*port_guid\.*//p' <<<"$said" | sort)" \
	"$(printf '%s\n' 0x$(hex $switch) $guid0 $guid1 | sort)"
tool saquery PathRecord --src-to-dst $lid0:$lid1
for field in dlid:$lid1 slid:$lid0 pkey:0xFFFF mtu:0x85; do
	grep -qiE "^[[:space:]]*${field%:*}\.+${field#*:}$" <<<"$said" || fail "path record, no $field: $said"
done
! timeout 20 saquery PathRecord --src-to-dst $lid0:999 2>/dev/null | grep -q dlid || fail "a path to nowhere"

# Partitions are changed at run time.
mkdir -p /etc/opensm
printf 'Default=0x7fff, ipoib: ALL=full;\nstorage=0x0123: %s=full, %s=limited;\n' $guid0 $guid1 \
	>/etc/opensm/partitions.conf
kill -HUP ${manager[vfab0]}
pkeys() { [ "$(sort -u /sys/class/infiniband/$1/ports/1/pkeys/* | tr '\n' ' ')" = "$2" ]; }
within 20 "partition of vfab0" pkeys vfab0 "0x0000 0x8123 0xffff "
within 20 "partition of vfab1" pkeys vfab1 "0x0000 0x0123 0xffff "
rm /etc/opensm/partitions.conf
kill -HUP ${manager[vfab0]}
within 20 "no partition of vfab1" pkeys vfab1 "0x0000 0xffff "
all_active vfab0 vfab1 || fail "a port is not ACTIVE after partitions"

# A cable is unplugged: the switch notifies opensm.
knows() { tool saquery NodeRecord; grep -q "port_guid\.*$1\$" <<<"$said"; }
at_port vfab1 down
within 5 "port down" port_has vfab1 state "1: DOWN"
within 8 "opensm without vfab1" not knows $guid1
port_has vfab0 state "4: ACTIVE" || fail "vfab0 is $got without vfab1"
at_port vfab1 up
within 20 "ACTIVE again" all_active vfab0 vfab1
within 8 "opensm with vfab1" knows $guid1
lid vfab1
equal "LID of vfab1 with its cable again" $lid $lid1

# A changed node description reaches the administrator through a trap.
printf 'storage one' >/sys/class/infiniband/vfab1/node_desc || fail "node_desc cannot be written"
renamed() { tool saquery NodeRecord $lid1; grep -q 'NodeDescription\.*storage one$' <<<"$said"; }
within 8 "the other name of vfab1" renamed
tool smpquery nodedesc $lid1
grep -q '^Node Description:\.*storage one$' <<<"$said" || fail "nodedesc: $said"

# ib_srpt advertises itself, and responds across the switch.
service=$(service_guid)
service=${service#0x}
has_target() { timeout 20 saquery PortInfoRecord $lid0 2>/dev/null | grep -q 'IsDeviceManagement'; }
within 30 "the target's capability" has_target
umad=
for u in /sys/class/infiniband_mad/umad*; do [ "$(cat $u/ibdev)" != vfab1 ] || umad=/dev/infiniband/${u##*/}; done
gid vfab0
tool ibsrpdm -c -d $umad
grep -qx "id_ext=$service,ioc_guid=$service,dgid=$gid,pkey=ffff,service_id=$service" <<<"$said" || fail "ibsrpdm: $said"

# A second subnet manager is in standby, and takes over when the first one ends.
subnet_manager vfab1 --priority 0
within 30 "a standby" manager_is vfab1 STANDBY
tool sminfo
grep -q "sm lid $lid0 .*SMINFO_MASTER" <<<"$said" || fail "sminfo with two: $said"
subnet_manager_ends vfab0
at_other() { port_has vfab0 sm_lid "$(printf 0x%x $lid1)" && port_has vfab1 sm_lid "$(printf 0x%x $lid1)"; }
within 90 "another manager" at_other
all_active vfab0 vfab1 || fail "a port is not ACTIVE under the second manager"
lid vfab0
equal "LID of vfab0 under the second manager" $lid $lid0
# The administrator responds after its first sweep.
within 30 "answers of the second manager" has_target

subnet_manager_ends vfab1
# Requests of the standby to an ended manager are refused or lost: 3111, 3113, 5411, 5412. In a slow guest a response
# arrives after the request was given up and retried: 5401.
for log in $first_log $osm_log; do
	errors=$(grep -E 'ERR [0-9A-F]{4}' $log | grep -vE 'ERR (3111|3113|5401|541[12])')
	[ -z "$errors" ] || fail "opensm's log: $errors"
	grep -q 'SUBNET UP' $log || fail "$log has no SUBNET UP: $(tail -n 5 $log)"
done
# The traps of the adapter and of the switch.
for trap in 'num:144 .*Producer:1' 'num:128 .*Producer:2'; do
	grep -q "Generic Notice .*$trap" $first_log || fail "opensm has seen no trap '$trap'"
done
ok "opensm and its tools on vfab"
