# SPDX-License-Identifier: GPL-2.0
# The part wss of papers-guest.sh, which sources this: measures the phases of a command with SE and CE on one host, on
# two, and with the RS on a third one, compared with a single target (srp-target, the same code), and with the last also
# depth and read-ahead. Each host has its own device, because rxe delivers traffic within a device locally.
ns=ini in_ns=(nsenter --net=/run/netns/ini)
. "$here/hosts.sh"
modprobe -qa ib_uverbs rdma_ucm
chmod +x "$here/../wss" "$here/../srp-target"
files=/dev/shm/wss-files
undo() {
	unmake_hosts
	rm -rf $files
}
make_hosts ini se ce rs
mkdir -p $files
truncate -s 64M $files/one $files/plain
"$here/../wss" format --number 7 --object 0 --file $files/one --thin >/dev/null || fail "format"

# on HOST ROLE COMMAND...: starts a role on a host.
on() {
	nsenter --net=/run/netns/$1 "${@:3}" >>$tmp/$2 2>&1 &
	serving[$2]=$!
}
at() { echo 10.0.${number[$1]}.2:$2; }
# roles HOST-OF-CE HOST-OF-RS: starts the roles; the SE has its own host.
roles() {
	on $2 rs "$here/../wss" rs --number 7 --file $files/one --listen $(at $2 5559)
	on se se "$here/../wss" se --rs $(at $2 5559) --lun 7/0 --id-ext ab --ioc-guid cd --listen $(at se 5556)
	on $1 ce "$here/../wss" ce --member 1 --se $(at se 5556) --rs $(at $2 5559) --id-ext ab --ioc-guid cd \
		--listen $(at $1 5557)
	within 60 "the RS at the SE" says se 'all RS are here'
	within 60 "the CE" says ce 'attached to RS 7'
	answers=,answers_from=$(at $1 5557)
}
# Sets the delay between any two hosts, in microseconds.
far() {
	local n
	for n in "${number[@]}"; do tc qdisc replace dev v$n root netem limit 10000 delay ${1}us || fail "no delay of $1"; done
}
# io PART: measures on the initiator's host.
io() {
	"${in_ns[@]}" python3 -B /srp/papers-io.py $1 "$(add_target 0)" \
		"id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=$(at se 5556)$answers" || fail "papers-io.py $1"
}
for way in target one two three; do
	answers=
	case $way in
	target)
		on se se "$here/../srp-target" --lun $files/plain --id-ext ab --ioc-guid cd --listen $(at se 5556)
		within 60 "srp-target" says se ^listens
		;;
	one) roles se se ;;
	two) roles ce ce ;;
	three) roles ce rs ;;
	esac
	for delay in $delays; do
		far $delay
		io phases=$way,$delay
		[ $way != three ] || io depth=$delay
	done
	far 0
	for h in ce se rs; do
		[ -n "${serving[$h]-}" ] || continue
		kill ${serving[$h]}
		within 20 "the end of $h" ended ${serving[$h]}
		unset "serving[$h]"
		: >$tmp/$h
	done
done
