# SPDX-License-Identifier: GPL-2.0
# own PROGRAM...: from now on each process of a program in the folder above the tests has copies of its own of the
# program and its libraries. QEMU translates a page of code once, at whatever addresses processes have it, so roles.c
# tells two processes apart only if their pages differ.
own() {
	local p
	for p; do
		mv "$here/../$p" "$here/../$p.shared"
		printf '#!/bin/bash\nexec unshare --mount bash /srp/papers-own.sh %q "$@"\n' "$here/../$p.shared" >"$here/../$p"
		chmod +x "$here/../$p" "$here/../$p.shared"
	done
}
# Sourced, this file only defines the function.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
dir=$(mktemp -d /dev/shm/own.XXXXXX)
for file in "$1" $(LD_TRACE_LOADED_OBJECTS=1 "$1" | grep -o '/[^ ]*') /usr/lib/*/libibverbs/*.so; do
	file=$(readlink -f "$file")
	cp "$file" $dir/ && mount --bind $dir/${file##*/} "$file" || exit
done
# The mounts stay.
rm -r $dir
exec "$@"
