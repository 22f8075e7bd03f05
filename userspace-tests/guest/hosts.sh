# SPDX-License-Identifier: GPL-2.0
# More than two hosts. The first one is the initiator's, `ini`, the others run a storage system in user space.

# Numbers of the hosts, and the PIDs of their processes.
declare -A number=() serving=()

# make_hosts NAME...: host number N has 10.0.N.2 on a veth pair vN (with MTU if set), and 10.0.N.1 is the router between
# all of them, in the first namespace. siw supports one namespace only: there each host has its device and address, but
# no veth pair.
make_hosts() {
	local h n=0 device mac
	paired=1
	read -r forward </proc/sys/net/ipv4/ip_forward
	echo 1 >/proc/sys/net/ipv4/ip_forward
	for h; do
		number[$h]=$n
		device=$kind$([ $n = 0 ] && echo 10 || echo 2$n)
		if [ $kind = siw ]; then
			ip link add v$n type dummy && ip addr add 10.0.$n.2/24 dev v$n && ip link set v$n up ||
				fail "cannot make the host $h"
			rdma link add $device type siw netdev v$n || fail "cannot make $device"
		else
			ip netns add $h && ip link add v$n mtu ${MTU:-1500} type veth peer name w0 netns $h mtu ${MTU:-1500} &&
				ip addr add 10.0.$n.1/24 dev v$n && ip link set v$n up &&
				ip -n $h link set lo up && ip -n $h addr add 10.0.$n.2/24 dev w0 && ip -n $h link set w0 up &&
				ip -n $h route add default via 10.0.$n.1 || fail "cannot make the host $h"
			nsenter --net=/run/netns/$h rdma link add $device type rxe netdev w0 || fail "cannot make $device"
			# Add static neighbour entries, as neighbours() does.
			read -r mac </sys/class/net/v$n/address
			ip -n $h neigh replace 10.0.$n.1 lladdr $mac dev w0
			mac=$(ip -n $h -o link show w0 | sed 's/.*link.ether \([^ ]*\).*/\1/')
			ip neigh replace 10.0.$n.2 lladdr $mac dev v$n
		fi
		n=$((n + 1))
	done
	within 10 "class device of ${kind}10" test -e "$(add_target 0)"
	within 10 "/dev/infiniband" test -c /dev/infiniband/rdma_cm
	baseline
}

# Removes the hosts at the end of a test, except for the first one, which is removed with the rest of the fabric.
unmake_hosts() {
	local h
	# `rc` is the status of the test, set by finish().
	case ${rc-0} in 0 | 77) ;; *) for h in $(printf '%s\n' "${!number[@]}" "${!serving[@]}" etcd | sort -u); do
		[ ! -s $tmp/$h ] || sed "s/^/--- $h said: /" <(tail -n 60 $tmp/$h)
		done >&$console ;; esac
	for h in "${!serving[@]}"; do kill -KILL ${serving[$h]}; done
	for h in "${!number[@]}"; do
		[ ${number[$h]} != 0 ] || continue
		# Delete the device first: otherwise the removal of the link waits for it.
		[ $kind = siw ] || timeout 60 rdma link delete rxe2${number[$h]}
		ip link delete v${number[$h]}
		[ $kind = siw ] || ip netns delete $h
	done
	[ -z "${forward-}" ] || echo $forward >/proc/sys/net/ipv4/ip_forward
}

# serve HOST[-ROLE] COMMAND...: starts COMMAND on HOST, which may have several roles.
serve() {
	$([ $kind = siw ] || echo nsenter --net=/run/netns/${1%%-*}) "${@:2}" >>$tmp/$1 2>&1 &
	serving[$1]=$!
}
says() { grep -E -- "$2" $tmp/$1 >/dev/null; }

# certify DIRECTORY NAME OPTION...: makes NAME.pem and NAME.key there, signed by its ca.pem.
certify() {
	(umask 077 && cd $1 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
		-keyout $2.key -out $2.pem "${@:3}") 2>$tmp/err || fail "openssl: $(<$tmp/err)"
}
# make_pki DIRECTORY: puts the CA and the certificates of etcd and of a role there, and another CA.
make_pki() {
	local h names=IP:127.0.0.1 signed=(-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE)
	mkdir -p $1
	for h in "${number[@]}"; do names+=,IP:10.0.$h.1; done
	certify $1 ca -subj /CN=ca
	certify $1 other -subj /CN=ca
	certify $1 etcd "${signed[@]}" -subj /O=etcd -addext subjectAltName=$names
	certify $1 role "${signed[@]}" -subj /O=role
}
# start_etcd DIRECTORY [PKI]: starts etcd on the router, as a process of the pseudo host `etcd`, with its data in
# DIRECTORY; with TLS if there are certificates in PKI.
start_etcd() {
	local scheme=http tls=()
	[ -z "${2-}" ] || scheme=https tls=(--cert-file $2/etcd.pem --key-file $2/etcd.key --trusted-ca-file $2/ca.pem
		--client-cert-auth --auth-token-ttl 5 --bcrypt-cost 4)
	type etcd >/dev/null || fail "no etcd in this guest"
	ip link set lo up
	# It would have CPUs of its own.
	nice -n -20 etcd --data-dir $1 --listen-client-urls $scheme://0.0.0.0:2379 \
		--advertise-client-urls $scheme://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 "${tls[@]}" \
		>>$tmp/etcd 2>&1 &
	serving[etcd]=$!
}
# ask_etcd PKI PASSWORD [PATH JSON]...: sends requests to etcd with TLS, as root if there is a password, and prints the
# answers. In JSON <a> is a in base 64.
ask_etcd() {
	python3 - "$@" <<-'EOF'
		import base64, json, re, ssl, sys, urllib.request
		pki, password = sys.argv[1:3]
		tls = ssl.create_default_context(cafile=f"{pki}/ca.pem")
		# The CA has no key usage.
		tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
		tls.load_cert_chain(f"{pki}/role.pem", f"{pki}/role.key")
		head = {}
		def ask(path, text):
		    text = re.sub("<(.*?)>", lambda m: base64.b64encode(m[1].encode()).decode(), text)
		    request = urllib.request.Request(f"https://127.0.0.1:2379/v3/{path}", text.encode(), head)
		    return urllib.request.urlopen(request, timeout=20, context=tls).read().decode()
		if password:
		    who = json.dumps({"name": "root", "password": password})
		    head["Authorization"] = json.loads(ask("auth/authenticate", who))["token"]
		for at in range(3, len(sys.argv), 2):
		    print(ask(*sys.argv[at:at + 2]))
	EOF
}
# etcd_users PKI NAME PASSWORD PREFIX: turns authentication of etcd on. A user with this name may use the keys below a
# prefix that ends in /.
etcd_users() {
	local end=${4%/}0
	ask_etcd $1 "" auth/user/add '{"name":"root","password":"root"}' auth/role/add '{"name":"root"}' \
		auth/user/grant '{"user":"root","role":"root"}' auth/user/add "{\"name\":\"$2\",\"password\":\"$3\"}" \
		auth/role/add '{"name":"roles"}' auth/user/grant "{\"user\":\"$2\",\"role\":\"roles\"}" auth/role/grant \
		"{\"name\":\"roles\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"<$4>\",\"range_end\":\"<$end>\"}}" \
		auth/enable '{}'
}
# etcd_of HOST: prints the address of etcd for HOST.
etcd_of() { if [ $kind = siw ]; then echo 127.0.0.1:2379; else echo 10.0.${number[$1]}.1:2379; fi; }

die() { kill -KILL ${serving[$1]}; reap 20 "$1" ${serving[$1]} 2>/dev/null; unset "serving[$1]"; }

# Traffic of each link in KiB: `sent` from the host, `got` to it.
declare -A sent=() got=()
count() {
	local h v rx tx
	for h in "${!number[@]}"; do
		v=/sys/class/net/v${number[$h]}/statistics
		read -r rx <$v/rx_bytes; read -r tx <$v/tx_bytes
		sent[$h]=$((rx / 1024 - ${sent[$h]-0})) got[$h]=$((tx / 1024 - ${got[$h]-0}))
	done
}
# carry WHAT KIB COMMAND...: measures the traffic of the links during COMMAND. Traffic on siw cannot be measured.
carry() {
	local h line=
	quiet $dev
	sent=() got=()
	count
	"${@:3}" || fail "$1"
	count
	for h in $(for h in "${!number[@]}"; do
		echo "${number[$h]} $h"
		done | sort -n | cut -d' ' -f2); do line+=" $h ${sent[$h]}/${got[$h]}"
	done
	[ $kind = siw ] || say "KiB sent/received for $2 KiB, $1:$line"
}
