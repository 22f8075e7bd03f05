#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Any two of five machines die under verified I/O of two initiators, again and again. Each machine has a node of a
# redundant set (storage/xorset), and some have an RS that has this set, an SE or a CE (storage/wss): each role is on
# three machines, and etcd decides which RS and which SE work. A dead machine is silent: its processes are killed, and
# its link drops all packets. The initiators write to one unit, by multipathd with a path to each SE. I/O goes on in
# time; then the machines return, and each initiator reads what both have written. LONG: five pairs, not two.
#
# deadline: 600 1200
# takes: 150
# runs: rxe kasan long
# runs: rxe kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/hosts.sh"
. "$here/faults.sh"
. "$here/multipath.sh"

[ $kind = rxe ] || skip "siw goes by one namespace only"
begin
rust_driver || skip "the C driver has no answers_from"
rounds 2 5
modprobe -qa ib_uverbs rdma_ucm
for program in wss xorset; do
	[ -f "$here/../$program" ] || skip "$program is not in this guest"
	chmod +x "$here/../$program"
done
MTU=4200
# Seconds. Other guests may keep an RS from its CPU for 3 s.
lease=10
initiators='rxe\(10\|21\)'
make_hosts ini ini2 n0 n1 n2 n3 n4
declare -A device=([ini]=rxe10 [ini2]=rxe21) maps=() writer=()
declare -A has=([n0]="node rs ce" [n1]="node rs ce" [n2]="node rs se" [n3]="node se ce" [n4]="node se")
for h in ini ini2; do maps[$h]=/dev/mapper/srp-${device[$h]}-1-00000000000000ab-00000000000000cd-lun-0; done
files=/dev/shm/two-files
paths=()
undo() {
	kill "${paths[@]}"
	case ${rc-0} in 0 | 77) ;; *) tail -n 5 $tmp/path-* $tmp/multipathd >&$console ;; esac
	undo_faults
	unmake_hosts
	rm -rf $files
}

at() { echo 10.0.${number[$1]}.2:$2; }
# all ROLE OPTION PORT: prints the option with the address of each machine that has the role.
all() { local m; for m in n0 n1 n2 n3 n4; do [[ " ${has[$m]} " != *" $1 "* ]] || printf ' %s %s' $2 $(at $m $3); done; }
stores() { local s; s=$(all rs , 5557); s=${s// /}; echo ${s#,}; }
# role MACHINE-ROLE: starts it.
role() {
	local m=${1%-*} common etcd=10.0.${number[${1%-*}]}.1:2379
	common="--id-ext ab --ioc-guid cd --key $files/key --status $tmp/status/$1"
	case $1 in
	*-node) serve $1 "$here/../xorset" node --file $files/$m "${nodes[@]}" --etcd $etcd --key $files/key \
		--status $tmp/status/$1 ;;
	*-rs) serve $1 "$here/../xorset" rs --number 7 "${nodes[@]}" --etcd $etcd --system two --lease $lease $common \
		--listen $(at $m 5557) ;;
	*-se) serve $1 "$here/../wss" se --rs $(stores) --lun 7/0 --extent 1 --etcd http://$etcd --system two $common \
		--listen $(at $m 5555) ;;
	*-ce) serve $1 "$here/../wss" ce --member ${number[$m]} $(all se --se 5555) --rs $(stores) --cache 16 $common \
		--listen $(at $m 5556) ;;
	esac
}
# unplug MACHINE: drops all packets of its link. plug MACHINE: ends that.
unplug() {
	local n=${number[$1]}
	local drops="add table netdev dead$n; add chain netdev dead$n in { type filter hook ingress device %s priority 0; };
		add rule netdev dead$n in drop"
	nft "${drops//%s/v$n}" && nsenter --net=/run/netns/$1 nft "${drops//%s/w0}" || fail "nft for $1"
}
plug() {
	nft delete table netdev dead${number[$1]} &&
		nsenter --net=/run/netns/$1 nft delete table netdev dead${number[$1]} || fail "nft for $1"
}
dies() {
	local m r pids=()
	for m; do
		unplug $m
		for r in ${has[$m]}; do
			pids+=(${serving[$m-$r]})
			unset "serving[$m-$r]"
		done
	done
	kill -KILL "${pids[@]}"
	reap 20 "killed roles" "${pids[@]}" 2>/dev/null
}
returns() {
	local m r
	for m; do
		plug $m
		for r in ${has[$m]}; do role $m-$r; done
	done
}
# No role may end by itself, except one that has lost its lease without a CPU: its supervisor starts it again. Then
# delays give no verdict.
starved=
# Called by fail, unless data is wrong.
excuse() { [ -z "$starved" ] || too_slow "roles without CPU have ended:$starved"; }
wrong() { unset -f excuse; fail "$@"; }
look_after() {
	local r stolen status=0
	for r in "${!serving[@]}"; do
		ended ${serving[$r]} || continue
		reap 5 "$r" ${serving[$r]} || status=$?
		clock
		without_cpu $((now - lease * 1000000)) $now
		say "$r has ended with status $status, after $(ms $stolen) of the last $lease s without CPU"
		[ $stolen -ge $((lease * 100000)) ] && tail -n 1 $tmp/$r | grep -qE "another .* may have|may be another's" ||
			fail "$r has ended: $(tail -n 5 $tmp/$r)"
		starved+=" $r"
		role $r
	done
}
# becomes SECONDS WHAT COMMAND...: waits for what the roles bring about.
becomes() { within "$1" "$2" looked_after "${@:3}"; }
looked_after() { look_after; "$@"; }

# status EXPRESSION: prints a Python expression. `s` has the status of each process, as s["n0-rs"]; `rs` and `se` are
# the machines of the RS and the SE, or "-"; `nodes` are the states of the nodes by the RS, and `up` the machines of the
# CEs by the SE.
status() {
	timeout 20 python3 - $tmp/status "$1" <<-'EOF'
		import glob, json, os, socket, sys
		s = {}
		for path in glob.glob(sys.argv[1] + "/*"):
		    with socket.socket(socket.AF_UNIX) as one:
		        one.settimeout(5)
		        try:
		            one.connect(path)
		            s[os.path.basename(path)] = json.load(one.makefile())
		        except (OSError, ValueError):
		            pass
		def at(role, *known):
		    all = (n[:2] for n, t in s.items() if n[3:] == role and t["state"] == "serving" and set(known) <= set(t))
		    return next(all, "-")
		rs, se = at("rs", "number"), at("se")
		nodes = " ".join(n["state"] for n in s[rs + "-rs"]["nodes"]) if rs != "-" else ""
		up = {f"n{int(m['name']) - 2}" for m in s[se + "-se"]["members"] if m["up"]} if se != "-" else set()
		print(eval(sys.argv[2]))
	EOF
}
tells() { [ "$(status "$1")" = True ]; }
# working MACHINE...: whether the set, the RS and the SE work without these machines, and the other CEs are at the SE.
working() {
	local m states= ces=
	for m in n0 n1 n2 n3 n4; do
		if [[ " $* " = *" $m "* ]]; then states+=" out"; continue; fi
		states+=" up"
		[[ ${has[$m]} != *ce ]] || ces+="'$m',"
	done
	tells "nodes == '${states:1}' and up == {$ces} and not {rs, se} & set('$*'.split())"
}
whole() { working && tells 's[rs + "-rs"]["set"]["whole"] and len(s) == 14'; }
# answering: whether each session with the SE has all its answer channels; the RS is one of those of `ini`.
answering() {
	local h f to n=0
	to=$(status 'se')
	find_hosts
	for h in $list; do
		f=/sys/class/scsi_host/$h
		[ "$(<$f/dest)" = "$(at $to 5555)" ] || continue
		n=$((n + 1))
		if [ "$(<$f/local_ib_device)" = rxe10 ]; then set -- 4; else set -- 3; fi
		[ "$(<$f/answer_channels)" = $1 ] || return
	done
	[ $n = 2 ]
}

# path INITIATOR MACHINE: logs in to its SE as soon as that serves, as srp-connect@.service does.
path() {
	local more=
	[ $1 != ini ] || more=$(all rs --answers-from 5557)
	nsenter --net=/run/netns/$1 timeout -k 5 1200 /srp/srpctl connect --id-ext ab --ioc-guid cd --device ${device[$1]} \
		--src 10.0.${number[$1]}.2 --dest $(at $2 5555) --initiator-ext ${number[$2]} $(all ce --answers-from 5556) $more \
		--tl-retry-count 2 --fast-io-fail-tmo 2 --dev-loss-tmo off --reconnect-delay 2 --retry 1100 >>$tmp/path-$1-$2 2>&1 &
	paths+=($!)
}

# write_on: starts a journal of each initiator, in a region that none has written to. acks INITIATOR: prints how many of
# its I/Os are acknowledged. more_acks N [N]: whether they are at least that many.
write_on() {
	local h f place=$((1 + (round - 1) * 4))
	for h in ini ini2; do
		f=$tmp/$h.$round
		python3 "$here/journal.py" run ${maps[$h]} $f --at $place --mib 2 --threads 4 --pause 0.05 --grace 100 \
			>$f.out 2>$f.err &
		writer[$h]=$!
		place=$((place + 2))
	done
	go_on 30 "I/O at first"
}
acks() { awk '$2 == "count" {n = $3} END {print n + 0}' $tmp/$1.$round.events 2>/dev/null || echo 0; }
more_acks() {
	! ended ${writer[ini]} && ! ended ${writer[ini2]} || fail "a journal has ended: $(tail $tmp/ini*.$round.{out,err})"
	[ $(acks ini) -ge $1 ] && [ $(acks ini2) -ge $2 ]
}
# go_on SECONDS WHAT: waits until both have done a hundred more I/Os.
go_on() { becomes $1 "$2" more_acks $(($(acks ini) + 100)) $(($(acks ini2) + 100)); }
# gap INITIATOR: prints the longest time without an acknowledgement since t0.
gap() { awk -v t=$t0 '$1 >= t && $2 == "ok" && $3 > m {m = $3} END {print m + 0}' $tmp/$1.$round.events; }
# write_off: ends the journals, without an error. Each initiator reads what the other one has written.
write_off() {
	local h other f
	kill -TERM ${writer[ini]} ${writer[ini2]}
	for h in ini ini2; do
		f=$tmp/$h.$round
		reap 120 "the journal of $h" ${writer[$h]} || wrong "what $h has read is wrong: $(grep wrong $f.events | head)"
		[[ $(<$f.out) =~ writes=[1-9].*\ errors=0\ wrong=0\ .*stuck=0$ ]] ||
			wrong "the journal of $h: $(<$f.out) $(grep error $f.events | head)"
	done
	compare $round ini ini2
	compare $round ini2 ini
}
# compare ROUND WRITER READER
compare() {
	local said
	said=$(timeout 100 python3 "$here/journal.py" check ${maps[$3]} $tmp/$2.$1 2>$tmp/check) ||
		wrong "$3 reads what is wrong of $2: $said $(head -n 5 $tmp/check)"
	say "$2: $(<$tmp/$2.$1.out); $3 reads $said"
}
# exchange WRITER READER
exchange() {
	dd if=/dev/urandom of=$tmp/data bs=256k count=4 status=none
	timeout 100 dd if=$tmp/data of=${maps[$1]} bs=256k oflag=direct status=none || fail "$1 cannot write"
	cmp -n 1048576 $tmp/data <(timeout 100 dd if=${maps[$2]} bs=256k count=4 iflag=direct status=none) ||
		wrong "$2 reads what is wrong, other than $1 has written"
}
# idle MACHINE...: prints the first of them that has neither the RS nor the SE, and is not $1.
idle() { local m; for m in "${@:2}"; do [[ " $rs $se $1 " == *" $m "* ]] || { echo $m; return; }; done; }
# The two machines that die in a round: RS and SE, SE and CE, an RS and an SE that wait, RS and CE, RS and SE again.
pair() {
	local one
	case $round in
	1 | 5) one=$rs; [ $rs != $se ] || one=$(idle - n3 n0 n1); echo $one $se ;;
	2) echo $se $(idle - n0 n1 n3) ;;
	3) one=$(idle - n2 n1 n0); echo $one $(idle $one n4 n3 n2) ;;
	4) echo $rs $(idle - n0 n3 n1) ;;
	esac
}

speed
mkdir -p $files $tmp/status
# Writers may wait for the lease, the exclusion of nodes, and logins.
hung_after 200
(umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >$files/key)
nodes=($(all node --node 5560))
start_etcd $files/etcd
for i in 0 1 2 3 4; do
	"$here/../xorset" format --number $i --file $files/n$i --stripes 32 --log 24 --thin >$tmp/format ||
		fail "format: $(<$tmp/format)"
	role n$i-node
done
# The first ones become the RS and the SE.
role n0-rs
becomes 60 "an RS" says n0-rs 'listens at'
role n4-se
becomes 30 "an SE" tells 'se == "n4"'
for r in n1-rs n2-rs n2-se n3-se n0-ce n1-ce n3-ce; do role $r; done
becomes 60 "all roles" whole
multipathd_for_tests
sed -i 's/user_friendly_names yes/user_friendly_names no\n\tuid_attribute ID_SRP_DEVICE_PATH/' /etc/multipath.conf
multipathd_on
for h in ini ini2; do for m in n2 n3 n4; do path $h $m; done; done
for h in ini ini2; do
	becomes 60 "the map of $h" test -b ${maps[$h]}
	equal "the size" "$(blockdev --getsize64 ${maps[$h]})" $((32 * 12 << 16))
done
becomes 60 "all answer channels" answering
exchange ini ini2
say "all roles work: $(dmsetup status --target multipath)"

longest=0
for ((round = 1; round <= rounds; round++)); do
	read -r rs se < <(status 'f"{rs} {se}"')
	dead=($(pair))
	[ ${#dead[@]} = 2 ] && [ ${dead[0]} != ${dead[1]} ] || fail "no pair of machines: ${dead[*]}"
	write_on
	clock; t0=$now
	note "round $round: ${dead[0]} (${has[${dead[0]}]}) and ${dead[1]} (${has[${dead[1]}]}) die; RS $rs, SE $se"
	dies ${dead[*]}
	becomes 90 "the system works without ${dead[*]}" working ${dead[*]}
	clock; worked=$((now - t0))
	go_on 60 "I/O without ${dead[*]}"
	gaps=
	for h in ini ini2; do
		gap=$(gap $h)
		gaps+=" $h $(ms $gap)"
		bound "$h: no I/O" $t0 $((t0 + gap)) 20 40
		[ $gap -le $longest ] || longest=$gap
	done
	clock; t1=$now
	returns ${dead[*]}
	becomes 120 "${dead[*]} are back" whole
	clock; back=$((now - t1))
	go_on 60 "I/O with ${dead[*]} back"
	write_off
	exchange ini ini2
	exchange ini2 ini
	note "round $round: no I/O for$gaps; $(status 'f"RS at {rs}, SE at {se}"') after $(ms $worked); back after $(ms $back)"
done
unset -f excuse
# What was written before later machines died.
for ((n = 1; n < rounds; n++)); do compare $n ini ini; compare $n ini2 ini2; done

multipath -f ${maps[ini2]##*/} || fail "the map of ini2 is in use"
map=${maps[ini]##*/}
multipathd_off
for p in "${paths[@]}"; do kill $p 2>/dev/null; reap 100 "a login" $p || true; done
for h in $(hosts); do logout $h; done
clean
look_after
for r in ce se rs node; do for m in n0 n1 n2 n3 n4; do
	[ -n "${serving[$m-$r]-}" ] || continue
	kill ${serving[$m-$r]}
	reap 30 "$m-$r" ${serving[$m-$r]} || fail "$m-$r ended with status $?: $(tail -n 5 $tmp/$m-$r)"
	unset "serving[$m-$r]"
	says $m-$r '^ended' || fail "$m-$r did not say that it ended: $(tail -n 5 $tmp/$m-$r)"
done; done
! grep -A 3 panicked $tmp/n?-* >$tmp/panics 2>/dev/null || fail "a role has panicked: $(<$tmp/panics)"
die etcd
ok "$rounds rounds, no I/O for $(ms $longest) at most"
