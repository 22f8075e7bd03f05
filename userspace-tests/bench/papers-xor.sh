# SPDX-License-Identifier: GPL-2.0
# The part xor of papers-guest.sh, which sources this: compares 2-D XOR by relays (xorset) with md RAID-6 over disks in
# the same files on the same five hosts, each exported by srp-target. The initiator runs on the client's host, so that
# host's link carries exactly the client's cost of redundancy, in packets of 4 KiB.
ns=client in_ns=(nsenter --net=/run/netns/client)
MTU=4200
. "$here/hosts.sh"
. "$here/set.sh"

# measure WHAT RW BYTES DEPTH COMMANDS [FIELD=VALUE]...: prints a line of the result.
measure() {
	local f at=46
	[[ $2 != *read ]] || at=5
	quiet $dev
	sent=() got=()
	count
	direct_io 600 $dev --rw=$2 --bs=$3 --iodepth=$4 --size=24m --io_size=$(($3 * $5)) --clocksource=clock_gettime \
		--output-format=terse ||
		fail "fio: $1 $2 $3: $(<$tmp/fio)"
	count
	IFS=';' read -ra f < <(grep '^3;' $tmp/fio)
	echo "srp_bench: $1 driver=$driver system=$system rw=$2 bytes=$3 depth=$4" \
		"kib=${f[at]} sent=${sent[client]} kibs=${f[at + 1]} us=${f[at + 34]} ${*:6}" >/dev/kmsg
}

measure_all() {
	local n us rw depth
	verify_io 200 $dev --rw=randrw --bsrange=1k-256k --iodepth=4 --offset=32m --size=2m >/dev/null 2>&1 ||
		fail "fio: $(grep -iE 'err|verify' $tmp/fio | head -n 5)"
	tc -n client qdisc add dev w0 root netem limit 10000 rate 16mbit || fail "no limit"
	# Three cells of 64 KiB are a stripe of RAID-6. The data in flight takes less than 0.3 s on the link: rxe
	# retransmits after 0.5 s.
	measure xor_limited write 196608 2 32
	measure xor_limited randwrite 1024 4 384
	measure xor_limited randwrite 4096 4 256
	measure xor_limited randwrite 16384 4 128
	measure xor_limited randwrite 65536 4 48
	tc -n client qdisc del dev w0 root
	# Delay in microseconds between two hosts, added by the router.
	for us in $delays; do
		for n in "${number[@]}"; do
			tc qdisc replace dev v$n root netem limit 10000 delay ${us}us || fail "no delay of $us"
		done
		for rw in randread randwrite; do
			for depth in 1 4; do
				measure xor_far $rw 4096 $depth $((48 * depth)) delay=$us
				measure xor_far $rw 65536 $depth $((16 * depth)) delay=$us
			done
		done
	done
	for n in "${number[@]}"; do tc qdisc del dev v$n root; done
}

make_hosts client n0 n1 n2 n3 n4
make_set
login 0
driver=c
! rust_driver || driver=ours
system=relays
dev=$(disk $host 0)
measure_all
logout $host
end_set

modprobe -a dm_raid || fail "no RAID"
login_string() { echo "id_ext=ab,ioc_guid=c$i,src=10.0.0.2,dest=10.0.${number[n$i]}.2:5555"; }
hosts_of_disks=() table=
chmod +x "$here/../srp-target"
for i in 0 1 2 3 4; do
	# All zeros, so all parities are correct.
	truncate -s 0 $files/n$i
	truncate -s 16M $files/n$i
	serve n$i "$here/../srp-target" --lun $files/n$i --id-ext ab --ioc-guid c$i
	within 20 "srp-target on n$i" says n$i ^listens
	login 0
	hosts_of_disks+=($host)
	table+=" - $(disk $host 0)"
done
# Chunks of 64 KiB.
dmsetup create --noudevsync raid6 --table "0 $((3 * 32768)) raid raid6_nc 1 128 5$table" ||
	fail "no RAID-6: $(dmesg | tail -n 5)"
system=raid6
dev=/dev/$(dmsetup info --columns --noheadings -o blkdevname raid6)
measure_all
dmsetup remove --noudevsync --retry raid6 || fail "the RAID does not go"
for host in "${hosts_of_disks[@]}"; do logout $host; done
