#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# make rust-analyzer: creates rust-project.json here with the kernel's script, with the paths of this machine.
. "$(dirname "$0")/lib.sh"

pick_series
root=$("$top/ci/root.sh") linux=$("$top/ci/linux.sh") build=$("$top/ci/kernel.sh" stock) out=$built/stock
"$top/ci/module.sh" stock "$out" >&2
in_root "$root" "$linux/source:/linux:ro" "$build:/build:ro" "$top:/srp:ro" "$out:/out" -- bash -euc '
	eval "make -s -C /linux O=/build M=/srp MO=/out $1 rust-analyzer"' rust-analyzer "$(make_flags stock)" >&2
# The script knows neither the module's options nor its bindings.
python3 - "$out" "$top/rust-project.json" "/linux=$linux/source" "/build=$build" "/srp=$top" "/out=$out" \
	"/usr=$root/usr" <<'EOF'
import json, re, sys
out, to, *folders = sys.argv[1:]
places = dict(f.split("=", 1) for f in folders)

def here(value):
    if isinstance(value, dict):
        return {k: here(v) for k, v in value.items()}
    if isinstance(value, list):
        return [here(v) for v in value]
    if isinstance(value, str) and (m := re.match(r"(/\w+)(?=/|$)", value)):
        return places.get(m[1], m[1]) + value[m.end():]
    return value

with open(f"{out}/rust-project.json") as f:
    project = json.load(f)
with open(f"{out}/rust/ib_srp/.main.o.cmd") as f:
    options = re.findall(r"--cfg (SRP_\w+)", f.readline())
# The script treats each file in a Kbuild as a crate. No crate depends on one of these.
roots = ("/srp/rust/ib_srp/main.rs", "/srp/rust/ib_vfab/main.rs")
crates = project["crates"]
project["crates"] = [c for c in crates if not c["root_module"].startswith("/srp/") or c["root_module"] in roots]
for crate in project["crates"]:
    if crate["root_module"] in roots:
        crate["cfg"] = crate.get("cfg", []) + options
        crate.setdefault("env", {})["SRP_OBJ"] = "/out/rust"
with open(to, "w") as f:
    json.dump(here(project), f, indent=1)
EOF
echo "$top/rust-project.json"
