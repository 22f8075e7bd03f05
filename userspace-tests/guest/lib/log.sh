# SPDX-License-Identifier: GPL-2.0
# The kernel log since a test began.

mark() { marker="guest-test $name $$ $RANDOM$RANDOM"; echo "$marker" >/dev/kmsg; }
log_since() { dmesg | awk -v m="$marker" 'f {print} index($0, m) {f = 1}'; }

# Lines that no test may cause: extended regular expressions, and all of them as one.
kernel_reports=(
	'BUG:'
	'WARNING:'
	'Oops'
	'general protection fault'
	'Unable to handle'
	'possible recursive locking'
	'circular locking'
	'inconsistent lock state'
	'suspicious RCU'
	'bad unlock balance'
	'held lock freed'
	'sleeping function called'
	'scheduling while atomic'
	'list_(add|del) corruption'
	'ODEBUG'
	'refcount_t'
	'KASAN'
	'UBSAN'
	'blocked for more than'
	'soft lockup'
	'hard LOCKUP'
	'self-detected stall'
	'detected stalls'
	'kernel panic'
	'panicked at'
	'rust_kernel: panic'
	'workqueue lockup'
	'unreferenced object'
	'DEBUG_LOCKS_WARN_ON'
)
printf -v reports '|%s' "${kernel_reports[@]}"
reports=${reports:1}

no_reports() {
	local found
	found=$(log_since | grep -E "$reports" | grep -v 'guest-test' | head -n 5)
	[ -z "$found" ] || fail "kernel report: $found"
}

# What the target and the soft devices say all the time.
chatter='MODE SENSE: unimplemented|receiving failed for ioctx|speed is unknown|callbacks suppressed|Received SRP_LOGIN_REQ'

# logged REGEX: the log since the mark has such a line (printk may be late).
# All is read: with pipefail, `grep -q` fails when it has found what it wants before awk has written all.
log_has() { log_since | grep -Ei -- "$1" >/dev/null; }
logged() { within 5 "a log line with '$1'" log_has "$1"; }
