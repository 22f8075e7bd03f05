// SPDX-License-Identifier: GPL-2.0

//! The rules, around the engine of `srp-target`.

mod rig;

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

use rig::{requested, Rig, ANSWERS, CHANNEL};

const GOOD: (u8, i32, bool) = (0, 1, false);
const CHECK: (u8, i32, bool) = (2, 1, true);

#[test]
fn without_a_rule_the_engine_responds() {
    let mut rig = Rig::logged_in();
    rig.fill(5);
    let write = rig.block(0x2a);
    rig.fill(0xee);
    let read = rig.block(0x28);
    assert_eq!(rig.answers(write), [GOOD]);
    assert_eq!(rig.answers(read), [GOOD]);
    assert_eq!(rig.memory[..4096], [5; 4096]);
    assert_eq!(rig.memory[4096], 0xee);
    assert!(rig.said("command channel=0 opcode=2a lun=0 tag=0000000000000002"));
    assert_eq!(rig.received, 2);
    // The disk has no mode pages.
    let sense = rig.none(0x1a);
    assert_eq!(rig.answers(sense), [CHECK]);
}

#[test]
fn a_login_is_as_the_driver_wants_it() {
    let mut rig = Rig::new();
    let what = Requested {
        immediate: 8192,
        ..requested(MultiChannel::Single)
    };
    rig.rules
        .login(CHANNEL, LoginReqRdma::new(&what).as_bytes(), Port::Commands);
    rig.pump();
    assert_eq!(rig.said, ["login multi=0 length=56"]);
    let rsp = LoginRsp::parse(&rig.accepted[&CHANNEL]).unwrap();
    rsp.check(&what).unwrap();
    let bytes = &rig.accepted[&CHANNEL];
    assert_eq!(bytes[4..8], CREDITS.to_be_bytes());
    assert_eq!((bytes.len(), bytes[26]), (52, 0));
    rig.rules.established(CHANNEL);
    rig.pump();
    assert_eq!(rig.said.last().unwrap(), "channel=0");
}

#[test]
fn logins_are_altered() {
    let mut rig = Rig::new();
    rig.tell("login silent");
    rig.login(1, MultiChannel::Single, Port::Commands);
    rig.tell("login reject 4711");
    rig.login(2, MultiChannel::Single, Port::Commands);
    assert!(rig.accepted.is_empty());
    let rejected = &rig.rejected[&2];
    assert_eq!((rig.rejected.len(), rejected[0]), (1, opcode::LOGIN_REJ));
    assert_eq!(rejected[4..8], [0, 0, 0x47, 0x11]);
    assert_eq!(rejected[8..16], 77u64.to_be_bytes());
    rig.tell("login bytes 24 0004");
    rig.login(3, MultiChannel::Single, Port::Commands);
    assert_eq!(rig.accepted[&3][22..28], [0, 64, 0, 4, 0, 0]);
    rig.tell("login length 20");
    rig.login(4, MultiChannel::Multi, Port::Commands);
    assert_eq!(rig.accepted[&4].len(), 20);
    rig.tell("login only 2");
    rig.login(5, MultiChannel::Multi, Port::Commands);
    assert_eq!(rig.rejected[&5][4..8], [0, 1, 0, 1]);
    rig.rules.ended(3);
    rig.login(6, MultiChannel::Multi, Port::Commands);
    assert!(rig.accepted.contains_key(&6));
    // The lowest free number is used again.
    rig.rules.established(6);
    rig.tell("login break");
    rig.rules.established(4);
    rig.pump();
    assert!(rig.said("gone channel=0") && rig.said("channel=0") && rig.said("channel=1"));
    let (channel, message) = rig.sent.last().unwrap();
    assert_eq!((*channel, message[0]), (6, opcode::CRED_REQ));
    assert_eq!(message[4..8], i32::MAX.to_be_bytes());
}

#[test]
fn held_commands() {
    let mut rig = Rig::logged_in();
    rig.fill(5);
    rig.tell("on 2a hold 2");
    let writes = [rig.block(0x2a), rig.block(0x2a)];
    assert!(rig.said("tag=0000000000000002 held"));
    assert_eq!((rig.sent.len(), rig.received), (0, 0));
    rig.tell("answer");
    assert_eq!(writes.map(|tag| rig.answers(tag)), [[GOOD], [GOOD]]);
    assert_eq!((rig.moved.len(), rig.received), (0, 2));
    // The rule is used up.
    let write = rig.block(0x2a);
    assert_eq!(rig.answers(write), [GOOD]);
    rig.tell("on 28 hold");
    let read = rig.block(0x28);
    rig.fill(0xee);
    rig.tell("answer data");
    assert_eq!(rig.answers(read), [GOOD]);
    assert_eq!(rig.memory[..4096], [5; 4096]);
    // The end of a channel is the end of its commands.
    rig.tell("on 28 hold");
    rig.block(0x28);
    rig.rules.ended(CHANNEL);
    rig.sent.clear();
    rig.tell("answer");
    assert!(rig.sent.is_empty());
}

#[test]
fn duplicates_and_unknown_tags() {
    let mut rig = Rig::logged_in();
    rig.tell("on 28 twice");
    let read = rig.block(0x28);
    assert_eq!(rig.answers(read), [GOOD, GOOD]);
    rig.tell("on 28 astray");
    let read = rig.block(0x28);
    assert_eq!(rig.answers(read), []);
    assert_eq!(rig.answers(read ^ 1 << 40), [GOOD]);
    assert_eq!(rig.moved.len(), 2);
}

#[test]
fn busy_short_and_check() {
    let mut rig = Rig::logged_in();
    rig.tell("on 2a busy");
    let write = rig.block(0x2a);
    assert_eq!(rig.answers(write), [(8, 1, false)]);

    rig.tell("on 4d short:e1e2e3");
    rig.fill(0xee);
    let log = rig.send(
        &[0x4d, 0, 0, 0, 0, 0, 0, 16, 0, 0],
        Direction::FromDevice,
        4096,
    );
    assert_eq!(rig.answers(log), [GOOD]);
    assert_eq!(rig.memory[..5], [0xe1, 0xe2, 0xe3, 0xee, 0xee]);
    // No more than the initiator has room for, and nothing without a buffer.
    rig.tell("on 12 short:a1a2a3 2");
    rig.send(&[0x12, 0, 0, 0, 2, 0], Direction::FromDevice, 2);
    assert_eq!(rig.memory[..3], [0xa1, 0xa2, 0xe3]);
    let inquiry = rig.none(0x12);
    assert_eq!(rig.answers(inquiry), [GOOD]);

    for (sent, sense, valid) in [(1024, "700003", true), (512, "", false), (0, "70", true)] {
        rig.fill(0xee);
        rig.tell(&format!("on 28 check:{sent}:{sense}"));
        let read = rig.block(0x28);
        assert_eq!(rig.answers(read), [(2, 1, valid)]);
        let (data, rest) = rig.memory.split_at(sent);
        assert!(data.iter().all(|b| *b == 0) && rest.iter().all(|b| *b == 0xee));
        let (_, message) = rig.sent.last().unwrap();
        let residual = message[18] & 0x3c;
        assert_eq!((message.len(), residual), (36 + sense.len() / 2, 0));
    }
    assert_eq!(rig.received, 7);
}

#[test]
fn a_rule_replaces_the_one_before() {
    let mut rig = Rig::logged_in();
    rig.tell("on 28 hold 40");
    rig.tell("on 2a busy 40");
    rig.tell("on 28 busy 1");
    let reads = [rig.block(0x28), rig.block(0x28)];
    assert_eq!(reads.map(|tag| rig.answers(tag)[0].0), [8, 0]);
    rig.tell("on 2a normal");
    let write = rig.block(0x2a);
    assert_eq!(rig.answers(write), [GOOD]);
}

#[test]
fn task_management() {
    let mut rig = Rig::logged_in();
    let code = |rig: &Rig, tag| {
        let of_it = |m: &&(ChannelId, Vec<u8>)| Rsp::parse(&m.1).unwrap().tag == tag;
        rig.sent.iter().find(of_it).map(|(_, m)| m[39])
    };
    // A confirmed abort: the target drops the command, unless the rule says `keep`.
    for (line, answers) in [("tmf 0", 0), ("tmf 0 keep", 1)] {
        rig.tell(line);
        rig.tell("on 2a hold");
        let write = rig.block(0x2a);
        let abort = rig.manage(Function::AbortTask, write);
        assert_eq!(code(&rig, abort), Some(0));
        let line = format!("task channel=0 function=01 lun=0 of={write:016x}");
        assert!(rig.said(&line));
        rig.tell("answer");
        assert_eq!(rig.answers(write).len(), answers);
    }
    // A refused abort, or no response to it: the command stays.
    rig.tell("tmf 0");
    rig.tell("abort 5");
    rig.tell("on 2a hold 2");
    let writes = [rig.block(0x2a), rig.block(0x2a)];
    let abort = rig.manage(Function::AbortTask, writes[0]);
    assert_eq!(code(&rig, abort), Some(5));
    rig.tell("tmf drop");
    rig.tell("abort -1");
    let reset = rig.manage(Function::LunReset, 0);
    assert_eq!(code(&rig, reset), None);
    rig.tell("tmf 200");
    let reset = rig.manage(Function::LunReset, 0);
    assert_eq!(code(&rig, reset), Some(200));
    rig.tell("answer");
    assert_eq!(writes.map(|tag| rig.answers(tag).len()), [1, 1]);
    // A reset ends all commands of the unit.
    rig.tell("tmf 0");
    rig.tell("on 2a hold 2");
    let writes = [rig.block(0x2a), rig.block(0x2a)];
    let reset = rig.manage(Function::LunReset, 0);
    assert_eq!(code(&rig, reset), Some(0));
    rig.tell("answer");
    assert_eq!(writes.map(|tag| rig.answers(tag).len()), [0, 0]);
    // Each message has returned its receive buffer.
    assert_eq!(rig.received, 12);
}

#[test]
fn grants() {
    let mut rig = Rig::logged_in();
    let granted = |rig: &mut Rig| {
        let tag = rig.block(0x28);
        rig.answers(tag)[0].1
    };
    assert_eq!(granted(&mut rig), 1);
    rig.tell("grant none");
    assert_eq!(granted(&mut rig), 0);
    let reset = rig.manage(Function::LunReset, 0);
    assert_eq!(rig.answers(reset)[0].1, 0);
    rig.tell("grant none 1");
    assert_eq!(granted(&mut rig), 1);
    rig.tell("grant none 0");
    assert_eq!(granted(&mut rig), 0);
    rig.tell("grant every 10");
    let begin = Instant::now();
    assert_eq!(granted(&mut rig), 0);
    for (seconds, messages) in [(9, 0), (11, 1), (12, 0), (22, 1)] {
        rig.sent.clear();
        assert!(rig.rules.tick(begin + Duration::from_secs(seconds)));
        rig.pump();
        assert_eq!(rig.sent.len(), messages, "after {seconds} s");
    }
    assert_eq!(rig.sent[0].1[..8], [opcode::CRED_REQ, 0, 0, 0, 0, 0, 0, 1]);
    rig.tell("grant all");
    assert!(!rig.rules.tick(begin + Duration::from_secs(99)));
    assert_eq!(granted(&mut rig), 1);
}

#[test]
fn more_credits_than_at_the_login() {
    let mut rig = Rig::logged_in();
    rig.tell("send credits 5");
    rig.tell("on 28 hold 37");
    for _ in 0..37 {
        rig.block(0x28);
    }
    rig.sent.clear();
    rig.tell("answer data");
    assert_eq!(rig.sent.len(), 37);
    assert!(!rig.said("session ended") && rig.left.is_empty());
}

#[test]
fn messages_of_the_target() {
    let mut rig = Rig::logged_in();
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
        assert!(rig.tell(line));
        let (channel, message) = rig.sent.last().unwrap();
        assert_eq!((*channel, message[0]), (CHANNEL, code));
        assert_eq!(message[8..16], 0x1234_5678_90ab_cdef_u64.to_be_bytes());
        assert_eq!(&message[at..at + bytes.len()], bytes);
    }
    // The initiator's reply is logged, and its buffer is posted again.
    let mut reply = [0; 16];
    reply[0] = opcode::AER_RSP;
    reply[8..].copy_from_slice(&0x1234_5678_90ab_cdef_u64.to_be_bytes());
    rig.message(&reply);
    assert!(rig.said("message channel=0 opcode=42 length=16 tag=1234567890abcdef"));
    assert_eq!(rig.received, 1);
    rig.rules.ended(CHANNEL);
    assert!(!rig.tell("send logout 0"));
    assert!(rig.said("FAILED: no channel to send to"));
}

#[test]
fn receive_buffers_are_kept() {
    let mut rig = Rig::logged_in();
    rig.tell("receive off");
    let read = rig.block(0x28);
    rig.message(&[opcode::I_LOGOUT; 16]);
    assert_eq!(rig.answers(read), [GOOD]);
    assert_eq!(rig.received, 0);
}

#[test]
fn altered_data() {
    let mut rig = Rig::logged_in();
    let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0];
    rig.tell("luns 3 fffffff8");
    rig.send(&report, Direction::FromDevice, 4096);
    assert_eq!(rig.memory[..8], [255, 255, 255, 0xf8, 0, 0, 0, 0]);
    assert_eq!([rig.memory[9], rig.memory[17], rig.memory[25]], [0, 1, 2]);
    rig.tell("luns 2");
    rig.send(&report, Direction::FromDevice, 4096);
    assert_eq!(rig.memory[..4], [0, 0, 0, 16]);
    assert!(!rig.rules.told(Order::parse("luns 9").unwrap()));

    rig.tell("vendor ATA");
    rig.send(&[0x12, 0, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert_eq!(&rig.memory[8..18], b"ATA     sr");
    // A page of vital product data keeps its contents.
    rig.send(&[0x12, 1, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert_ne!(&rig.memory[8..11], b"ATA");
}

#[test]
fn responses_through_another_channel() {
    let mut rig = Rig::logged_in();
    rig.login(ANSWERS, MultiChannel::Multi, Port::Answers);
    assert_eq!(rig.said.last().unwrap(), "login for answers multi=1");
    let what = requested(MultiChannel::Multi);
    let rsp = LoginRsp::parse(&rig.accepted[&ANSWERS]).unwrap();
    rsp.check_answer_channel(&what).unwrap();

    rig.tell("on 12 short:01");
    rig.tell("on 28 twice");
    let with_data = [rig.block(0x2a), rig.block(0x28)];
    rig.send(&[0x12, 0, 0, 0, 36, 0], Direction::FromDevice, 36);
    assert!(rig.sent.iter().all(|(channel, _)| *channel == ANSWERS));
    assert_eq!(rig.moved, [ANSWERS; 3]);
    assert_eq!(with_data.map(|tag| rig.answers(tag).len()), [1, 2]);
    rig.none(0);
    rig.manage(Function::LunReset, 0);
    let last = |rig: &Rig, n: usize| rig.sent[rig.sent.len() - n].0;
    assert_eq!([last(&rig, 2), last(&rig, 1)], [CHANNEL; 2]);

    rig.tell("answers here");
    rig.block(0x28);
    assert_eq!(last(&rig, 1), CHANNEL);
    rig.tell("answers there");
    rig.block(0x28);
    assert_eq!(last(&rig, 1), ANSWERS);
    rig.tell("disconnect answers");
    assert_eq!(rig.left, [ANSWERS]);
    assert!(rig.said("gone channel=1"));
    rig.block(0x28);
    assert_eq!(last(&rig, 1), CHANNEL);
    rig.tell("disconnect");
    assert_eq!(rig.left, [ANSWERS, CHANNEL]);
}
