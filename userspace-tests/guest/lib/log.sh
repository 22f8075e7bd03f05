# SPDX-License-Identifier: GPL-2.0
# The kernel log since a test began.

mark() { marker="guest-test $name $$ $RANDOM$RANDOM"; echo "$marker" >/dev/kmsg; }
# log_since: prints the log since the mark, or the whole log if the mark was overwritten.
log_since() {
	dmesg | awk -v m="$marker" '{line[n++] = $0} index($0, m) {n = 0} END {for (i = 0; i < n; i++) print line[i]}'
}

# kernel_reports: filters the lines that no test may cause, according to `kernel-reports`.
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

# Messages that the target and the soft devices print regularly.
chatter='MODE SENSE: unimplemented|receiving failed for ioctx|speed is unknown|callbacks suppressed'
chatter+='|Received SRP_LOGIN_REQ'

# logged REGEX: waits for a matching line in the log since the mark (printk may be late). All input is read: `grep -q`
# would exit at the first match, and awk would fail with SIGPIPE, which pipefail reports.
log_has() { log_since | grep -Ei -- "$1" >/dev/null; }
logged() { within 5 "a log line with '$1'" log_has "$1"; }
