#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A target that receives commands at one port and sends data and responses through another one (answers_from).
#
# deadline: 300
# takes: 109
# runs: rxe kasan long kmemleak=on
# runs: vfab kasan long LONG=
# runs: rxe rt long LONG=
. "$(dirname "$0")/lib.sh"
. "$here/odd.sh"

begin
odd_target
rust_driver || skip "the C driver has no answers_from"
files=/sys/class/scsi_host/
answering() { [ "$(<$files$host/answer_channels)" = $1 ]; }
# Commands of each channel; the answer channel is last.
counted() { read -ra counts <$files$host/statistics/commands; }

enter ,ch_count=2,answers_from=$dest:$odd_answers
is "addresses" $files$host/answers_from "$dest:$odd_answers"
answering 1 || fail "no answer channel"
is "sessions" $files$host/ch_count 2
counted
channels=$((${#counts[@]} - 1)) before=${counts[-1]}
[ $before -gt 0 ] || fail "the scan was answered by the target: ${counts[*]}"
listen
verified 2 --numjobs=2 --offset_increment=4m --size=1m
verified 2 --numjobs=2 --offset_increment=4m --size=1m --bs=64k
told ended
counted
[ $((counts[-1] - before)) -gt 100 ] || fail "answers: ${counts[*]}"
read -ra immediate <$files$host/statistics/way_immediate
[[ ${immediate[*]} =~ ^[0\ ]*$ ]] || fail "immediate data: ${immediate[*]}"
stayed "I/O"
say "$channels channels, ${counts[-1]} answers elsewhere"

# The target may also respond itself, concurrently with the other node.
tell answers here
block write
tell answers there
block read
verified 2 --numjobs=2 --offset_increment=4m --size=1m &
fio=$!
for ((i = 0; i < 20; i++)); do tell answers here; tell answers there; done
reap 110 "fio" $fio || exit 1
stayed "two who answer"
block write

# A duplicate or an unknown tag: the session reconnects, and the answer channel too.
for action in twice astray; do violated $action 15 "the answer channel after an answer $action" answering 1; done

# The response to an abort arrives on the first channel, then that to the command on the answer channel.
impatient
listen
tell tmf 0 keep
tell on 2a hold
block write
has_said 'task channel=[01] function=01' || fail "no abort: $(tail -n 5 $tmp/odd)"
tell answer
sleep 0.5
block read
told ended task=0x01
stayed "a late answer"
echo 30 >/sys/block/${dev#/dev/}/device/timeout

# The answer channel ends with a command in flight. The session ends too, and reconnects.
sleep 1.5
listen
tell on 28 hold
block read &
reader=$!
hears "the read" 'command channel=[01] opcode=28 .*held' 10
mark
tell on 28 normal
tell disconnect answers
reap 60 "the read" $reader || exit 1
logged 'the answer channel to .* is lost'
within 15 "the answer channel" answering 1
verified 2 --numjobs=2 --offset_increment=4m --size=1m
told ended lost="connection event: disconnected"
no_complaints
logout $host
clean

# An answer channel that grants credits is rejected; the session continues without it.
mark
tell login bytes 4 00000020
login 0 ,ch_count=1,answers_from=$dest:$odd_answers
logged 'only 0 of 1 answer channels connected: bad login response: request limit 32 on an answer channel'
answering 0 || fail "an answer channel with credits"
tell login ok
within 10 "the answer channel" answering 1
logout $host
clean
ok "$kind"
