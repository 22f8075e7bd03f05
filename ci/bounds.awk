# SPDX-License-Identifier: GPL-2.0
# Reports endless waits in the shell scripts of tests: a `wait` (use `reap`), a loop without a counter, a list or a
# check of the time, a command that never ends, a change by dmsetup, which waits for udev (use `dm`). Reports tests
# without a deadline, too. `within` and `reap` are in lib/time.sh, `dm` in lib/backend.sh, the deadline is in lib.sh.

function bad(what) { print FILENAME ":" FNR ": " what ": " $0 }
function close_loop() { if (loop != "" && !bounded) print loop; loop = "" }
function close_file() {
	close_loop()
	if (test != "" && !deadline) print test ": no deadline"
	if (test != "" && !begun) print test ": no `begin`"
}

BEGIN { command = "(^|[;&|{(!]|then|do|else)[ \t]*" }
FNR == 1 {
	close_file()
	deadline = begun = 0
	test = FILENAME ~ /\/[0-9][0-9]-[^\/]*$/ ? FILENAME : ""
}
END { close_file() }

/^# deadline: [0-9]/ { deadline = 1 }
/^begin$/ { begun = 1 }
/^[ \t]*#/ || FILENAME ~ /lib\/time\.sh$/ { next }
{
	code = $0
	gsub(/"([^"\\]|\\.)*"/, "", code)
	gsub(/\047[^\047]*\047/, "", code)
}
loop != "" {
	if (code ~ /SECONDS|\$now/) bounded = 1
	match($0, /^[ \t]*/)
	if (RLENGTH <= indent && code ~ /^[ \t]*done/) close_loop()
}
code ~ command "wait([ \t;)]|$)" && FILENAME !~ /guest\/lib\.sh$/ { bad("`wait` in the place of `reap`") }
code ~ command "dmsetup (create|remove|resume|suspend|message|mknodes)" && code !~ /--noudevsync/ {
	bad("`dmsetup` in the place of `dm`")
}
code ~ command "(while|until) [^-=]" {
	if (code ~ /(while|until) (IFS=[^ ]* )?read |\$#|SECONDS|\$now/ || $0 ~ /while \[ "\$1" != /) next
	if (code ~ /[; \t]done/) {
		bad("a loop without a bound")
		next
	}
	close_loop()
	match($0, /^[ \t]*/)
	indent = RLENGTH
	bounded = 0
	loop = FILENAME ":" FNR ": a loop without a bound: " $0
}
code ~ /for \(\([^;]*;[ \t]*;/ { bad("a loop without a bound") }
code ~ /tail (-[a-zA-Z] )*-[fF]|--follow|sleep inf/ && code !~ /timeout / { bad("it never ends") }
