#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A session with a file comes back after dev_loss_tmo, a removal of the adapter, a reload of the module and a logout
# without srpctl, and stays away after `srpctl disconnect`. A script plays systemd: it keeps the state of the units, and
# calls `srpctl restore` as srp-restore.timer does.
#
# deadline: 400
# takes: 100
# runs: rxe kasan long
. "$(dirname "$0")/lib.sh"

begin
fabric_pair 1
target 0
back_null d0 16
lun 0 0 d0
guid=$(service_guid)
here_is="--id-ext $guid --ioc-guid $guid --dest 10.0.0.1:$port"
units=$tmp/units
mkdir -p $units $tmp/bin /etc/srp

undo() {
	local f; for f in $units/.*.pid; do [ ! -e $f ] || kill -- "-$(<$f)"; done
	rm -rf /run/systemd/system
	umount /etc/srp
}
mount -t tmpfs srp /etc/srp || fail "no /etc/srp"

# systemctl: the file NAME in $units has the state of unit NAME. Verbs do not wait, as with --no-block.
cat >$tmp/bin/systemctl <<-END
	#!/bin/bash
	options= verb= unit=
	for word; do case \$word in -*) ;; *) [ "\$verb" ] && unit=\$word || verb=\$word ;; esac; done
	name=\${unit#srp-connect@} name=\${name%.service}
	ini() { PATH=$tmp/bin:\$PATH ${in_ns[*]} /srp/srpctl "\$@" >>$tmp/journal 2>&1; }
	state() { echo \$2 >$units/.new.\$BASHPID && mv $units/.new.\$BASHPID $units/\$1; }
	echo "systemctl \$*" >>$tmp/journal
	starts() {
		state \$1 activating
		export -f ini state
		setsid bash -c '
			for i in {1..60}; do ! ini connect --unit --retry 20 '\$1' || { state '\$1' active; exit; }; sleep 1; done
		' >/dev/null 2>&1 </dev/null &
		echo \$! >$units/.\$1.pid
	}
	stops() {
		[ "\$(cat $units/\$1)" != activating ] || kill -- -\$(cat $units/.\$1.pid)
		state \$1 inactive
		ini disconnect --unit \$1 || echo "a unit has failed" >>$tmp/failed
	}
	case \$verb in
	daemon-reload) ;;
	start) grep -qx 'active\|activating' $units/\$name 2>/dev/null || starts \$name ;;
	try-restart) [ "\$(cat $units/\$name 2>/dev/null)" != active ] || { stops \$name; starts \$name; } ;;
	stop) for f in $units/\$name; do [ ! -e "\$f" ] || stops \${f##*/}; done ;;
	list-units)
		states='active\|activating'
		[[ " \$* " != *" --state=active "* ]] || states=active
		for f in \$(grep -lx \$states $units/* 2>/dev/null); do
			echo "srp-connect@\${f##*/}.service loaded \$(<\$f) exited"
		done ;;
	*) echo "what is \$verb?" >&2; exit 1 ;;
	esac
	true
END
chmod +x $tmp/bin/systemctl
mkdir -p /run/systemd/system
PATH=$tmp/bin:$PATH

srpctl() { said=$(ini timeout -k 5 100 /srp/srpctl "$@" 2>&1) || fail "srpctl $*: status $?: $said"; }
unit_is() { [ "$(cat $units/disk1 2>/dev/null)" = $1 ]; }
# restored: does what the timer does, and returns whether the session exists.
restored() { sleep 1; /srp/srpctl restore >>$tmp/journal 2>&1; find_hosts; [ -n "$list" ]; }
is_back() {
	clock; local t0=$now
	within 60 "a session after $1: $(tail -n 20 $tmp/journal)" restored
	within 30 "an active unit after $1" unit_is active
	set -- "$1" $list
	[ $# = 2 ] || fail "after $1: hosts $list"
	is "its timeout after $1" /sys/class/srp_remote_ports/port-${2#host}:1/dev_loss_tmo 5
	srpctl list
	[[ $said == *" disk1 "* ]] || fail "after $1 it has another name: $said"
	dd "if=$(disk $2 0)" of=/dev/null bs=4k count=1 iflag=direct status=none || fail "read after $1"
	clock
	say "after $1: $(ms $((now - t0)))"
}
stays_away() {
	local i
	for i in 1 2 3 4; do ! restored || fail "after $1 it is logged in again: $(tail -n 20 $tmp/journal)"; done
	unit_is inactive || fail "after $1 the unit is $(<$units/disk1)"
}

srpctl connect $here_is --save disk1 --reconnect-delay 2 --fast-io-fail-tmo 2 --dev-loss-tmo 5
within 30 "an active unit" unit_is active

target_off 0
within 60 "dev_loss_tmo" no_hosts
! restored || fail "a session without a target"
within 30 "a unit that is not active" unit_is activating
target_on 0
is_back "dev_loss_tmo"

device_goes 0
within 30 "no session" no_hosts
pair_device 0
neighbours 0
is_back "the removal of the device"

# `srpctl restore` leaves the module unloaded: unloading was the administrator's decision.
unload_srp || fail "rmmod: $(cat $tmp/rmmod)"
! restored || fail "a session without the module"
! loaded ib_srp || fail "restore has loaded the module"
load_srp
is_back "the reload of the module"

logout ${list% }
is_back "a logout by sysfs"

srpctl disconnect --all
stays_away "disconnect --all"
srpctl connect disk1
within 30 "an active unit" unit_is active
srpctl disconnect disk1
stays_away "disconnect disk1"
srpctl connect disk1
within 30 "an active unit" unit_is active
cp /etc/srp/targets.d/disk1.conf $tmp
srpctl disconnect --forget disk1
stays_away "disconnect --forget disk1"
[ ! -e $tmp/failed ] || fail "a unit that was stopped has failed: $(tail -n 20 $tmp/journal)"
cp $tmp/disk1.conf /etc/srp/targets.d
# --all also stops a unit that is still logging in.
target_off 0
systemctl start srp-connect@disk1.service
sleep 2
unit_is activating || fail "without a target the unit is $(<$units/disk1)"
srpctl disconnect --all
unit_is inactive || fail "after --all the unit is $(<$units/disk1)"
target_on 0
stays_away "disconnect --all of a login"
clean
ok
