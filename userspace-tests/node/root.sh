# SPDX-License-Identifier: GPL-2.0
# Steps with initramfs images that log in: the root file system on SRP, and crash dumps. `step` includes this.

# Settings with which an initramfs provides a target with the node's own disk, and logs in to it.
root_guid=000000fffe000001
testbed_modules="dummy rdma_rxe ib_srpt target_core_iblock configfs"
# The file of a second path, to an address that answers only once the system runs.
away=10.0.0.9
mark_root() {
	cat >/etc/srp/targets.d/root.conf <<-E
		initramfs = true
		device = "0x$root_guid"
		id_ext = "$root_guid"
		ioc_guid = "$root_guid"
		dest = "10.0.0.1:5555"
	E
	sed "s/^dest.*/dest = \"$away:5555\"\ninitiator_ext = \"1\"/" /etc/srp/targets.d/root.conf >/etc/srp/targets.d/away.conf
}
unmark_root() { rm /etc/srp/targets.d/{root,away}.conf; }
# storage_script: prints an initramfs script that creates the target of the root disk, unless it exists.
storage_script() {
	cat <<-E
		#!/bin/sh
		[ "\$1" != prereqs ] || exit 0
		[ ! -e /sys/class/net/dummy0 ] || return 0
		set -e
		modprobe -a $testbed_modules
		ip link add dummy0 address 02:00:00:00:00:01 type dummy
		ip addr add 10.0.0.1/24 dev dummy0
		ip link set dummy0 up
		rdma link add rxe0 type rxe netdev dummy0
		[ -d /sys/kernel/config/target ] || mount -t configfs configfs /sys/kernel/config
		cd /sys/kernel/config/target
		mkdir -p core/iblock_0/disk srpt
		echo udev_path=/dev/vda >core/iblock_0/disk/control
		echo 1 >core/iblock_0/disk/enable
		echo 5555 >srpt/discovery_auth/rdma_cm_port
		IFS=: read -r a b c d e f g h </sys/class/infiniband/rxe0/ports/1/gids/0
		gid=\$a\$b\$c\$d\$e\$f\$g\$h
		tpg=srpt/0x\$gid/0x\$gid
		mkdir srpt/0x\$gid \$tpg \$tpg/lun/lun_0
		ln -s \$PWD/core/iblock_0/disk \$tpg/lun/lun_0/disk
		for ext in 0 1; do
			acl=\$tpg/acls/0x000000000000000\$ext\$e\$f\$g\$h
			mkdir \$acl \$acl/lun_0
			ln -s \$PWD/\$tpg/lun/lun_0 \$acl/lun_0/lun
		done
		echo 1 >\$tpg/enable
		set +e
		cd /
	E
}
# with_storage COMMAND...: runs COMMAND while initramfs-tools adds this target, and the login to it.
with_storage() {
	local hooks=/etc/initramfs-tools rc
	mark_root
	cat >$hooks/hooks/testbed <<-E
		#!/bin/sh
		[ "\$1" != prereqs ] || exit 0
		. /usr/share/initramfs-tools/hook-functions
		manual_add_modules $testbed_modules
		for p in ip rdma; do copy_exec "\$(command -v \$p)"; done
	E
	storage_script >$hooks/scripts/init-premount/testbed
	chmod +x $hooks/{hooks,scripts/init-premount}/testbed
	"$@"
	rc=$?
	unmark_root
	rm $hooks/{hooks,scripts/init-premount}/testbed
	return $rc
}

# Has the module built when its kernel's image is there already, as if headers came late.
late_module() {
	local release version
	release=$(uname -r) version=$(dpkg-query -W -f '${Version}' ib-srp-rs-dkms)
	mark_root
	dkms unbuild ib-srp-rs/$version -k $release || fail "dkms unbuild"
	update-initramfs -u -k $release || fail "update-initramfs"
	image_has kernel/drivers/infiniband/ulp/srp
	sh /var/lib/dpkg/info/ib-srp-rs-dkms.postinst triggered /usr/src
	takes ours
	image_has updates/dkms
	unmark_root
	update-initramfs -u -k $release || fail "update-initramfs"
}
# image_has FOLDER: checks which module this kernel's initramfs has.
image_has() {
	local found; found=$(lsinitramfs /boot/initrd.img-"$(uname -r)" | grep '/ib_srp\.ko')
	[[ $found == */"$(uname -r)/$1/ib_srp.ko"* ]] || fail "the image has '$found', not that of $1"
}

root_image() {
	local release; release=$(uname -r)
	with_storage mkinitramfs -o /boot/initrd.srp.img "$release" || fail "mkinitramfs"
	cp /boot/vmlinuz-"$release" /boot/vmlinuz.srp
	lsinitramfs /boot/initrd.srp.img | grep -E 'srpctl|ib_srp.ko|root.conf'
}

# Like root_image, with dracut, which makes no image for the boot without SRP.
dracut_image() {
	local release module=/usr/lib/dracut/modules.d/99testbed
	release=$(uname -r)
	apt-get install --no-install-recommends dracut-core dracut-network
	mark_root
	mkdir $module
	storage_script >$module/storage.sh
	cat >$module/module-setup.sh <<-E
		installkernel() { hostonly='' instmods $testbed_modules virtio_pci virtio_blk ext4; }
		install() {
			inst_multiple ip rdma mount mkdir ln modprobe
			inst_hook initqueue/settled 10 "\$moddir/storage.sh"
		}
	E
	dracut --force --hostonly --no-hostonly-cmdline --add testbed /boot/initrd.dracut.img "$release" || fail "dracut"
	rm -r $module
	unmark_root
	lsinitrd /boot/initrd.dracut.img >/tmp/list
	for f in sbin/srpctl ib_srp.ko targets.d/{root,away}.conf 60-srp.rules srp-login.sh; do grep -F "$f" /tmp/list || fail "no $f in the image"; done
}

# Builds the crash kernel's initramfs.
dump_image() {
	# kdump-tools does not build the initramfs in a chroot.
	mkdir -p /tmp/bin
	printf '#!/bin/sh\nexit 1\n' >/tmp/bin/ischroot
	chmod +x /tmp/bin/ischroot
	PATH=/tmp/bin:$PATH with_storage readme "Dump" || fail "README"
	# The packages have also rebuilt the plain image.
	update-initramfs -u -k "$(uname -r)" || fail "update-initramfs"
	# kdump-tools rebuilds the image when the service sees new settings.
	cp /etc/kdump/sysctl.conf /var/lib/kdump/latest_sysctls-"$(uname -r)"
	lsinitramfs /var/lib/kdump/initrd.img-"$(uname -r)" | grep -E 'srpctl|ib_srp.ko|root.conf' || fail "no login in the image"
}

# Checks that the whole system runs from an SRP disk, which is never logged out of.
disk_is_root() {
	findmnt /
	find_hosts
	disk=$(disk ${list% } 0) || exit 1
	[ "$(readlink -f "$(findmnt -no SOURCE /)")" = $disk ] || fail "/ is not on $disk"
	runs ours
}
# Checks that the boot has not waited for the path that is away, and that a unit logs in to it when it is there.
second_path() {
	local port login mount
	port=$(second_of 'infiniband rxe0: added')
	login=$(second_of 'ib_srp: .*: logged in at 10.0.0.1')
	mount=$(second_of "EXT4-fs (${disk#/dev/}): mounted")
	echo "port after $port s, login after $login s, / mounted after $mount s"
	[ -n "$port" ] && [ -n "$login" ] && [ -n "$mount" ] || fail "not in the log of this boot"
	# A login at the address that is away takes 30 s.
	[ $((login - port)) -lt 25 ] || fail "the login waited for the path that is away"
	[ $((mount - login)) -lt 25 ] || fail "the boot waited for the path that is away"
	mark_root
	systemctl daemon-reload
	systemctl start --no-block srp-connect@root srp-connect@away
	within 60 "a unit for the path of the initramfs" systemctl -q is-active srp-connect@root
	equal "hosts" "$(hosts)" "${list% }"
	ip addr add $away/24 dev dummy0
	# A login that waits for an answer ends after 30 s, and a unit starts again 5 s after it failed.
	within 120 "the second path" systemctl -q is-active srp-connect@away
	srpctl list
	srpctl list --json | grep "\"address\": \"$away:5555\"" || fail "no session at $away"
	srpctl disconnect away || fail "the second path stays"
	systemctl stop srp-connect@root
	equal "hosts" "$(hosts)" "${list% }"
	ip addr del $away/24 dev dummy0
	unmark_root
	systemctl daemon-reload
}
# second_of PATTERN: prints the second of the first message with it.
second_of() { dmesg | sed -n "s/^\[ *\([0-9]*\)\..*$1.*/\1/p" | sed q; }
root_on_srp() {
	disk_is_root
	second_path
	srpctl list
	srpctl list --json | grep '"owner": "initramfs"' || fail "the owner is not on record"
	# rdma-core renames adapters after the initramfs.
	name=$(ls -d /dev/disk/by-path/srp-0x$root_guid-1-*-lun-0) && rdma dev set rxe0 name rocep1s0 || fail "no rename"
	udevadm trigger --action=change --settle $disk
	[ "$(readlink -f $name)" = $disk ] || fail "$name is not $disk after the rename of the adapter"
	rdma dev set rocep1s0 name rxe0
	srpctl disconnect --all
	! srpctl disconnect ${list% } || fail "the root file system's session is given back"
	head -c 8M /dev/urandom >$tmp/on-srp && sync && sha256sum $tmp/on-srp >$tmp/on-srp.sum || fail "writing to /"
}

root_by_dracut() {
	journalctl -b --no-pager | grep -F 'dracut-initqueue' | head -n 5
	journalctl -b --no-pager | grep -qF 'dracut-initqueue' || fail "dracut has not booted this"
	root_on_srp
}

# Checks that data written to the SRP root file system is on the disk, and that the shutdown was clean.
off_srp() {
	within 240 "$mount_point mounted" mounted
	sha256sum -c $tmp/on-srp.sum || fail "what was written to / is not there"
	! journalctl -b -1 --no-pager | grep -E 'Failed unmounting|I/O error' || fail "the shutdown was not clean"
}

# Prepares the crash of the kernel, which is the next line of the plan.
crash() {
	disk_is_root
	within 60 "the crash kernel" grep -qx 1 /sys/kernel/kexec_crash_loaded
	kdump-config show
	rm -rf /var/crash/2*
	sync
}
# Checks that the crash kernel logged in and wrote the dump to its only disk.
dump() {
	local at
	for at in /var/crash/2*; do ls -l $at; done
	[ -s $at/dump.* ] || fail "no dump"
	grep -F 'sysrq: Trigger a crash' $at/dmesg.* || fail "not the log of the crash"
	makedumpfile -R /tmp/vmcore <$(echo $at/dump.*) && makedumpfile --dump-dmesg /tmp/vmcore /tmp/dmesg || fail "the dump is not whole"
	grep -F 'sysrq: Trigger a crash' /tmp/dmesg || fail "not that crash"
	rm -r $at /tmp/vmcore
}
