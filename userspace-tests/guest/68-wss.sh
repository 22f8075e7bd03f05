#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The storage system in user space (storage/wss): an SE, two CEs and an RS, each a host of its own, as is
# the initiator. Roles without the key and initiators that are not in the list are refused; hostile roles end their own
# connections only. Verified I/O, the bytes that each link carries, and crash and restart of each role. Then the same
# with etcd by TLS and user, which is down for long, and with a second SE that replaces a sleeping one. Also run by make
# demo-wss.
#
# deadline: 900
# takes: 340
# runs: rxe kasan long
# runs: siw kasan long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/hosts.sh"
. "$here/faults.sh"

begin
rust_driver || skip "the C driver has no answers_from"
modprobe -qa ib_uverbs rdma_ucm
program=$here/../wss
[ -f "$program" ] || skip "wss is not in this guest"
chmod +x "$program"

files=/dev/shm/wss-files
undo() {
	! dmsetup info srp-wss >/dev/null 2>&1 || dm message srp-wss 0 fail_if_no_path
	unmake_hosts
	rm -rf $files
}
# Roles close connections that are silent for 3 s. If the guest lacked a CPU for most of that, there is no verdict.
# Called by fail.
excuse() {
	lacked 6 'connection lost' || return 0
	say "the first loss: $(ms $stolen) of the 6 s before it without CPU"
	[ $stolen -lt 2000000 ] || too_slow "the roles were silent"
}
make_hosts ini se ce1 ce2 rs se2
mkdir -p $files
truncate -s 96M $files/one
truncate -s 64M $files/two
i=0
for f in one two; do
	"$program" format --number 7 --object $((i++)) --file $files/$f --thin >$tmp/format 2>&1 || fail "format: $(<$tmp/format)"
done
! "$program" rs --number 8 --file $files/one >$tmp/other 2>&1 || fail "an RS took a file of another one"
grep -q 'it is object 0 of RS 7 of wss, and this is object 0 of RS 8' $tmp/other || fail "another RS: $(<$tmp/other)"

new_key() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }
# keys FILE KEY...: replaces the content of the file by these keys, atomically.
keys() { (umask 077 && printf '%s\n' "${@:2}" >$1.new) && mv $1.new $1 || fail "cannot write $1"; }
old=$(new_key) new=$(new_key)
keys $files/keys $old
gid ${kind}10
half=${gid:16}
# allows EXT...: lets the initiators with these numbers log in, and no others.
allows() { printf "0x000000000000000%d$half\n" "$@" >$files/allow; }
allows 0

# runs HOST ARGUMENT...: starts its role.
runs() {
	serve $1 "$program" "${@:2}" --key $files/keys --status $tmp/$1.sock \
		--listen 10.0.${number[$1]}.2:$((5555 + number[$1]))
}
# status HOST EXPRESSION: prints a Python expression with the status `s` of its role.
status() {
	timeout 10 python3 - $tmp/$1.sock "$2" <<-'EOF'
		import json, socket, sys
		with socket.socket(socket.AF_UNIX) as s:
		    s.connect(sys.argv[1])
		    s = json.load(s.makefile())
		print(eval(sys.argv[2]))
	EOF
}
# tells HOST EXPRESSION: whether the status of its role fulfils an expression.
tells() { [ "$(status $1 "$2")" = True ]; }
with_etcd=
role() {
	local system=
	[ -z "$with_etcd" ] || system="--etcd https://$(etcd_of $1) --system wss $proof"
	case $1 in
	rs) runs rs rs --number 7 --file $files/one --file $files/two --id-ext ab --ioc-guid cd $system ;;
	se*) runs $1 se --rs 10.0.4.2:5559 --lun 7/0+7/1 --id-ext ab --ioc-guid cd --extent 1 --allow $files/allow \
		$system ;;
	ce?) runs $1 ce --member ${1#ce} --se 10.0.1.2:5556 --se 10.0.5.2:5560 --rs 10.0.4.2:5559 --id-ext ab --ioc-guid cd \
		--cache 32 ;;
	esac
}
# dies HOST: crashes, and restarts a moment later.
dies() {
	: >$tmp/$1
	die $1
	sleep $2
	role $1
}
at=10.0.1.2:5556
direct=
login_string() {
	echo "id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=$at,answers_from=10.0.2.2:5557,answers_from=10.0.3.2:5558$direct${2-}"
}
answering() { [ "$(<$files_of_host/answer_channels)" = $1 ]; }

for h in rs se ce1 ce2; do role $h; done
within 30 "all RS at the SE" says se 'all RS are here'
within 30 "both CEs" says ce1 'attached to RS 7'
within 30 "both CEs" says ce2 'attached to RS 7'
login 0 ,ch_count=2
files_of_host=/sys/class/scsi_host/$host
within 20 "two answer channels" answering 2
dev=$(disk $host 0)
quiet $dev
equal "size" "$(blockdev --getsize64 $dev)" $((160 << 20))
within 20 "/dev/srp0" test -b /dev/srp0
equal "/dev/srp0" "$(readlink -f /dev/srp0)" $dev
say "login: /dev/srp0 is $dev, answered by $(<$files_of_host/answers_from)"

within 5 "the SE's status" tells se 's["state"] == "serving" and s["sessions"] == 1 and [m["up"] for m in s["members"]] == [True] * 2'
within 5 "the RS's status" tells rs 's["number"] == 7 and s["engine_up"] and s["objects"][1]["blocks"] == 64 << 11'

# The key is replaced without a stop. The roles that crash and connect again below have the new one.
keys $files/keys $old $new
keys $files/keys $new $old
keys $files/keys $new
# stranger NAME ARGUMENT...: starts a role without that key, on a host of its own.
strangers=0
stranger() {
	serve se2 "$program" "${@:2}" --listen 10.0.5.2:$((5570 + strangers++))
	serving[$1]=${serving[se2]}
	unset "serving[se2]"
}
keys $files/old $old
keys $files/both $old $new
ce="--se 10.0.1.2:5556 --rs 10.0.4.2:5559 --id-ext ab --ioc-guid cd --cache 4"
members='[(m["name"], m["up"], m["epoch"], m["extents"]) for m in s["members"]]'
before=$(status se "$members")
# With the key, this SE would take over the RS, and these CEs would replace those with the same numbers.
stranger no-key-se se --rs 10.0.4.2:5559 --lun 7/0+7/1 --id-ext ab --ioc-guid cd
stranger no-key-ce ce --member 1 $ce
stranger old-ce ce --member 2 $ce --key $files/old
stranger both-ce ce --member 2 $ce --key $files/both
within 20 "the RS to refuse an SE without a key" says rs 'cannot accept it: it has no key'
within 20 "the SE to refuse a CE without a key" says se 'cannot accept it: it has no key'
within 20 "a CE to miss its key at the SE" says se2 'role: 1, number: 0 \} has none of the keys'
within 20 "the SE to refuse the old key" says se 'role: 2, number: 2 \} has none of the keys'
for h in no-key-se no-key-ce old-ce both-ce; do die $h; done
! says se2 'attached|all RS are here' || fail "a stranger was let in: $(tail -n 5 $tmp/se2)"
equal "CEs after the strangers" "$(status se "$members")" "$before"
: >$tmp/se2
mark
error=$(write_login 0 "$(login_string 0 ,initiator_ext=0000000000000002)")
[ -n "$error" ] || fail "an initiator that is not in the list was let in"
logged 'SRP login rejected: .*\(0x00010006\)'
says se '2.*: login refused: it is not in the list of --allow' || fail "the SE: $(tail -n 5 $tmp/se)"
equal "answer channels after the strangers" "$(<$files_of_host/answer_channels)" 2
say "strangers without the key, with the old one, and not in the list: refused"

# Roles that violate the protocol (userspace-tests/hostile), amid I/O: each ends its own connections, and nothing else.
# hostile ROLE ARGUMENT...: attacks that role.
hostile() {
	timeout 300 $([ $kind = siw ] || echo nsenter --net=/run/netns/se2) "$here/../srp-hostile" "$@" >$tmp/hostile 2>&1 &
	attacks=$!
	io_until $attacks $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --size=2m --rate=600k --verify_backlog=32
	reap 20 "srp-hostile" $attacks
	status=$?
	while read -r line; do say "hostile to $1: $line"; done <$tmp/hostile
	[ $status = 0 ] || fail "srp-hostile ended with status $status"
}
[ -f "$here/../srp-hostile" ] || fail "srp-hostile is not in this guest"
chmod +x "$here/../srp-hostile"
allows 0 2
epochs='[(m["name"], m["up"], m["epoch"]) for m in s["members"]]'
before=$(status se "$epochs")
attacker=0x0000000000000002$half
hostile rs 7 10.0.4.2:5559 ab cd $files/keys $attacker
hostile se 0 10.0.1.2:5556 ab cd $files/keys $attacker
hostile ce 10.0.2.2:5557 ab cd 10.0.1.2:5556 $attacker 0x0000000000000000$half
allows 0
! log_has 'connection lost|abort of a command' || fail "an attack reached the session"
equal "CEs after the attacks" "$(status se "$epochs")" "$before"
equal "answer channels after the attacks" "$(<$files_of_host/answer_channels)" 2
within 5 "the session of an attacker to end" tells se 's["sessions"] == 1'
for h in rs se ce1 ce2; do
	kill -0 ${serving[$h]} 2>/dev/null && ! says $h 'panicked' || fail "$h: $(tail -n 5 $tmp/$h)"
done
say "hostile roles: verified I/O went on"

verify_io 200 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=12m --verify_backlog=64 >/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
verify_io 200 $dev --rw=write --bs=1m --iodepth=2 --offset=40m --size=16m --fsync=4 >/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
no_aborts() { ! log_has 'abort of a command' || fail "a command got no answer"; }
no_aborts
within 5 "the CE's status" tells ce1 's["epoch"] > 0 and s["counters"]["commands"] > 99 and s["cache"]["used_lines"] > 99'

# carried WHAT SUM LEAST LIMIT: checks the traffic in KiB, except on siw.
carried() { [ $kind = siw ] || { (($2 >= $3 && $2 < $4)) || fail "$1 $(($2)) KiB"; }; }
pattern() { dd if=/dev/urandom of=$tmp/data bs=1M count=8 status=none; }
pattern
carry "written" 8192 dd if=$tmp/data of=$dev bs=256k oflag=direct status=none
carried "the initiator sent" "sent[ini]" 8192 9600
carried "the SE has seen data:" "sent[se] + got[se]" 0 400
carried "the RS got" "got[rs]" 8192 9600
echo 3 >/proc/sys/vm/drop_caches
carry "read from the caches" 8192 cmp -n 8388608 $tmp/data <(dd if=$dev bs=256k count=32 iflag=direct status=none)
carried "the initiator got" "got[ini]" 8192 9600
carried "the SE has seen data:" "sent[se] + got[se]" 0 400
carried "of what the CEs have the RS sent" "sent[rs]" 0 400
for h in ce1 ce2; do carried "its part of it: $h sent" "sent[$h]" 2048 9600; done
cmp -n 8388608 $files/one $tmp/data || fail "the data is wrong in the file"

# Unmapped blocks read as zeros regardless of a CE's cache, and their space is freed; so do blocks of WRITE SAME.
quiet $dev
full=$(stat -c %b $files/one)
blkdiscard -f -o 1M -l 2M $dev 2>$tmp/err || fail "blkdiscard: $(<$tmp/err)"
[ $(stat -c %b $files/one) -le $((full - 4096)) ] || fail "the file kept its blocks: $full, $(stat -c %b $files/one)"
blkdiscard -f -z -o 4M -l 1M $dev 2>$tmp/err || fail "blkdiscard -z: $(<$tmp/err)"
head -c 512 /dev/zero >$tmp/block
timeout 30 sg_write_same --16 --lba=12288 --num=256 --in=$tmp/block $dev >$tmp/err 2>&1 ||
	fail "WRITE SAME: $(<$tmp/err)"
! timeout 30 sg_write_same --16 --lba=12288 --num=256 --in=$tmp/data --xferlen=512 $dev >$tmp/err 2>&1 ||
	fail "WRITE SAME of data was taken"
for range in "1 2" "4 1"; do
	dd if=/dev/zero of=$tmp/data bs=1M seek=${range% *} count=${range#* } conv=notrunc status=none
done
dd if=/dev/zero of=$tmp/data bs=512 seek=12288 count=256 conv=notrunc status=none
dd if=$dev bs=256k count=32 iflag=direct status=none | cmp - $tmp/data || fail "zeros: the data is wrong on the disk"
cmp -n 8388608 $files/one $tmp/data || fail "zeros: the data is wrong in the file"
timeout 30 sg_verify --lba=0 --count=2048 $dev >$tmp/err 2>&1 || fail "VERIFY: $(<$tmp/err)"

unset -f excuse

# Each role crashes with I/O in flight, which continues when the role is back. The session ends and reconnects.
for h in ce1 se rs; do
	start_verify_io $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --size=16m --offset=60m --rate=3m --verify_backlog=32
	fio=$!
	sleep 2
	mark
	case $h in
	ce1)
		dies ce1 3
		# The connection ends with the SE or with the channel.
		logged 'connection lost'
		;;
	se)
		dies se 2
		logged 'connection lost'
		within 30 "the RS at the SE" says se 'all RS are here'
		;;
	rs) dies rs 3 ;;
	esac
	io_ends $fio 180 "after $h died"
	within 90 "two answer channels after $h died" answering 2
	say "$h has died and is back: no error, all data right"
done

# An RS that the initiator logs in to answers what no CE has: the data crosses no link of a CE. A second read of a line
# fills the cache.
logout $host
direct=,answers_from=10.0.4.2:5559
login 0 ,ch_count=2
files_of_host=/sys/class/scsi_host/$host
within 20 "three answer channels" answering 3
dev=$(disk $host 0)
quiet $dev
pattern
read_back() { cmp -n 8388608 $tmp/data <(dd if=$dev bs=256k skip=96 count=32 iflag=direct status=none); }
past_ces() { for h in ce1 ce2; do carried "data at $h" "sent[$h] + got[$h]" 0 400; done; }
carry "written at the RS" 8192 dd if=$tmp/data of=$dev bs=256k seek=96 oflag=direct status=none
carried "the RS got" "got[rs]" 8192 9600
past_ces
carry "read from the RS" 8192 read_back
carried "the initiator got" "got[ini]" 8192 9600
carried "the RS sent" "sent[rs]" 8192 9600
past_ces
carry "read a second time" 8192 read_back
carried "the RS sent" "sent[rs]" 8192 9600
carry "read a third time" 8192 read_back
carried "of what the CEs have the RS sent" "sent[rs]" 0 400
verify_io 200 $dev --rw=randrw --bsrange=4k-256k --iodepth=8 --size=12m --offset=80m --verify_backlog=64 >/dev/null 2>&1 ||
	fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
no_aborts
within 5 "the RS's status" tells rs 's["sessions"] == 1 and s["counters"]["commands"] > 99'
mark
allows 0 2
hostile answers 10.0.4.2:5559 ab cd 10.0.1.2:5556 $attacker 0x0000000000000000$half
allows 0
! log_has 'connection lost|abort of a command' || fail "an attack reached the session"
within 5 "the CE's status" tells ce1 's["counters"]["given"] > 9'
for h in rs ce1; do
	start_verify_io $dev --rw=randrw --bsrange=4k-128k --iodepth=4 --size=16m --offset=100m --rate=3m --verify_backlog=32
	fio=$!
	sleep 2
	mark
	dies $h 3
	logged 'connection lost'
	io_ends $fio 180 "after $h died"
	within 90 "three answer channels after $h died" answering 3
	say "$h has died amid commands of the RS and is back: no error, all data right"
done
direct=

# ends HOST...: terminates the roles and waits for their end.
ends() {
	local h
	for h; do
		kill ${serving[$h]}
		reap 15 "$h" ${serving[$h]} || fail "$h ended with status $?: $(tail -n 5 $tmp/$h)"
		unset "serving[$h]"
		says $h '^ended' || fail "$h did not say that it ended: $(tail -n 5 $tmp/$h)"
		! says $h 'panicked' || fail "$h: $(grep -A 3 panicked $tmp/$h)"
	done
}
logout $host
clean
ends ce1 ce2 se rs
say "$(grep lines $tmp/ce1), $(grep lines $tmp/ce2)"

# etcd determines the current SE. A single journal runs through everything below, on a disk that is redirected to the
# current SE.
again() { : >$tmp/$1; role $1; }
# fails HOST TEXT: checks that the role ends by itself, and reports why.
fails() {
	! reap 40 "$1" ${serving[$1]} || fail "$1 ended as if nothing had been"
	unset "serving[$1]"
	says $1 "$2" || fail "$1 did not say '$2': $(tail -n 5 $tmp/$1)"
}
leads() { within 60 "$1 has the system" says $1 'all RS are here'; }
# way HOST: redirects the journal's disk to that host.
way() {
	local table
	table="0 $((96 << 11)) multipath 1 queue_if_no_path 0 1 1 round-robin 0 1 1 $(disk $1 0) 1"
	if [ ! -b /dev/mapper/srp-wss ]; then
		dm create srp-wss --table "$table" || fail "no dm-multipath in this kernel"
	else
		dm suspend --noflush --nolockfs srp-wss && dm load srp-wss --table "$table" && resume srp-wss ||
			fail "the table of srp-wss"
	fi
}
# still_right WHAT: checks that acknowledged writes are preserved, and no command has failed.
still_right() {
	goes_on 120
	errors
	[ $errors = 0 ] || fail "$errors errors: $1"
	say "$1: no error"
}
modprobe -a dm_multipath dm_round_robin || fail "no dm-multipath in this kernel"
reconnect_delay=1 fast_io_fail=2 dev_loss=600
make_pki $files/pki
start_etcd $files/etcd $files/pki
etcd_is_up() { ask_etcd $files/pki "" kv/range '{"key":"<a>"}' >$tmp/out 2>&1; }
within 60 "etcd" etcd_is_up
etcd_users $files/pki wss word /wss/wss/ >$tmp/out 2>&1 || fail "etcd: $(<$tmp/out)"
(umask 077 && echo word >$files/password && echo none >$files/wrong)
proof="--etcd-ca $files/pki/ca.pem --etcd-cert $files/pki/role.pem --etcd-key $files/pki/role.key \
	--etcd-user wss --etcd-password $files/password"
with_etcd=1
# Without all of it etcd and a role refuse each other.
for wrong in "other.pem/its certificate is of no CA in --etcd-ca" "role.pem/it demands --etcd-cert" \
	"password/there is no user 'wss' of --etcd-user" "--etcd-user/it demands --etcd-user" \
	"wss/the user 'wss' of --etcd-user may not access these keys"; do
	: >$tmp/se
	right=$proof name=wss
	case $wrong in
	other*) proof=${proof/ca.pem/other.pem} ;;
	role*) proof=${proof/"--etcd-cert $files/pki/role.pem --etcd-key $files/pki/role.key"/} ;;
	password*) proof=${proof/password $files\/password/password $files/wrong} ;;
	--*) proof=${proof%--etcd-user*} ;;
	wss*) name=other ;;
	esac
	proof+=" --system $name"
	role se
	within 20 "a refusal" says se "waits for etcd: https://.*: ${wrong#*/}"
	die se
	proof=$right
done
for h in rs se ce1 ce2; do again $h; done
leads se
within 30 "both CEs" says ce1 'attached to RS 7'
within 30 "both CEs" says ce2 'attached to RS 7'
login 0
rport=/sys/class/srp_remote_ports/port-${host#host}:1
limits
one=$host
dev=$(disk $one 0)
quiet $dev
dd if=/dev/zero of=$dev bs=1M count=8 oflag=direct status=none || fail "cannot empty the disk"
way $one
journal /dev/mapper/srp-wss

# etcd is down for longer than the lease: the SE ends. The next one waits for etcd.
die etcd
fails se 'etcd has not confirmed its lease in time'
again se
within 30 "an SE that waits" says se 'waits for etcd'
start_etcd $files/etcd $files/pki
leads se
# No multipathd reinstates the path.
within 90 "the session" state running
way $one
still_right "etcd was away for longer than the lease"

# An SE sleeps, another one replaces it, the RS restarts, and the first one wakes up.
kill -STOP ${serving[se]}
role se2
leads se2
at=10.0.5.2:5560
# The list is read for each login.
allows 0 2
login 0 ,initiator_ext=0000000000000002
two=$host
way $two
goes_on 120
dies rs 1
goes_on 120
kill -CONT ${serving[se]}
fails se 'another SE may have its place'
still_right "an SE slept while another one took its place"

# The key of a live SE is deleted with its lease. A third SE starts and ends. An RS started afterwards has only seen the
# second SE, and accepts nothing from it.
die rs
ask_etcd $files/pki root kv/deleterange '{"key":"</wss/wss/se>"}' >$tmp/out 2>&1 && grep -q '"deleted":"1"' $tmp/out ||
	fail "cannot delete the key: $(<$tmp/out)"
again se
within 30 "another SE" says se 'listens at'
die se
again rs
fails se2 'an RS refuses this SE'
says rs 'an SE of epoch .* is refused' || fail "the RS took an SE whose place is another's: $(<$tmp/rs)"
again se
leads se
within 90 "the first session" state running
way $one
still_right "an SE without its key was refused"
backdev[wss]=$files/one
settle wss
backdev=()
dm remove --retry srp-wss || fail "cannot remove srp-wss"

logout $one
logout $two
clean
ends ce1 ce2 se rs
die etcd
ok "$kind"
