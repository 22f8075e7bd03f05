# SPDX-License-Identifier: GPL-2.0
# The targets of the other initiators, all with disk0 at 10.0.0.1 and default settings; sourced by guest.sh.

# Load all modules at once, because measure.py records the symbols when the first driver is loaded. rnbd_server listens
# at port 1234 from here on.
modprobe -a nvme_rdma nvmet_rdma rnbd_server rnbd_client ib_iser ib_isert iscsi_tcp || fail "modules"

# On an InfiniBand subnet these initiators also resolve addresses by IP. All of them connect in the first network
# namespace only, so both hosts are in it, and traffic between them must still leave through the sender's own adapter.
if [ $kind = vfab ]; then
	modprobe ib_ipoib && ip rule add pref 100 lookup local && ip rule del pref 0 || fail "IP over InfiniBand"
	net=($(ls /sys/class/infiniband/vfab0/device/net) $(ls /sys/class/infiniband/vfab1/device/net))
	for i in 0 1; do
		ip addr add 10.0.0.$((i + 1))/32 dev ${net[i]} && ip link set ${net[i]} up || fail "no address for vfab$i"
	done
	for i in 0 1; do
		to=10.0.0.$((2 - i))
		ip route add $to dev ${net[i]} src 10.0.0.$((i + 1)) table $((101 + i)) &&
			ip rule add pref $((10 + i)) to $to lookup $((101 + i)) &&
			ip neigh replace $to lladdr $(</sys/class/net/${net[1 - i]}/address) dev ${net[i]} || fail "no way from vfab$i"
	done
fi

nvmet=$cfg/nvmet
mkdir -p $nvmet/subsystems/bench/namespaces/1 $nvmet/ports/1 &&
	echo 1 >$nvmet/subsystems/bench/attr_allow_any_host &&
	echo ${backdev[disk0]} >$nvmet/subsystems/bench/namespaces/1/device_path &&
	echo 1 >$nvmet/subsystems/bench/namespaces/1/enable &&
	echo rdma >$nvmet/ports/1/addr_trtype &&
	echo ipv4 >$nvmet/ports/1/addr_adrfam &&
	echo 10.0.0.1 >$nvmet/ports/1/addr_traddr &&
	echo 4420 >$nvmet/ports/1/addr_trsvcid &&
	ln -s $nvmet/subsystems/bench $nvmet/ports/1/subsystems/ || fail "nvmet"

# iSCSI over TCP at port 3260, iSER at 3261. These access settings do not affect the speed.
iqn=iqn.2003-01.org.linux-iscsi.guest:bench
t=$cfg/target/iscsi/$iqn/tpgt_1
mkdir -p $cfg/target/iscsi && mkdir -p $t && mkdir $t/lun/lun_0 $t/np/10.0.0.1:3260 $t/np/10.0.0.1:3261 &&
	ln -s ${backdir[disk0]} $t/lun/lun_0/disk0 &&
	echo 1 >$t/np/10.0.0.1:3261/iser &&
	echo 0 >$t/attrib/authentication && echo 1 >$t/attrib/generate_node_acls &&
	echo 0 >$t/attrib/demo_mode_write_protect &&
	echo 1 >$t/enable || fail "iSCSI target"

# ci/bench.sh put open-iscsi beside this file.
export PATH=/srp:$PATH LD_LIBRARY_PATH=/srp
mkdir -p /etc/iscsi /var/lib/iscsi /run/lock/iscsi
echo InitiatorName=iqn.2003-01.org.linux-iscsi.guest:initiator >/etc/iscsi/initiatorname.iscsi
echo "node.startup = manual" >/etc/iscsi/iscsid.conf
iscsid || fail "iscsid"
iscsiadm -m node -T $iqn -p 10.0.0.1:3260 -o new &&
	iscsiadm -m node -T $iqn -p 10.0.0.1:3261 -I iser -o new || fail "iscsiadm"
