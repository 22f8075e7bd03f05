#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lint.sh clippy [KERNEL...]|fmt|fmt-check|doc|docs|unsafe|cycles|abi|reasons|reports|bounds|pages|drawings|lab: checks
# the source with the tools of the toolchain root. `all` runs all of them except `doc` and `docs`. SRC selects another
# source tree.
. "$(dirname "$0")/lib.sh"
src=${SRC:-$top}

# The long set looks at more kernels: dead code or a useless cast in one may be needed in the other.
clippy() {
	local k log bad=0
	pick_series
	[ $# -gt 0 ] || { make_srpctl srpctl-clippy || bad=1; set -- stock ${LONG:+kasan arm64-16k}; }
	for k; do
		log=$(mktemp)
		rm -f "$built/clippy-$k/rust/"ib_{srp,vfab}/main.o
		"$top/ci/module.sh" "$k" "$built/clippy-$k" "$src" modules CLIPPY=1 SRP_KUNIT= SRP_VFAB=1 >"$log" 2>&1 || bad=1
		! grep -Eq '^(warning|error)' "$log" || bad=1
		[ $bad = 0 ] || grep -E -A 1000 '^(warning|error)' "$log" || tail -n 20 "$log"
		rm -f "$log"
	done
	[ $bad = 0 ] && echo "clippy: no warning for Linux $SERIES"
}

# Formats according to rustfmt.toml.
fmt() {
	in_root "$("$top/ci/root.sh")" "$src:/srp" -- bash -euc '
		cd /srp
		find rust storage userspace-tests tools -name "*.rs" -not -path "*/target/*" -print0 |
			xargs -0 rustfmt --color never "$@"' fmt "$@"
}

# rustfmt leaves comments as they are: none may be over 100 columns.
narrow() {
	local wide
	wide=$(find "$src"/{rust,storage,userspace-tests,tools} -name "*.rs" -not -path "*/target/*" -print0 |
		xargs -0 awk '/^[ \t]*\/\// && length > 100 { print FILENAME ":" FNR }')
	[ -z "$wide" ] || { echo "comments over 100 columns:"; echo "$wide"; return 1; }
}

# Runs rustdoc with the kernel's rustc flags for the module. The examples are compiled as users of the module's crate,
# but not run.
doc() {
	local root linux build out log
	pick_series
	out=$built/kasan
	root=$("$top/ci/root.sh") linux=$("$top/ci/linux.sh") build=$("$top/ci/kernel.sh" kasan)
	"$top/ci/module.sh" kasan "$out" "$src" >&2
	log=$(mktemp)
	rm -rf "$top/build/doc"
	mkdir -p "$top/build/doc"
	in_root "$root" "$linux/source:/linux:ro" "$build:/build:ro" "$src:/srp:ro" "$out:/out" "$top/build/doc:/doc" \
		-- bash -euc '
		cd /out
		rustc=$(sed -n "1s/^savedcmd_[^ ]* := \([^;]*\).*/\1/p" rust/ib_srp/.main.o.cmd)
		rustc=$(sed "s/ --emit=[^ ]*//g; s/ --out-dir [^ ]*//g; s/ -Zbinary_dep_depinfo=y//" <<<"$rustc --crate-name ib_srp")
		rustdoc=$(sed "s/ rustc / rustdoc /; s/ --crate-type rlib//" <<<"$rustc")
		[ -e /build/include/config/auto.conf ]
		export RUSTC_BOOTSTRAP=1 SRP_OBJ=/out/rust
		eval "$rustdoc --document-private-items --cap-lints warn \
			-Arustdoc::private_intra_doc_links -Wrustdoc::broken_intra_doc_links -Wrustdoc::bare_urls \
			-Wrustdoc::invalid_html_tags -o /doc"
		eval "$rustc --cap-lints allow --emit=metadata --out-dir /tmp"
		eval "$rustdoc --cap-lints allow --test --no-run --extern ib_srp=/tmp/libib_srp.rmeta"' >"$log" 2>&1 || {
			cat "$log"
			return 1
		}
	grep -Ev '^$|^running|^test .* (ok|ignored)$' "$log" || true
	! grep -Eq '^(warning|error)' "$log" && echo "doc: build/doc/ib_srp/index.html"
}

# The driver has no unsafe code. In the abstractions each use needs a SAFETY comment. clippy checks this too, except
# inside macros.
unsafe() {
	local bad=0 found n
	found=$(grep -rnw unsafe "$src/rust/ib_srp" --include='*.rs' | grep -Ev '^[^:]*:[0-9]+:[[:space:]]*//' || true)
	if [ -n "$found" ]; then echo "unsafe code in the driver:"; echo "$found"; bad=1; fi
	found=$(grep -rnE 'allow\(.*(undocumented_unsafe|unsafe_op_in|missing_safety_doc)' "$src/rust" \
		--include='*.rs' || true)
	if [ -n "$found" ]; then echo "a lint about unsafe code is off:"; echo "$found"; bad=1; fi
	found=$(find "$src/rust" -name '*.rs' -print0 | xargs -0 awk '
		FNR == 1 { since = 99 }
		/^[[:space:]]*\/\/.*SAFETY:/ { since = 0; next }
		/^[[:space:]]*\/\// { next }
		/(^|[^[:alnum:]_"`])unsafe ([{]|impl)/ {
			total++
			if (since > 8) print FILENAME ":" FNR ": " $0
			since = 99
			next
		}
		{ since++ }
		END { print "total " total + 0 }')
	n=${found##*total }
	found=$(grep -v '^total ' <<<"$found" || true)
	if [ -n "$found" ]; then echo "no SAFETY comment right above:"; echo "$found"; bad=1; fi
	[ $bad = 0 ] && echo "unsafe: none in rust/ib_srp, $n elsewhere, each with its reason"
}

# The differences that the contract test allows must be exactly those in the documentation.
abi() {
	local known told
	known=$(grep -v '^#' "$src/userspace-tests/guest/contract.tsv" | cut -f 1 | sort -u)
	told=$(sed -n '/^## Differences/,$s/^| `\([a-z0-9-]*\)` |.*/\1/p' "$src/docs/abi.md" | sort)
	[ "$known" = "$told" ] || {
		echo "contract.tsv (<) and docs/abi.md (>) differ:"
		diff <(echo "$known") <(echo "$told")
		return 1
	}
	echo "abi: $(wc -l <<<"$told") differences from the C driver, each explained"
}

# A module may use only modules below it.
cycles() { in_root "$("$top/ci/root.sh")" "$src:/srp:ro" -- python3 /srp/ci/cycles.py /srp; }

# Every message of the driver must be documented.
reasons() { in_root "$("$top/ci/root.sh")" "$src:/srp:ro" -- python3 /srp/ci/reasons.py /srp; }

# Everything that reads the log must recognize the kernel's reports.
reports() {
	local linux; linux=$("$top/ci/linux.sh")
	in_root "$("$top/ci/root.sh")" "$src:/srp:ro" "$linux/source:/linux:ro" -- \
		env PYTHONPATH=/srp/ci python3 -B -m lab.reports /linux
}

# No test may wait forever.
bounds() {
	local found
	found=$(cd "$src/userspace-tests" && awk -f "$top/ci/bounds.awk" guest/*.sh guest/lib/*.sh bench/*.sh node/*)
	[ -z "$found" ] || { echo "$found"; return 1; }
	echo "bounds: each wait of a test has one"
}

# All files and names mentioned on the developers' pages must exist in the tree.
pages() { in_root "$("$top/ci/root.sh")" "$src:/srp:ro" -- python3 /srp/ci/pages.py /srp; }

# The kept pictures must be those that their sources make. `docs` makes them.
drawings() { in_root "$("$top/ci/root.sh")" "$src:/srp" -- python3 -B /srp/ci/drawings.py /srp "${1:-check}"; }

# The tests of ci/lab, among them one that reads the headers of all guest tests.
lab_tests() {
	in_root "$("$top/ci/root.sh")" "$src:/srp:ro" -- env -C /srp/ci python3 -B -m unittest discover -b -t . -s lab/tests
}

all() {
	local check bad=0
	for check in fmt-check lab unsafe cycles abi reasons reports bounds pages drawings clippy; do
		"$0" $check || bad=1
	done
	[ $bad = 0 ]
}

case ${1-} in
all|doc|unsafe|cycles|abi|reasons|reports|bounds|pages|drawings) "$1" ;;
docs) drawings make ;;
lab) lab_tests ;;
clippy) clippy "${@:2}" ;;
fmt) fmt ;;
fmt-check) fmt --check && narrow && echo "fmt: clean" ;;
*) die "usage: lint.sh all|clippy|fmt|fmt-check|doc|docs|unsafe|cycles|abi|reasons|reports|bounds|pages|drawings|lab" ;;
esac
