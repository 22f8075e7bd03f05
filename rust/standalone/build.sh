#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# build.sh CRATE OUT: builds `core` and the parts of the kernel crate in CRATE/rust that we use, as bitcode and metadata
# in OUT/rust, with the kernel's configuration for rustc in OUT. Called by Kbuild in the kernel's build directory, with
# RUSTC, BINDGEN, and the kernel's flags in RUST_FLAGS and C_FLAGS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
crate=$1/rust out=$2 to=$2/rust
rm -rf "$to"
mkdir -p "$to"/{bindings,host,kernel}
export RUSTC_BOOTSTRAP=1 OBJTREE=$out

# Kconfig's options for rustc depend on whether Kconfig has found rustc.
version=$($RUSTC --version | awk '{ split($2, v, "."); printf "%d%02d%02d", v[1], v[2], v[3] }')
{ grep -Ev '^(#|$|CONFIG_RUST)' include/config/auto.conf; echo "CONFIG_RUSTC_VERSION=$version"; } >"$out/auto.conf"
{ grep -v -e --cfg=CONFIG_RUST include/generated/rustc_cfg; echo --cfg=CONFIG_RUST; } >"$out/rustc_cfg"

# Macros and their dependencies run on the build host.
host() { $RUSTC "--edition=${edition-2021}" -O -Cstrip=debuginfo --cap-lints=allow "-L$to/host" "$@"; }
lib() { host --crate-type rlib --out-dir "$to/host" "$@"; }
macros() {
	host --crate-type proc-macro --out-dir "$to" --extern proc_macro --extern proc_macro2 --extern quote --extern syn \
		"@$out/rustc_cfg" "$@"
}
host_crates() {
	local syn=() f
	for f in clone-impls derive full parsing printing proc-macro visit visit-mut; do syn+=(--cfg "feature=\"$f\""); done
	lib --crate-name proc_macro2 --cfg 'feature="proc-macro"' --cfg wrap_proc_macro "$crate/proc-macro2/lib.rs"
	edition=2018 lib --crate-name quote --extern proc_macro2 --cfg 'feature="proc-macro"' "$crate/quote/lib.rs"
	lib --crate-name syn --extern proc_macro2 --extern quote "${syn[@]}" "$crate/syn/lib.rs"
	macros --crate-name macros "$crate/macros/lib.rs"
	macros --crate-name pin_init_internal --cfg kernel --cfg USE_RUSTC_FEATURES "$crate/pin-init/internal/src/lib.rs"
	macros --crate-name zerocopy_derive --cfg zerocopy_unstable_linux "$crate/zerocopy-derive/lib.rs"
}
host_crates &
host_crates=$!

host --crate-type bin --crate-name target -o "$to/host/target" "$1/scripts/generate_rust_target.rs"
"$to/host/target" <"$out/auto.conf" >"$out/target.json"

bind() {
	local from=$1 result=$2
	shift 2
	# shellcheck disable=SC2086
	$BINDGEN "$from" "$@" --rust-target 1.85 --use-core --with-derive-default --ctypes-prefix ffi --no-layout-tests \
		--no-debug '.*' --enable-function-attribute-detection -o "$to/bindings/$result" -- \
		$C_FLAGS "-I$here" "-I$crate" -fno-builtin -D__BINDGEN__ -DMODULE
}
mapfile -t parameters < <(grep -Ev '^(#|$)' "$crate/bindgen_parameters" | xargs -n1)
bind "$here/bindings.h" bindings_generated.rs "${parameters[@]}"
bind "$here/helpers.c" bindings_helpers_generated.rs --blocklist-type '.*' --allowlist-var '' \
	--allowlist-function 'rust_helper_.*'
sed -Ei -e 's/pub const RUST_CONST_HELPER_([a-zA-Z0-9_]*)/pub const \1/g' \
	-e 's/^( *)pub fn _?(printk|seq_printf)\(/\1#[link_name="srp_shim_\2"]\n&/' "$to/bindings/bindings_generated.rs"
sed -Ei 's/pub fn rust_helper_([a-zA-Z0-9_]*)/#[link_name="rust_helper_\1"]\n    pub fn \1/g' \
	"$to/bindings/bindings_helpers_generated.rs"

# `files` lists the files and directories taken from the kernel crate. The others are ours, or empty.
listed() {
	local f=$1
	while ! grep -qxF -e "$f" "$here/files"; do
		f=${f%/}
		[[ $f == */* ]] || return 1
		f=${f%/*}/
	done
}
while read -r f; do
	mkdir -p "$to/kernel/$(dirname "$f")"
	if listed "$f"; then cp "$crate/kernel/$f" "$to/kernel/$f"; else : >"$to/kernel/$f"; fi
done < <(cd "$crate/kernel" && find . -name '*.rs' -printf '%P\n')
cp -rL "$here/kernel" "$to"
cp "$here/static_branch" "$to/kernel/generated_arch_static_branch_asm.rs"

module() {
	local name=$1
	shift
	# shellcheck disable=SC2086
	$RUSTC $RUST_FLAGS "--target=$out/target.json" "@$out/rustc_cfg" "-L$to" --sysroot=/dev/null -Zunstable-options \
		--cap-lints=allow --crate-type rlib --crate-name "$name" --out-dir "$to" --emit="metadata=$to/lib$name.rmeta" \
		--emit="llvm-bc=$to/$name.bc" "$@"
}
module core --cfg no_fp_fmt_parse "$($RUSTC --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs"
module compiler_builtins "$crate/compiler_builtins.rs"
module ffi "$crate/ffi.rs"
module build_error "$crate/build_error.rs"
CARGO_PKG_VERSION=0 module zerocopy --cfg no_fp_fmt_parse "$crate/zerocopy/src/lib.rs"
wait "$host_crates"
module pin_init --extern pin_init_internal --extern macros --cfg kernel --cfg USE_RUSTC_FEATURES \
	"$crate/pin-init/src/lib.rs"
module bindings --extern ffi --extern pin_init "$crate/bindings/lib.rs"
echo 'pub use bindings::*;' >"$to/uapi.rs"
module uapi --extern bindings -Zcrate-attr=no_std "$to/uapi.rs"
module kernel --extern ffi --extern pin_init --extern build_error --extern macros --extern bindings --extern uapi \
	--extern zerocopy --extern zerocopy_derive "$to/kernel/lib.rs"
rm -rf "$to/host"
