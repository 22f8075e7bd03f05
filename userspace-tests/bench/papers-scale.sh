# SPDX-License-Identifier: GPL-2.0
# The part scale of papers-guest.sh, which sources this: the instructions of each role of wss for a command, and the
# bytes on its links, with 1, 2 and 4 CEs, RSs and initiators, and with a command for each page. Each role has a host
# and a device of its own; the initiators are sessions of one host. Packets have 4 KiB.
ns=ini in_ns=(nsenter --net=/run/netns/ini)
MTU=4200
. "$here/hosts.sh"
modprobe -qa ib_uverbs rdma_ucm
. /srp/papers-own.sh
own wss
files=/dev/shm/wss-files
undo() {
	unmake_hosts
	rm -rf $files
}
at() { echo 10.0.${number[$1]}.2:$2; }
identity=(--id-ext ab --ioc-guid cd)
# system CES RSS INITIATORS: starts that system of 16 MiB and measures it.
system() {
	local n lun= answers= from=() roles=() way=$1,$2,$3
	mkdir -p $files
	for n in $(seq $2); do
		truncate -s $((16 / $2))M $files/$n
		"$here/../wss" format --number $n --object 0 --file $files/$n --thin >/dev/null || fail "format"
		serve r$n "$here/../wss" rs --number $n --file $files/$n --listen $(at r$n 5559)
		from+=(--rs $(at r$n 5559))
		lun+=+$n/0
		roles+=(RS=${serving[r$n]}@v${number[r$n]})
	done
	serve se "$here/../wss" se "${from[@]}" --lun ${lun#+} "${identity[@]}" --extent 1 --listen $(at se 5556)
	roles+=(SE=${serving[se]}@v${number[se]})
	for n in $(seq $1); do
		serve c$n "$here/../wss" ce --member $n --se $(at se 5556) "${from[@]}" "${identity[@]}" \
			--listen $(at c$n 5557)
		answers+=,answers_from=$(at c$n 5557)
		roles+=(CE=${serving[c$n]}@v${number[c$n]})
	done
	within 60 "the RSs at the SE" says se 'all RS are here'
	for n in $(seq $1); do within 60 "the CE $n" attached c$n $2; done
	"${in_ns[@]}" python3 -B /srp/papers-io.py "scale=${way//,/-},$(IFS=,; echo "${roles[*]}")" "$(add_target 0)" \
		"id_ext=ab,ioc_guid=cd,src=10.0.0.2,dest=$(at se 5556)$answers" || fail "papers-io.py $way"
	for n in se $(seq -f c%g $1) $(seq -f r%g $2); do
		kill ${serving[$n]}
		within 20 "the end of $n" ended ${serving[$n]}
		unset "serving[$n]"
		: >$tmp/$n
	done
	rm -rf $files
}
# attached CE RSS: whether a CE is attached to all RSs.
attached() { [ "$(grep -c 'attached to RS' $tmp/$1)" -ge $2 ]; }

make_hosts ini se c1 c2 c3 c4 r1 r2 r3 r4
for way in 1,1,1 2,1,1 4,1,1 1,2,1 1,4,1 1,1,2 1,1,4; do system ${way//,/ }; done
