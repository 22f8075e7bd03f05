# SPDX-License-Identifier: GPL-2.0
# Steps with initramfs images that log in: the root file system on SRP, by files and by a table of the firmware, and
# crash dumps. `step` includes this.

# An initramfs provides a target with the node's own disk, and logs in to it. The devices are soft ones on `dummy0`, or
# adapters of ib_vfab, and the login that of the firmware's table (guest/sbft.hex).
root_guid=000000fffe000001
files_modules="dummy rdma_rxe ib_srpt target_core_iblock configfs"
files_programs="ip rdma"
table_modules="ib_umad ib_vfab ib_srpt target_core_iblock configfs"
table_programs="opensm"
table_disk=/dev/disk/by-path/srp-0x5eed000000000200-1-5eed000000000100-5eed000000000100-lun-1
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
# The devices of `storage_script`.
files_devices() {
	cat <<-E
		ip link add dummy0 address 02:00:00:00:00:01 type dummy
		ip addr add 10.0.0.1/24 dev dummy0
		ip link set dummy0 up
		rdma link add rxe0 type rxe netdev dummy0
		of=rxe0 from=rxe0 lun=0
	E
}
table_devices() {
	cat <<-E
		wait_for() {
			read -r began rest </proc/uptime
			until "\$@"; do
				read -r now rest </proc/uptime
				now=\${now%.*}
				[ \$((\$now - \${began%.*})) -lt 60 ] || { cat /run/opensm.*; exit 1; }
				sleep 0.2
			done
		}
		is_active() { read -r state </sys/class/infiniband/\$1/ports/1/state && [ "\$state" = "4: ACTIVE" ]; }
		# The adapters come after the module.
		wait_for test -c /dev/infiniband/umad0
		wait_for test -c /dev/infiniband/umad1
		OSM_CACHE_DIR=/run opensm -g 0x5eed000000000101 -f /run/opensm.log >/run/opensm.out 2>&1 </dev/null &
		wait_for is_active vfab0
		wait_for is_active vfab1
		of=vfab0 from=vfab1 lun=1
	E
}
# storage_script files|table: prints an initramfs script that creates the target of the root disk, unless it exists.
storage_script() {
	local modules=$1_modules
	cat <<-E
		#!/bin/sh
		[ "\$1" != prereqs ] || exit 0
		[ ! -e /sys/kernel/config/target/srpt ] || return 0
		set -e
		modprobe -a ${!modules}
		$($1_devices)
		[ -d /sys/kernel/config/target ] || mount -t configfs configfs /sys/kernel/config
		cd /sys/kernel/config/target
		mkdir -p core/iblock_0/disk srpt
		echo udev_path=/dev/vda >core/iblock_0/disk/control
		echo 1 >core/iblock_0/disk/enable
		echo 5555 >srpt/discovery_auth/rdma_cm_port
		IFS=: read -r a b c d e f g h </sys/class/infiniband/\$of/ports/1/gids/0
		gid=\$a\$b\$c\$d\$e\$f\$g\$h
		IFS=: read -r a b c d e f g h </sys/class/infiniband/\$from/ports/1/gids/0
		tpg=srpt/0x\$gid/0x\$gid
		mkdir srpt/0x\$gid \$tpg \$tpg/lun/lun_\$lun
		ln -s \$PWD/core/iblock_0/disk \$tpg/lun/lun_\$lun/disk
		for ext in 0 1; do
			acl=\$tpg/acls/0x000000000000000\$ext\$e\$f\$g\$h
			mkdir \$acl \$acl/lun_\$lun
			ln -s \$PWD/\$tpg/lun/lun_\$lun \$acl/lun_\$lun/lun
		done
		echo 1 >\$tpg/enable
		set +e
		cd /
	E
}
# with_storage files|table COMMAND...: runs COMMAND while initramfs-tools adds this target, and the login to it.
with_storage() {
	local hooks=/etc/initramfs-tools modules=$1_modules programs=$1_programs rc
	cat >$hooks/hooks/testbed <<-E
		#!/bin/sh
		[ "\$1" != prereqs ] || exit 0
		. /usr/share/initramfs-tools/hook-functions
		manual_add_modules ${!modules}
		for p in ${!programs}; do copy_exec "\$(command -v \$p)"; done
	E
	storage_script $1 >$hooks/scripts/init-premount/testbed
	chmod +x $hooks/{hooks,scripts/init-premount}/testbed
	[ $1 = table ] || mark_root
	"${@:2}"
	rc=$?
	[ $1 = table ] || unmark_root
	rm $hooks/{hooks,scripts/init-premount}/testbed
	return $rc
}
# dracut_with_storage files|table IMAGE: makes an image with dracut, likewise.
dracut_with_storage() {
	local module=/usr/lib/dracut/modules.d/99testbed modules=$1_modules programs=$1_programs
	apt-get install --no-install-recommends dracut-core dracut-network || fail "dracut"
	mkdir $module
	storage_script $1 >$module/storage.sh
	cat >$module/module-setup.sh <<-E
		installkernel() { hostonly='' instmods ${!modules} virtio_pci virtio_blk ext4; }
		install() {
			inst_multiple ${!programs} mount mkdir ln modprobe sleep
			inst_hook initqueue/settled 10 "\$moddir/storage.sh"
		}
	E
	[ $1 = table ] || mark_root
	dracut --force --hostonly --no-hostonly-cmdline --add testbed "$2" "$(uname -r)" || fail "dracut"
	[ $1 = table ] || unmark_root
	rm -r $module
	lsinitrd "$2" >/tmp/list
	for f in sbin/srpctl ib_srp.ko 60-srp.rules srp-login.sh srp-firmware.sh; do grep -F "$f" /tmp/list || fail "no $f in the image"; done
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
	echo "the image has $found"
	[[ $found == */"$(uname -r)/$1/ib_srp.ko"* ]] || fail "the image has '$found', not that of $1"
}

root_image() {
	with_storage files mkinitramfs -o /boot/initrd.srp.img "$(uname -r)" || fail "mkinitramfs"
	cp /boot/vmlinuz-"$(uname -r)" /boot/vmlinuz.srp
	lsinitramfs /boot/initrd.srp.img | grep -E 'srpctl|ib_srp.ko|root.conf'
}

# Like root_image, with dracut, which makes no image for the boot without SRP.
dracut_image() {
	dracut_with_storage files /boot/initrd.dracut.img
	for f in targets.d/{root,away}.conf; do grep -F "$f" /tmp/list || fail "no $f in the image"; done
}

# Makes the images of a machine that its firmware has booted from an SRP disk, which have no file: with initramfs-tools
# and with dracut.
table_images() {
	local release; release=$(uname -r)
	# No package has ib_vfab.
	mkdir /tmp/vfab
	cp -r /testbed/source/{Kbuild,Makefile,debian,dkms.conf,include,rust,tools} /tmp/vfab
	/tmp/vfab/tools/kdir build "$release" SRP_VFAB=1 || fail "ib_vfab"
	install -D -m 644 -t /lib/modules/"$release"/updates /tmp/vfab/build/native/rust/ib_vfab.ko && depmod "$release" || fail "depmod"
	# The machine that runs this chroot has no such table.
	mount -t tmpfs table /sys/firmware && mkdir -p /sys/firmware/acpi/tables || fail "no place for a table"
	: >/sys/firmware/acpi/tables/sBFT
	apt-get install --no-install-recommends opensm || fail "opensm"
	with_storage table mkinitramfs -o /boot/initrd.table.img "$release" || fail "mkinitramfs"
	dracut_with_storage table /boot/initrd.table-dracut.img
	apt-get purge --autoremove opensm || fail "opensm stays"
	umount /sys/firmware
	cp /boot/vmlinuz-"$release" /boot/vmlinuz.srp
	lsinitramfs /boot/initrd.table.img >>/tmp/list
	! grep -E 'targets.d/.*conf' /tmp/list || fail "a file in an image for the table"
	rm /lib/modules/"$release"/updates/ib_vfab.ko && depmod "$release"
}

# Builds the crash kernel's initramfs.
dump_image() {
	# kdump-tools does not build the initramfs in a chroot.
	mkdir -p /tmp/bin
	printf '#!/bin/sh\nexit 1\n' >/tmp/bin/ischroot
	chmod +x /tmp/bin/ischroot
	PATH=/tmp/bin:$PATH with_storage files readme "Dump" || fail "README"
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
	disk=$(disk ${list% } ${1-0}) || exit 1
	[ "$(readlink -f "$(findmnt -no SOURCE /)")" = $disk ] || fail "/ is not on $disk"
	runs ours
	srpctl list
	srpctl list --json | grep '"owner": "initramfs"' || fail "the owner is not on record"
}
# write_root: writes to / what `off_srp` looks for.
write_root() {
	head -c 8M /dev/urandom >$tmp/on-srp && sync && sha256sum $tmp/on-srp >$tmp/on-srp.sum || fail "writing to /"
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
	local name
	disk_is_root
	second_path
	# rdma-core renames adapters after the initramfs.
	name=$(ls -d /dev/disk/by-path/srp-0x$root_guid-1-*-lun-0) && rdma dev set rxe0 name rocep1s0 || fail "no rename"
	udevadm trigger --action=change --settle $disk
	[ "$(readlink -f $name)" = $disk ] || fail "$name is not $disk after the rename of the adapter"
	rdma dev set rocep1s0 name rxe0
	srpctl disconnect --all
	! srpctl disconnect ${list% } || fail "the root file system's session is given back"
	write_root
}
by_dracut() {
	journalctl -b --no-pager | grep -F 'dracut-initqueue' | head -n 5
	journalctl -b --no-pager | grep -qF 'dracut-initqueue' || fail "dracut has not booted this"
}
root_by_dracut() {
	by_dracut
	root_on_srp
}

# Checks that the initramfs has logged in as the table of the firmware says, without file and network.
root_by_table() {
	local at said
	disk_is_root 1
	at=$(readlink -f $table_disk)
	equal "$table_disk" "$at" $disk
	[ ! -e /sys/class/net/dummy0 ] || fail "there is a network"
	srpctl firmware
	srpctl firmware --json | grep "\"session\": \"${list% }\"" || fail "not the session of the table"
	# Its status tells of other findings.
	said=$(srpctl doctor)
	[[ $said == *"ok      firmware  sBFT: ${list% } has the disk $table_disk"* ]] || fail "doctor: $said"
	! srpctl disconnect ${list% } || fail "the root file system's session is given back"
	write_root
}
table_by_dracut() {
	by_dracut
	sha256sum -c $tmp/on-srp.sum || fail "what was written to / is not there"
	root_by_table
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
