# SPDX-License-Identifier: GPL-2.0
# The target: LIO with its ports and logical units. user-target.sh has the same functions for the user-space target.

port=5555
declare -A wwn=() tpg=()

load_target() {
	local m
	for m in dummy veth rdma_rxe siw rdma_cm target_core_mod target_core_iblock target_core_file ib_srpt sd_mod sg; do
		modprobe -q $m 2>/dev/null
	done
	modprobe -q null_blk nr_devices=0 2>/dev/null
	mountpoint -q $cfg || mount -t configfs configfs $cfg
	[ "$kind" != siw ] || loaded siw || skip "this kernel has no siw"
	mkdir -p $cfg/target/srpt || fail "no SRP target in this kernel"
	[ "$(cat $cfg/target/srpt/discovery_auth/rdma_cm_port)" = $port ] ||
		echo $port >$cfg/target/srpt/discovery_auth/rdma_cm_port
}

# target I [off]: makes device I a target port, which stays disabled with `off`. Initiators are identified by their port
# identifier: initiator_ext (0 to 3) and the lower half of the GID they come from.
target() {
	local ext acls=()
	gid ${tport[$1]-$kind$1}
	wwn[$1]=$cfg/target/srpt/0x$gid
	tpg[$1]=${wwn[$1]}/0x$gid
	gid "$(initiator $1)"
	for ext in 0 1 2 3; do acls+=("${tpg[$1]}/acls/0x000000000000000$ext${gid:16}"); done
	mkdir "${wwn[$1]}" "${tpg[$1]}" "${acls[@]}" || fail "cannot make target port ${wwn[$1]}"
	[ "${2-}" = off ] || echo 1 >"${tpg[$1]}/enable" || fail "cannot enable target $1"
}

# While disabled, the target closes all connections and accepts no login.
target_off() { echo 0 >"${tpg[$1]}/enable"; }
target_on() { echo 1 >"${tpg[$1]}/enable"; }
# Hooks for a target that starts with the first login, and can fail at its end.
target_up() { :; }
target_ends() { :; }

# lun I L NAME: maps back end NAME as logical unit L of target I.
lun() {
	local t=${tpg[$1]} a acls
	acls=("$t"/acls/*)
	# With many LUNs one initiator port is enough.
	[ "$2" = 0 ] || acls=("${acls[0]}")
	mkdir "$t/lun/lun_$2" "${acls[@]/%//lun_$2}" && ln -s "${backdir[$3]}" "$t/lun/lun_$2/$3" || fail "cannot make LUN $2"
	for a in "${acls[@]}"; do ln -s "$t/lun/lun_$2" "$a/lun_$2/l" || fail "cannot map LUN $2"; done
}

untarget() {
	local w t a
	for w in $cfg/target/srpt/0x*; do
		[ -d "$w" ] || continue
		for t in "$w"/0x*; do
			[ -d "$t" ] || continue
			echo 0 >"$t/enable" 2>/dev/null
			for a in "$t"/acls/*; do
				[ -d "$a" ] || continue
				set -- "$a"/lun_*
				[ ! -d "$1" ] || { rm -f "${@/%//l}"; rmdir "$@"; }
				rmdir "$a"
			done
			set -- "$t"/lun/lun_*
			[ ! -d "$1" ] || { find "$@" -maxdepth 1 -type l -delete; rmdir "$@"; }
			rmdir "$t"
		done
		rmdir "$w"
	done
	wwn=() tpg=()
}
