# SPDX-License-Identifier: GPL-2.0
# The kernel log since a test began.

mark() { marker="guest-test $name $$ $RANDOM$RANDOM"; echo "$marker" >/dev/kmsg; }
# Without the mark, which the log has lost then, all of it.
log_since() {
	dmesg | awk -v m="$marker" '{line[n++] = $0} index($0, m) {n = 0} END {for (i = 0; i < n; i++) print line[i]}'
}

# kernel_reports: of the lines that it reads those that no test may cause, as `kernel-reports` has them.
reports= harmless=
while read -r line; do
	case $line in ''|'#'*) ;; '! '*) harmless+="|${line#! }" ;; *) reports+="|$line" ;; esac
done <"$here/lib/kernel-reports"
kernel_reports() { grep -E -- "${reports:1}" | grep -Ev -- "${harmless:1}"; }

no_reports() {
	local found
	found=$(log_since | kernel_reports | head -n 5)
	[ -z "$found" ] || fail "kernel report: $found"
}

# What the target and the soft devices say all the time.
chatter='MODE SENSE: unimplemented|receiving failed for ioctx|speed is unknown|callbacks suppressed|Received SRP_LOGIN_REQ'

# logged REGEX: the log since the mark has such a line (printk may be late).
# All is read: with pipefail, `grep -q` fails when it has found what it wants before awk has written all.
log_has() { log_since | grep -Ei -- "$1" >/dev/null; }
logged() { within 5 "a log line with '$1'" log_has "$1"; }
