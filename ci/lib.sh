# SPDX-License-Identifier: GPL-2.0
# Shared by the ci scripts: the cache, the toolchain root, messages.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/srp-rs
jobs=$(nproc)
mkdir -p "$cache"

say() { printf '==> %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# step NAME KEY COMMAND...: prints the directory that COMMAND has filled; its name contains the hash of KEY. COMMAND
# gets a temporary directory as its last argument, which is renamed only if COMMAND succeeds, so a killed step starts
# again. A concurrent caller waits for the first one.
step() {
	local name=$1 key=$2 dir tmp lock began status
	shift 2
	dir=$cache/$name-$(printf '%s' "$key" | sha256sum | cut -c1-16)
	if [ ! -d "$dir" ]; then
		exec {lock}>"$cache/$name.lock"
		flock "$lock"
		if [ ! -d "$dir" ]; then
			tmp=$cache/tmp-$name
			rm -rf --one-file-system "$tmp"
			mkdir -p "$tmp"
			began=$SECONDS
			say "$name: making it (log: $cache/$name.log)"
			# Not as a condition: bash ignores `set -e` there.
			set +e
			(set -e; "$@" "$tmp") >"$cache/$name.log" 2>&1 {lock}>&-
			status=$?
			set -e
			if [ $status != 0 ]; then
				tail -n 40 "$cache/$name.log" >&2
				die "$name failed; the whole log is $cache/$name.log"
			fi
			mv "$tmp" "$dir"
			# Remove directories that no checkout has used for two weeks.
			find "$cache" -maxdepth 1 -name "$name-????????????????" -mtime +14 -exec rm -rf --one-file-system {} +
			say "$name: done in $((SECONDS - began)) s"
		fi
		exec {lock}>&-
	fi
	touch "$dir"
	printf '%s\n' "$dir"
}

# lab MODULE [ARGUMENT]...: runs a module of ci/lab.
lab() {
	[ -n "$(command -v python3)" ] || host_needs python3
	PYTHONPATH=$top/ci python3 -B -m "lab.$1" "${@:2}"
}

# counted ARGUMENT...: makes sure that the script with these arguments has $RESULTS (ci/lab/results.py) to add results
# to. Without it, runs the script again with such a file, and prints the sum as the last line.
counted() {
	[ -n "${RESULTS-}" ] || { lab results run "$(realpath "$0")" "$@"; exit; }
}
# result NAME ok|fail|skip [REASON]: adds a result.
result() { lab results add "$@" </dev/null; }

# missing PACKAGE...: prints the packages that are not installed.
missing() {
	local p
	for p; do dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || echo "$p"; done
}
apt_update() { apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 update -qq >&2; }
# host_needs PACKAGE...: installs missing packages. Callers take turns, because one would fail on the lock of dpkg.
host_needs() {
	local lock list
	[ -n "$(missing "$@")" ] || return 0
	exec {lock}>"$cache/apt.lock"
	flock "$lock"
	mapfile -t list < <(missing "$@")
	if [ ${#list[@]} -gt 0 ]; then
		[ "$(id -u)" = 0 ] || die "not root, and these packages are missing: ${list[*]}"
		say "installing ${list[*]}"
		apt_update {lock}>&-
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 \
			install -y -qq --no-install-recommends "${list[@]}" >/dev/null {lock}>&-
	fi
	exec {lock}>&-
}

# Prints the mirror that this machine's apt uses. A new machine may have no package lists, without which apt does not
# know which of its sources are Debian's.
mirror() {
	listed_mirror && return
	(flock 9; listed_mirror >/dev/null || apt_update 9>&-) 9>"$cache/apt.lock"
	listed_mirror || die "apt has no Debian mirror configured (apt-get indextargets lists none)"
}
listed_mirror() {
	apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' |
		awk '$2 == "Debian" && $1 !~ /security/ && !found++ {print $1} END {exit !found}'
}

# Selects the kernel series: SERIES or the newest in trixie-backports. Exports SERIES. `built` is its build directory.
pick_series() {
	[ -n "${SERIES-}" ] || SERIES=$("$top/ci/series.sh" | sed -n '1s/ .*//p')
	[ -n "$SERIES" ] || die "no kernel series"
	export SERIES
	built=$top/build/$SERIES
}

# For scripts inside the root, which take turns to use apt, until they close $turn: `use_sources next` makes it use
# unstable and experimental instead, with `$apt`. An outdated mirror is acceptable: the result is only a warning.
# shellcheck disable=SC2016
apt_sources='
	exec {turn}>/var/lib/apt/turn
	flock $turn
	apt=
	use_sources() {
		[ "$1" = next ] || return 0
		mkdir -p /tmp/apt/lists/partial
		sed -n "s/ trixie main$/ sid main/p" /etc/apt/sources.list >/tmp/apt/list
		sed -n "s/ trixie main$/ experimental main/p" /etc/apt/sources.list >>/tmp/apt/list
		apt="-o Dir::Etc::SourceList=/tmp/apt/list -o Dir::Etc::SourceParts=/nonexistent -o Dir::State::Lists=/tmp/apt/lists"
		apt="$apt -o Dir::Cache=/tmp/apt -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false"
	}
'

# Runs mmdebstrap in a mount namespace, so that its mounts disappear however it ends.
bootstrap() {
	host_needs mmdebstrap debian-archive-keyring util-linux
	unshare -m --propagation private mmdebstrap --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
		--aptopt='Acquire::Retries "3"' "$@"
}

# emulated COMMAND...: runs COMMAND, which may be a function of this file, while this machine executes programs for
# arm64 by qemu-user. The kernel keeps that open, so it works in each chroot, until the last mount of binfmt_misc ends.
emulated() {
	local root; root=$("$top/ci/root.sh" arm64)
	QEMU=$root/usr/bin/qemu-aarch64 LIB=$top/ci/lib.sh unshare -m --propagation private bash -euc '
		of=/proc/sys/fs/binfmt_misc
		# A caller of this function has mounted it, and a machine with systemd may have.
		[ -e $of/register ] || mount -t binfmt_misc binfmt_misc $of
		# Another caller may be first. Bytes 18 and 19 of a program are its architecture.
		[ -e $of/srp-arm64 ] || echo ":srp-arm64:M:18:\xb7\x00::$QEMU:PF" >$of/register || [ -e $of/srp-arm64 ]
		. "$LIB"
		"$@"' emulated "$@"
}

# flavour KERNEL: prints the flavour of Debian's packages. Fails for our own kernels.
flavour() {
	case $1 in
	stock) echo amd64 ;;
	rt) echo rt-amd64 ;;
	arm64|arm64-16k) echo "$1" ;;
	*) return 1 ;;
	esac
}

# The variables that make needs for a kernel and for its modules.
make_flags() {
	case $1 in
	# The stub must return from a signal with nothing on its stack, so it must not have a frame pointer.
	kasan)
		echo 'ARCH=um SUBARCH=x86 LLVM=1 CC="ccache clang"' \
			'CFLAGS_stub.o="-fno-stack-protector -fno-pic -fomit-frame-pointer"'
		;;
	kcsan) echo 'LLVM=1 CC="ccache clang"' ;;
	arm64*) echo 'ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC="ccache aarch64-linux-gnu-gcc"' ;;
	*) echo 'CC="ccache gcc"' ;;
	esac
}

# in_root ROOT [HOST_DIR:ROOT_DIR[:ro]]... -- COMMAND...: runs COMMAND in ROOT with these directories bound. The mounts
# end with COMMAND.
in_root() {
	local root=$1 binds=()
	shift
	# Without a valid ROOT, COMMAND would change this machine.
	[ -n "$root" ] && [ -x "$root/usr/bin/env" ] && [ ! "$root" -ef / ] || die "no toolchain root in '$root'"
	while [ "$1" != -- ]; do binds+=("$1"); shift; done
	shift
	ROOT=$root BINDS="${binds[*]}" unshare -m --propagation private bash -euc '
		bindto() { mkdir -p "$ROOT$2"; mount --bind "$1" "$ROOT$2"; }
		mount -t proc proc "$ROOT/proc"
		mount --rbind /dev "$ROOT/dev"
		mount --rbind /sys "$ROOT/sys"
		mount -t tmpfs tmpfs "$ROOT/tmp"
		if [ -e /etc/resolv.conf ]; then cat /etc/resolv.conf > "$ROOT/etc/resolv.conf"; fi
		for b in $BINDS; do
			IFS=: read -r from to mode <<<"$b"
			bindto "$from" "$to"
			[ "${mode-}" != ro ] || mount -o remount,bind,ro "$ROOT$to"
		done
		exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM="${TERM-dumb}" \
			LC_ALL=C.UTF-8 "$@"' in_root "$@"
}

# cross KERNEL: prints the variables that programs of its guests need to be built for another architecture.
cross() {
	local gcc=aarch64-linux-gnu-gcc target=aarch64-unknown-linux-gnu
	[[ $1 != arm64* ]] || echo CC=$gcc CARGO_BUILD_TARGET=$target CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$gcc
}

# make_srpctl TARGET [KERNEL]: runs a target of the Makefile with Debian's crates, for guests with this kernel. The
# build is shared with deb.sh. The source is the tree SRC, default this one.
make_srpctl() {
	local root; root=$("$top/ci/root.sh" "${2-}")
	mkdir -p "$cache/cargo"
	in_root "$root" "${SRC:-$top}:/src:ro" "$cache/cargo:/cargo" -- env $(cross "${2-}") bash -euc '
		mkdir -p /tmp/src/rust/ib_srp/srp /tmp/src/docs /tmp/src/userspace-tests
		cp -r /src/Makefile /src/debian /src/tools /tmp/src
		cp -r /src/rust/ib_srp/srp/proto /tmp/src/rust/ib_srp/srp
		cp /src/docs/troubleshooting.md /tmp/src/docs
		cp /src/userspace-tests/kernel-lines.tsv /tmp/src/userspace-tests
		# A file of this checkout may be older than the last build, which another checkout may have done.
		find /tmp/src -name "*.rs" -exec touch {} +
		CARGO_TARGET_DIR=/cargo/$1 make -s -C /tmp/src "$2"' make_srpctl "${root##*/}" "$1"
}

# with_crates [HOST_DIR:ROOT_DIR[:ro]]... -- COMMAND...: like in_root with the toolchain root, for cargo with this
# machine's source of crates: its certificates, proxies and cargo settings. Downloads and builds are in /host, which one
# caller at a time may use. It builds for guests with the kernel FOR.
with_crates() {
	local ca=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} config settings root lock binds=()
	root=$("$top/ci/root.sh" "${FOR-}")
	mkdir -p "$cache"/host/{cargo,target,certs}
	[ ! -e "$ca" ] || cp "$ca" "$cache/host/certs/ca.crt"
	for config in "${CARGO_HOME:-$HOME/.cargo}"/config{,.toml}; do
		[ ! -e "$config" ] || cp "$config" "$cache/host/cargo/"
	done
	mapfile -t settings < \
		<(env | grep -iE '^(https?_proxy|all_proxy|no_proxy|CARGO_(HTTP|NET|REGISTR[A-Z]*|SOURCE)_[A-Z_]*)=' || true)
	while [ "$1" != -- ]; do binds+=("$1"); shift; done
	shift
	if [ -n "${RESULTS-}" ]; then
		binds+=("${RESULTS%/*}:/results" "$top/ci:/lab:ro")
		settings+=("RESULTS=/results/${RESULTS##*/}" PYTHONPATH=/lab)
	fi
	exec {lock}>"$cache/host.lock"
	flock "$lock"
	in_root "$root" "${binds[@]}" "$cache/host:/host" -- env \
		"${settings[@]}" $(cross "${FOR-}") CARGO_HOME=/host/cargo CARGO_TARGET_DIR=/host/target \
		CARGO_HTTP_CAINFO=/host/certs/ca.crt CARGO_TERM_COLOR=never "$@" {lock}>&-
	exec {lock}>&-
}
