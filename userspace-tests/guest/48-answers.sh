#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Responses that are duplicated, have an unknown tag, or arrive after an abort or a reset; response codes of task
# management; manual resets.
#
# deadline: 300
# takes: 152
# runs: rxe kasan fast long kmemleak=on
# runs: siw kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt rtdebug long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
undo() { echo 5 >/sys/module/ib_srp/parameters/keep_alive; } 2>/dev/null
odd_target
rust_driver || skip "the C driver believes it all"
enter ,ch_count=1
block write

# A duplicate and an unknown tag violate the protocol: the session reconnects, and the command is completed exactly
# once.
for action in twice astray; do violated $action; done
counters=/sys/class/scsi_host/$host/statistics
is "violations" $counters/violations 2
is "losses" $counters/connections_lost 2
grep -qE '^[0-9]+ connection lost: protocol violation: tag 0x' $counters/../last_error ||
	fail "last_error is '$(<$counters/../last_error)'"
listen
tell on 2a busy 3
block write
equal "writes until one was done" $(times 'command .*opcode=2a') 4
block read
told ended
stayed "BUSY"

# A target that confirms an abort, and one that responds to the aborted command anyway.
impatient
for keep in "" " keep"; do
	listen
	tell tmf 0$keep
	tell on 2a hold
	block write
	has_said 'task channel=0 function=01' || fail "no abort: $(tail -n 5 $tmp/odd)"
	equal "writes until one was done" $(times 'command .*opcode=2a') 2
	[ -z "$keep" ] || { tell answer; sleep 0.5; }
	block read
	told ended task=0x01
	stayed "an abort"
done
is "aborts" $counters/aborts 2

# Only response code 0 means that the target has stopped accessing the command.
for code in 2 4 5 200; do
	listen
	tell tmf $code
	tell on 2a hold
	block write &
	writer=$!
	hears "an abort" 'task channel=0 function=01' 10
	hears "a reset of the unit" 'task channel=0 function=08' 10
	# The response is not trusted, so the session reconnects.
	hears "another login" 'login multi=0' 30
	reap 60 "the write" $writer || exit 1
	told ended lost="reset by the error handler"
	within 5 "running" running
	say "code $code was not taken for success"
done

# The error handler's TEST UNIT READY reuses the tag of the timed-out command; then the response to that command
# arrives. The target refuses the abort and performs the reset.
yes old | head -c 4096 >$tmp/wrote
listen
tell abort 5
tell tmf 0 keep
tell on 2a hold
tell on 00 hold
# The time limit of the TEST UNIT READY.
echo 10 >/sys/block/${dev#/dev/}/device/eh_timeout
timeout 60 dd if=$tmp/wrote of=$dev bs=4k count=1 oflag=direct conv=notrunc 2>$tmp/dd &
writer=$!
hears "an abort" 'task channel=0 function=01' 10
hears "the reset of the unit" 'task channel=0 function=08' 10
hears "the test" 'command channel=0 opcode=00 .*held' 10
tell answer
reap 60 "the write" $writer || fail "the write: $(<$tmp/dd)"
block read
told ended task=0x08
stayed "a late answer"
say "an old answer did not end the test of the error handler"

# Manual resets. There is no handler for target and bus resets, so they reset the whole session, or do nothing with -N.
tell abort -1
tell tmf 0
echo 30 >/sys/block/${dev#/dev/}/device/timeout
sleep 1.5
for what in -d -t -b -H; do
	verified 4 &
	fio=$!
	sleep 1
	mark_said
	timeout 30 sg_reset $what $dev >$tmp/err 2>&1 || fail "sg_reset $what: $(<$tmp/err)"
	if [ $what = -d ]; then
		has_said 'function=08'
	else
		has_said 'login multi=0'
	fi || fail "sg_reset $what: $(tail -n 5 $tmp/odd)"
	running || fail "not running after sg_reset $what"
	reap 110 "fio" $fio || exit 1
done
mark_said
for what in -t -b; do
	timeout 30 sg_reset -N $what $dev >$tmp/err 2>&1
	rc=$?
	[ $rc != 0 ] && [ $rc != 124 ] || fail "sg_reset -N $what: status $rc"
	stayed "sg_reset -N $what"
done

# If the connection ends during the wait of 5 s for an abort, the wait ends, too.
impatient
listen
tell tmf drop
tell on 2a hold
block write &
writer=$!
hears "an abort" 'task channel=0 function=01' 10
clock; t=$now
tell disconnect
hears "another login" 'login multi=0' 3
reap 60 "the write" $writer || exit 1
clock
in_time "the write after the end of the connection" $t $now 4000000
t=$(((now - t) / 1000))
told ended asked=0x01 task_done=status=-107 lost=
within 5 "running" running
say "the end of the connection ended the wait for an abort, the write $t ms later"
# A connection shorter than a second would not be replaced immediately.
sleep 1.5

# With a deadline the error handler skips to the last step.
echo 3 >/sys/class/scsi_host/$host/eh_deadline || fail "eh_deadline"
tell tmf drop
tell on 2a hold
clock; t=$now
block write
clock
has_said 'task channel=0 function=01' && ! has_said 'function=08' || fail "steps: $(tail -n 5 $tmp/odd)"
# 2 s for the command, 5 s for the abort, and a login.
in_time "the write with eh_deadline" $t $now 13000000
say "eh_deadline: $(ms $((now - t)))"
within 10 "running" running
block read
logout $host
clean

# A LUN reset also terminates the keep-alive probe, so the driver does not wait for its response.
echo 3 >/sys/module/ib_srp/parameters/keep_alive
enter ,ch_count=1
tell abort -1
tell tmf 0
tell on 12 hold
hears "a probe" 'command channel=0 opcode=12 .*held' 15
timeout 30 sg_reset -d $dev >$tmp/err 2>&1 || fail "sg_reset -d: $(<$tmp/err)"
has_said 'function=08' || fail "no reset of the unit"
mark_said
hears "another probe" 'command channel=0 opcode=12' 15
sleep 7
stayed "a probe that was reset"
[ $(times 'opcode=12') -ge 2 ] || fail "no more probes: $(tail -n 5 $tmp/odd)"
echo 5 >/sys/module/ib_srp/parameters/keep_alive
logout $host
clean
no_complaints
ok "$kind"
