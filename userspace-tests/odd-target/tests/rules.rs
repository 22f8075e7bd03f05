// SPDX-License-Identifier: GPL-2.0

//! The rules, around the engine of `srp-target`.

mod testbed;

use std::time::{Duration, Instant};

use odd_target::{
    orders::Order,
    rules::{Port, CREDITS},
};
use srp_target::{
    proto::{
        cmd::Direction,
        login_iu::{LoginReqRdma, LoginRsp, MultiChannel, Requested},
        opcode,
        rsp::Rsp,
        tmf::Function,
    },
    target::ChannelId,
};

use testbed::{requested, Testbed, ANSWERS, CHANNEL};

const GOOD: (u8, i32, bool) = (0, 1, false);
const CHECK: (u8, i32, bool) = (2, 1, true);

#[test]
fn without_a_rule_the_engine_responds() {
    let mut testbed = Testbed::logged_in();
    testbed.fill(5);
    let write = testbed.block(0x2a);
    testbed.fill(0xee);
    let read = testbed.block(0x28);
    assert_eq!(testbed.answers(write), [GOOD]);
    assert_eq!(testbed.answers(read), [GOOD]);
    assert_eq!(testbed.memory[..4096], [5; 4096]);
    assert_eq!(testbed.memory[4096], 0xee);
    assert!(testbed.said("command channel=0 opcode=2a lun=0 tag=0000000000000002"));
    assert_eq!(testbed.received, 2);
    // The disk has no mode pages.
    let sense = testbed.none(0x1a);
    assert_eq!(testbed.answers(sense), [CHECK]);
}

#[test]
fn a_login_is_as_the_driver_wants_it() {
    let mut testbed = Testbed::new();
    let what = Requested {
        immediate: 8192,
        ..requested(MultiChannel::Single)
    };
    testbed
        .rules
        .login(CHANNEL, LoginReqRdma::new(&what).as_bytes(), Port::Commands);
    testbed.pump();
    assert_eq!(testbed.said, ["login multi=0 length=56"]);
    let rsp = LoginRsp::parse(&testbed.accepted[&CHANNEL]).unwrap();
    rsp.check(&what).unwrap();
    let bytes = &testbed.accepted[&CHANNEL];
    assert_eq!(bytes[4..8], CREDITS.to_be_bytes());
    assert_eq!((bytes.len(), bytes[26]), (52, 0));
    testbed.rules.established(CHANNEL);
    testbed.pump();
    assert_eq!(testbed.said.last().unwrap(), "channel=0");
}

#[test]
fn logins_are_altered() {
    let mut testbed = Testbed::new();
    testbed.tell("login silent");
    testbed.login(1, MultiChannel::Single, Port::Commands);
    testbed.tell("login reject 4711");
    testbed.login(2, MultiChannel::Single, Port::Commands);
    assert!(testbed.accepted.is_empty());
    let rejected = &testbed.rejected[&2];
    assert_eq!(
        (testbed.rejected.len(), rejected[0]),
        (1, opcode::LOGIN_REJ)
    );
    assert_eq!(rejected[4..8], [0, 0, 0x47, 0x11]);
    assert_eq!(rejected[8..16], 77u64.to_be_bytes());
    testbed.tell("login bytes 24 0004");
    testbed.login(3, MultiChannel::Single, Port::Commands);
    assert_eq!(testbed.accepted[&3][22..28], [0, 64, 0, 4, 0, 0]);
    testbed.tell("login length 20");
    testbed.login(4, MultiChannel::Multi, Port::Commands);
    assert_eq!(testbed.accepted[&4].len(), 20);
    testbed.tell("login only 2");
    testbed.login(5, MultiChannel::Multi, Port::Commands);
    assert_eq!(testbed.rejected[&5][4..8], [0, 1, 0, 1]);
    testbed.rules.ended(3);
    testbed.login(6, MultiChannel::Multi, Port::Commands);
    assert!(testbed.accepted.contains_key(&6));
    // The lowest free number is used again.
    testbed.rules.established(6);
    testbed.tell("login break");
    testbed.rules.established(4);
    testbed.pump();
    assert!(
        testbed.said("gone channel=0") && testbed.said("channel=0") && testbed.said("channel=1")
    );
    let (channel, message) = testbed.sent.last().unwrap();
    assert_eq!((*channel, message[0]), (6, opcode::CRED_REQ));
    assert_eq!(message[4..8], i32::MAX.to_be_bytes());
}

#[test]
fn held_commands() {
    let mut testbed = Testbed::logged_in();
    testbed.fill(5);
    testbed.tell("on 2a hold 2");
    let writes = [testbed.block(0x2a), testbed.block(0x2a)];
    assert!(testbed.said("tag=0000000000000002 held"));
    assert_eq!((testbed.sent.len(), testbed.received), (0, 0));
    testbed.tell("answer");
    assert_eq!(writes.map(|tag| testbed.answers(tag)), [[GOOD], [GOOD]]);
    assert_eq!((testbed.moved.len(), testbed.received), (0, 2));
    // The rule is used up.
    let write = testbed.block(0x2a);
    assert_eq!(testbed.answers(write), [GOOD]);
    testbed.tell("on 28 hold");
    let read = testbed.block(0x28);
    testbed.fill(0xee);
    testbed.tell("answer data");
    assert_eq!(testbed.answers(read), [GOOD]);
    assert_eq!(testbed.memory[..4096], [5; 4096]);
    // The end of a channel is the end of its commands.
    testbed.tell("on 28 hold");
    testbed.block(0x28);
    testbed.rules.ended(CHANNEL);
    testbed.sent.clear();
    testbed.tell("answer");
    assert!(testbed.sent.is_empty());
}

#[test]
fn duplicates_and_unknown_tags() {
    let mut testbed = Testbed::logged_in();
    testbed.tell("on 28 twice");
    let read = testbed.block(0x28);
    assert_eq!(testbed.answers(read), [GOOD, GOOD]);
    testbed.tell("on 28 astray");
    let read = testbed.block(0x28);
    assert_eq!(testbed.answers(read), []);
    assert_eq!(testbed.answers(read ^ 1 << 40), [GOOD]);
    assert_eq!(testbed.moved.len(), 2);
}

#[test]
fn busy_short_and_check() {
    let mut testbed = Testbed::logged_in();
    testbed.tell("on 2a busy");
    let write = testbed.block(0x2a);
    assert_eq!(testbed.answers(write), [(8, 1, false)]);

    testbed.tell("on 4d short:e1e2e3");
    testbed.fill(0xee);
    let log = testbed.send(
        &[0x4d, 0, 0, 0, 0, 0, 0, 16, 0, 0],
        Direction::FromDevice,
        4096,
    );
    assert_eq!(testbed.answers(log), [GOOD]);
    assert_eq!(testbed.memory[..5], [0xe1, 0xe2, 0xe3, 0xee, 0xee]);
    // No more than the initiator has room for, and nothing without a buffer.
    testbed.tell("on 12 short:a1a2a3 2");
    testbed.send(&[0x12, 0, 0, 0, 2, 0], Direction::FromDevice, 2);
    assert_eq!(testbed.memory[..3], [0xa1, 0xa2, 0xe3]);
    let inquiry = testbed.none(0x12);
    assert_eq!(testbed.answers(inquiry), [GOOD]);

    for (sent, sense, valid) in [(1024, "700003", true), (512, "", false), (0, "70", true)] {
        testbed.fill(0xee);
        testbed.tell(&format!("on 28 check:{sent}:{sense}"));
        let read = testbed.block(0x28);
        assert_eq!(testbed.answers(read), [(2, 1, valid)]);
        let (data, rest) = testbed.memory.split_at(sent);
        assert!(data.iter().all(|b| *b == 0) && rest.iter().all(|b| *b == 0xee));
        let (_, message) = testbed.sent.last().unwrap();
        let residual = message[18] & 0x3c;
        assert_eq!((message.len(), residual), (36 + sense.len() / 2, 0));
    }
    assert_eq!(testbed.received, 7);
}

#[test]
fn a_rule_replaces_the_one_before() {
    let mut testbed = Testbed::logged_in();
    testbed.tell("on 28 hold 40");
    testbed.tell("on 2a busy 40");
    testbed.tell("on 28 busy 1");
    let reads = [testbed.block(0x28), testbed.block(0x28)];
    assert_eq!(reads.map(|tag| testbed.answers(tag)[0].0), [8, 0]);
    testbed.tell("on 2a normal");
    let write = testbed.block(0x2a);
    assert_eq!(testbed.answers(write), [GOOD]);
}

#[test]
fn task_management() {
    let mut testbed = Testbed::logged_in();
    let code = |testbed: &Testbed, tag| {
        let of_it = |m: &&(ChannelId, Vec<u8>)| Rsp::parse(&m.1).unwrap().tag == tag;
        testbed.sent.iter().find(of_it).map(|(_, m)| m[39])
    };
    // A confirmed abort: the target drops the command, unless the rule says `keep`.
    for (line, answers) in [("tmf 0", 0), ("tmf 0 keep", 1)] {
        testbed.tell(line);
        testbed.tell("on 2a hold");
        let write = testbed.block(0x2a);
        let abort = testbed.manage(Function::AbortTask, write);
        assert_eq!(code(&testbed, abort), Some(0));
        let line = format!("task channel=0 function=01 lun=0 of={write:016x}");
        assert!(testbed.said(&line));
        testbed.tell("answer");
        assert_eq!(testbed.answers(write).len(), answers);
    }
    // A refused abort, or no response to it: the command stays.
    testbed.tell("tmf 0");
    testbed.tell("abort 5");
    testbed.tell("on 2a hold 2");
    let writes = [testbed.block(0x2a), testbed.block(0x2a)];
    let abort = testbed.manage(Function::AbortTask, writes[0]);
    assert_eq!(code(&testbed, abort), Some(5));
    testbed.tell("tmf drop");
    testbed.tell("abort -1");
    let reset = testbed.manage(Function::LunReset, 0);
    assert_eq!(code(&testbed, reset), None);
    testbed.tell("tmf 200");
    let reset = testbed.manage(Function::LunReset, 0);
    assert_eq!(code(&testbed, reset), Some(200));
    testbed.tell("answer");
    assert_eq!(writes.map(|tag| testbed.answers(tag).len()), [1, 1]);
    // A reset ends all commands of the unit.
    testbed.tell("tmf 0");
    testbed.tell("on 2a hold 2");
    let writes = [testbed.block(0x2a), testbed.block(0x2a)];
    let reset = testbed.manage(Function::LunReset, 0);
    assert_eq!(code(&testbed, reset), Some(0));
    testbed.tell("answer");
    assert_eq!(writes.map(|tag| testbed.answers(tag).len()), [0, 0]);
    // Each message has returned its receive buffer.
    assert_eq!(testbed.received, 12);
}

#[test]
fn grants() {
    let mut testbed = Testbed::logged_in();
    let granted = |testbed: &mut Testbed| {
        let tag = testbed.block(0x28);
        testbed.answers(tag)[0].1
    };
    assert_eq!(granted(&mut testbed), 1);
    testbed.tell("grant none");
    assert_eq!(granted(&mut testbed), 0);
    let reset = testbed.manage(Function::LunReset, 0);
    assert_eq!(testbed.answers(reset)[0].1, 0);
    testbed.tell("grant none 1");
    assert_eq!(granted(&mut testbed), 1);
    testbed.tell("grant none 0");
    assert_eq!(granted(&mut testbed), 0);
    testbed.tell("grant every 10");
    let begin = Instant::now();
    assert_eq!(granted(&mut testbed), 0);
    for (seconds, messages) in [(9, 0), (11, 1), (12, 0), (22, 1)] {
        testbed.sent.clear();
        assert!(testbed.rules.tick(begin + Duration::from_secs(seconds)));
        testbed.pump();
        assert_eq!(testbed.sent.len(), messages, "after {seconds} s");
    }
    assert_eq!(
        testbed.sent[0].1[..8],
        [opcode::CRED_REQ, 0, 0, 0, 0, 0, 0, 1]
    );
    testbed.tell("grant all");
    assert!(!testbed.rules.tick(begin + Duration::from_secs(99)));
    assert_eq!(granted(&mut testbed), 1);
}

#[test]
fn more_credits_than_at_the_login() {
    let mut testbed = Testbed::logged_in();
    testbed.tell("send credits 5");
    testbed.tell("on 28 hold 37");
    for _ in 0..37 {
        testbed.block(0x28);
    }
    testbed.sent.clear();
    testbed.tell("answer data");
    assert_eq!(testbed.sent.len(), 37);
    assert!(!testbed.said("session ended") && testbed.left.is_empty());
}

#[test]
fn messages_of_the_target() {
    let mut testbed = Testbed::logged_in();
    for (line, code, at, bytes) in [
        ("send logout 4", opcode::T_LOGOUT, 4, &[0, 0, 0, 4][..]),
        (
            "send credits -7",
            opcode::CRED_REQ,
            4,
            &[255, 255, 255, 249],
        ),
        ("send report 6 3f 0e", opcode::AER_REQ, 28, &[0, 0, 0, 18]),
        ("send report 6 3f 0e", opcode::AER_REQ, 36, &[0x70, 0, 6]),
        ("send report 6 3f 0e", opcode::AER_REQ, 48, &[0x3f, 0x0e]),
    ] {
        assert!(testbed.tell(line));
        let (channel, message) = testbed.sent.last().unwrap();
        assert_eq!((*channel, message[0]), (CHANNEL, code));
        assert_eq!(message[8..16], 0x1234_5678_90ab_cdef_u64.to_be_bytes());
        assert_eq!(&message[at..at + bytes.len()], bytes);
    }
    // The initiator's reply is logged, and its buffer is posted again.
    let mut reply = [0; 16];
    reply[0] = opcode::AER_RSP;
    reply[8..].copy_from_slice(&0x1234_5678_90ab_cdef_u64.to_be_bytes());
    testbed.message(&reply);
    assert!(testbed.said("message channel=0 opcode=42 length=16 tag=1234567890abcdef"));
    assert_eq!(testbed.received, 1);
    testbed.rules.ended(CHANNEL);
    assert!(!testbed.tell("send logout 0"));
    assert!(testbed.said("FAILED: no channel to send to"));
}

#[test]
fn receive_buffers_are_kept() {
    let mut testbed = Testbed::logged_in();
    testbed.tell("receive off");
    let read = testbed.block(0x28);
    testbed.message(&[opcode::I_LOGOUT; 16]);
    assert_eq!(testbed.answers(read), [GOOD]);
    assert_eq!(testbed.received, 0);
}

#[test]
fn altered_data() {
    let mut testbed = Testbed::logged_in();
    let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0];
    testbed.tell("luns 3 fffffff8");
    testbed.send(&report, Direction::FromDevice, 4096);
    assert_eq!(testbed.memory[..8], [255, 255, 255, 0xf8, 0, 0, 0, 0]);
    assert_eq!(
        [testbed.memory[9], testbed.memory[17], testbed.memory[25]],
        [0, 1, 2]
    );
    testbed.tell("luns 2");
    testbed.send(&report, Direction::FromDevice, 4096);
    assert_eq!(testbed.memory[..4], [0, 0, 0, 16]);
    assert!(!testbed.rules.told(Order::parse("luns 9").unwrap()));

    testbed.tell("vendor ATA");
    testbed.send(&[0x12, 0, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert_eq!(&testbed.memory[8..18], b"ATA     sr");
    // A page of vital product data keeps its contents.
    testbed.send(&[0x12, 1, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert_ne!(&testbed.memory[8..11], b"ATA");
}

#[test]
fn responses_through_another_channel() {
    let mut testbed = Testbed::logged_in();
    testbed.login(ANSWERS, MultiChannel::Multi, Port::Answers);
    assert_eq!(testbed.said.last().unwrap(), "login for answers multi=1");
    let what = requested(MultiChannel::Multi);
    let rsp = LoginRsp::parse(&testbed.accepted[&ANSWERS]).unwrap();
    rsp.check_answer_channel(&what).unwrap();

    testbed.tell("on 12 short:01");
    testbed.tell("on 28 twice");
    let with_data = [testbed.block(0x2a), testbed.block(0x28)];
    testbed.send(&[0x12, 0, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert!(testbed.sent.iter().all(|(channel, _)| *channel == ANSWERS));
    assert_eq!(testbed.moved, [ANSWERS; 3]);
    assert_eq!(with_data.map(|tag| testbed.answers(tag).len()), [1, 2]);
    testbed.none(0);
    testbed.manage(Function::LunReset, 0);
    let last = |testbed: &Testbed, n: usize| testbed.sent[testbed.sent.len() - n].0;
    assert_eq!([last(&testbed, 2), last(&testbed, 1)], [CHANNEL; 2]);

    testbed.tell("answers here");
    testbed.block(0x28);
    assert_eq!(last(&testbed, 1), CHANNEL);
    testbed.tell("answers there");
    testbed.block(0x28);
    assert_eq!(last(&testbed, 1), ANSWERS);
    testbed.tell("disconnect answers");
    assert_eq!(testbed.left, [ANSWERS]);
    assert!(testbed.said("gone channel=1"));
    testbed.block(0x28);
    assert_eq!(last(&testbed, 1), CHANNEL);
    testbed.tell("disconnect");
    assert_eq!(testbed.left, [ANSWERS, CHANNEL]);
}
