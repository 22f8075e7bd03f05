// SPDX-License-Identifier: GPL-2.0

//! Logins, channels, credits, descriptors and task management: the driver's code against the
//! target.

use crate::common::*;
use srp_target::{
    proto::{
        cmd::{Cmd, DirectBuf, Direction, IMM_DATA_OFFSET},
        ids::{Lun, PortId},
        login_iu::{LoginRej, LoginReqRdma, Requested},
        message::{build_short, Message},
        opcode,
        reject::Reject,
        tmf::{Function, TmfStatus},
    },
    target::{Settings, MAX_IT_IU_LEN},
};

#[test]
fn a_login_gets_what_it_asks_for() {
    let mut testbed = Testbed::new(settings(), 1, false);
    testbed.login(1, &requested());
    let granted = testbed.granted(&requested());
    assert_eq!(granted.req_lim, DEPTH);
    assert_eq!(granted.max_it_iu_len, 8260);
    assert_eq!(granted.immediate, 8192);
    assert_eq!(granted.descriptors, 12);
    testbed.login(2, &further());
    testbed.granted(&further());
    assert!(testbed.rejected.is_empty() && testbed.left.is_empty());
}

#[test]
fn each_refusal_has_its_reason() {
    let refused =
        |settings: Settings, change: &dyn Fn(&mut Requested, &mut Vec<u8>), before: u64| {
            let mut testbed = Testbed::new(settings, 1, false);
            for id in 0..before {
                let what = if id == 0 { requested() } else { further() };
                testbed.login(id + 1, &what);
            }
            assert_eq!(testbed.accepted.len() as u64, before);
            let mut what = if before > 0 { further() } else { requested() };
            change(&mut what, &mut Vec::new());
            let mut bytes = LoginReqRdma::new(&what).as_bytes().to_vec();
            change(&mut what, &mut bytes);
            testbed.target.login(50, &bytes);
            testbed.pump();
            let (channel, rej) = testbed.rejected.pop().expect("a refusal");
            assert_eq!(channel, 50);
            assert_eq!(testbed.accepted.len() as u64, before);
            assert!(testbed.left.is_empty());
            LoginRej::parse(&rej).unwrap()
        };
    let put = |at: usize, value: u8| {
        move |_: &mut Requested, b: &mut Vec<u8>| {
            if !b.is_empty() {
                b[at] = value;
            }
        }
    };
    let wrong = |r: &mut Requested, _: &mut Vec<u8>| r.target = PortId([8; 16]);
    let rej = refused(settings(), &wrong, 0);
    assert_eq!(
        (rej.reason(), rej.tag.get()),
        (Reject::UNABLE_ASSOCIATE_CHANNEL, 77)
    );
    let long = |r: &mut Requested, _: &mut Vec<u8>| r.max_it_iu_len = MAX_IT_IU_LEN + 1;
    assert_eq!(
        refused(settings(), &long, 0).reason(),
        Reject::REQ_IT_IU_LENGTH_TOO_LARGE
    );
    let tiny = |r: &mut Requested, _: &mut Vec<u8>| r.max_it_iu_len = 63;
    assert_eq!(
        refused(settings(), &tiny, 0).reason(),
        Reject::UNABLE_ESTABLISH_CHANNEL
    );
    let format = refused(settings(), &put(9, 0x0e), 0);
    assert_eq!(
        (format.reason(), format.buf_fmt.get()),
        (Reject::UNSUPPORTED_DESCRIPTOR_FORMAT, 6)
    );
    // A reserved multichannel action, a wrong opcode, a truncated request.
    assert_eq!(
        refused(settings(), &put(10, 2), 0).reason(),
        Reject::UNABLE_ESTABLISH_CHANNEL
    );
    assert_eq!(
        refused(settings(), &put(11, 1), 0).reason(),
        Reject::UNABLE_ESTABLISH_CHANNEL
    );
    let half = |_: &mut Requested, b: &mut Vec<u8>| b.truncate(55);
    assert_eq!(
        refused(settings(), &half, 0).reason(),
        Reject::UNABLE_ESTABLISH_CHANNEL
    );
    let same = |_: &mut Requested, _: &mut Vec<u8>| {};
    assert_eq!(
        refused(settings(), &same, 4).reason(),
        Reject::CHANNEL_LIMIT_REACHED
    );
    let single = Settings {
        channels: 1,
        ..settings()
    };
    assert_eq!(
        refused(single, &same, 1).reason(),
        Reject::MULTI_CHANNEL_UNSUPPORTED
    );
}

#[test]
fn no_memory_for_a_channel_is_a_refusal() {
    let mut testbed = Testbed::new(settings(), 1, false);
    testbed.login(1, &requested());
    testbed.target.no_resources(1);
    testbed.pump();
    let rej = LoginRej::parse(&testbed.rejected[0].1).unwrap();
    assert_eq!(
        (rej.reason(), rej.tag.get()),
        (Reject::INSUFFICIENT_RESOURCES, 77)
    );
    assert!(testbed.target.idle());
}

#[test]
fn a_single_login_ends_the_session_before_it() {
    let mut testbed = Testbed::logged_in();
    testbed.login(2, &further());
    testbed.login(3, &requested());
    let reasons: Vec<_> = testbed
        .left
        .iter()
        .map(|(id, m)| (*id, m.as_ref().unwrap()[7]))
        .collect();
    assert_eq!(reasons, [(1, 4), (2, 4)]);
    // The flag "terminated".
    let (channel, rsp) = testbed.accepted.last().unwrap();
    assert_eq!((*channel, rsp[26] & 3), (3, 1));
    assert_eq!(testbed.none(3, &[0; 6]).sense, Some((6, 0x29, 0)));
}

#[test]
fn a_login_waits_for_the_writes_before_it() {
    let mut testbed = Testbed::logged_in();
    let old = pattern(512, 1);
    testbed.memory.insert(9, old.clone());
    let tag = testbed.send(1, 0, &cdb10(0x08 | 0x20, 0, 0), Direction::None, 0);
    assert!(testbed.answered(tag));
    testbed.hold = true;
    let mut iu = [0; 68 + 512];
    let cmd = Cmd {
        tag: 5,
        lun: Lun::from_int(0),
        cdb: &cdb10(0x2a, 4, 1),
    };
    cmd.build_immediate(&mut iu, 512).unwrap();
    iu[68..].copy_from_slice(&old);
    testbed.message(1, &iu);
    assert_eq!(testbed.held.len(), 1);
    // The connection is lost, and the initiator logs in again.
    testbed.target.ended(1);
    testbed.login(2, &requested());
    assert_eq!(testbed.accepted.len(), 1);
    testbed.let_go();
    assert_eq!(testbed.accepted.len(), 2);
    assert_eq!(testbed.file(4, 1), old);
    assert!(!testbed.answered(5));
}

#[test]
fn a_login_waits_for_channels_that_end() {
    let mut testbed = Testbed::logged_in();
    testbed.linger = true;
    testbed.login(2, &requested());
    assert_eq!((testbed.left.len(), testbed.accepted.len()), (1, 1));
    // The target ignores messages of the ending channel.
    let tag = testbed.send(1, 0, &[0; 6], Direction::None, 0);
    assert!(!testbed.answered(tag));
    testbed.target.ended(1);
    testbed.pump();
    assert_eq!(testbed.accepted.len(), 2);
}

#[test]
fn credits_come_back_with_answers() {
    let mut testbed = Testbed::logged_in();
    testbed.hold = true;
    let tags: Vec<_> = (0..DEPTH - 1)
        .map(|_| testbed.send(1, 0, &[0; 6], Direction::None, 0))
        .collect();
    // The last credit is for task management. The response also returns the credits of the aborted
    // commands.
    let abort = testbed.manage(1, Function::AbortTaskSet, 0);
    assert!(!testbed.answered(abort));
    testbed.let_go();
    assert_eq!(testbed.managed(abort), TmfStatus::COMPLETE);
    assert!(tags.iter().all(|t| !testbed.answered(*t)));
    let (_, rsp) = testbed.sent.last().unwrap();
    assert_eq!(rsp[4..8], DEPTH.to_be_bytes());
    assert!(testbed.left.is_empty());
    assert_eq!(testbed.none(1, &[0; 6]).credits, 1);
}

#[test]
fn a_request_without_a_credit_ends_the_session() {
    let mut testbed = Testbed::logged_in();
    testbed.login(2, &further());
    testbed.hold = true;
    for _ in 0..DEPTH {
        testbed.send(1, 0, &[0; 6], Direction::None, 0);
    }
    assert!(testbed.left.is_empty());
    testbed.send(1, 0, &[0; 6], Direction::None, 0);
    let reasons: Vec<_> = testbed
        .left
        .iter()
        .map(|(id, m)| (*id, m.as_ref().unwrap()[7]))
        .collect();
    assert_eq!(reasons, [(1, 2), (2, 2)]);
}

#[test]
fn data_goes_by_each_format() {
    let mut testbed = Testbed::logged_in();
    let data = pattern(8192, 3);
    assert_eq!(testbed.write(&cdb10(0x2a, 8, 16), &data).status, 0);
    assert_eq!(testbed.file(8, 16), data);
    assert_eq!(testbed.read(&cdb10(0x28, 8, 16), 8192).1, data);

    let list: Vec<_> = [(0u64, 1000u32), (1000, 3096), (4096, 0), (4096, 4096)]
        .iter()
        .map(|(at, len)| DirectBuf::new(0x1000 + at, 9, *len))
        .collect();
    let table: Vec<u8> = list
        .iter()
        .flat_map(|d| {
            [
                &d.va().to_be_bytes()[..],
                &d.key().to_be_bytes(),
                &d.len().to_be_bytes(),
            ]
            .concat()
        })
        .collect();
    testbed.memory.insert(11, table);
    let place = DirectBuf::new(0x1000, 11, 64);
    // All descriptors in the message, or only some.
    for (in_message, lba) in [(4, 100), (1, 200), (3, 300)] {
        for (opcode, direction) in [(0x2a, Direction::ToDevice), (0x28, Direction::FromDevice)] {
            let content = if opcode == 0x2a {
                data.clone()
            } else {
                vec![0; 8192]
            };
            testbed.memory.insert(9, content);
            let (tag, mut iu) = (testbed.tag(), [0; 256]);
            let cmd = Cmd {
                tag,
                lun: Lun::from_int(0),
                cdb: &cdb10(opcode, lba, 16),
            };
            let n = cmd
                .build_indirect(&mut iu, direction, &place, 8192, &list[..in_message])
                .unwrap();
            testbed.message(1, &iu[..n]);
            let answer = testbed.answer(tag, 8192, direction);
            assert_eq!((answer.status, answer.resid), (0, 0));
            assert_eq!(testbed.memory[&9], data);
        }
        assert_eq!(testbed.file(lba.into(), 16), data);
    }

    let received = testbed.received;
    let mut iu = vec![0; IMM_DATA_OFFSET + 8192];
    for cdb_len in [10, 32] {
        let (tag, mut cdb) = (testbed.tag(), cdb10(0x2a, 400, 16).to_vec());
        cdb.resize(cdb_len, 0);
        let cmd = Cmd {
            tag,
            lun: Lun::from_int(0),
            cdb: &cdb,
        };
        cmd.build_immediate(&mut iu, 8192).unwrap();
        iu[IMM_DATA_OFFSET..].copy_from_slice(&data);
        testbed.message(1, &iu);
        assert_eq!(testbed.answer(tag, 8192, Direction::ToDevice).status, 0);
        assert_eq!(testbed.file(400, 16), data);
    }
    assert_eq!(testbed.received, received + 2);
}

#[test]
fn residuals_say_what_did_not_move() {
    let mut testbed = Testbed::logged_in();
    let data = pattern(1024, 9);
    // More data than the command writes.
    let answer = testbed.write(&cdb10(0x2a, 0, 1), &data);
    assert_eq!((answer.status, answer.resid), (0, 512));
    assert_eq!(testbed.file(0, 2), [&data[..512], &[0; 512]].concat());
    // Less data than the command writes: nothing is written.
    let answer = testbed.write(&cdb10(0x2a, 0, 3), &data);
    assert_eq!((answer.status, answer.sense), (2, Some((5, 0x24, 0))));
    assert_eq!(answer.resid, 1024);
    assert_eq!(testbed.file(1, 1), [0; 512]);
    let (answer, got) = testbed.read(&cdb10(0x28, 0, 1), 1024);
    assert_eq!(
        (answer.resid, &got[..512], &got[512..]),
        (512, &data[..512], &[0xee; 512][..])
    );
    let (answer, got) = testbed.read(&cdb10(0x28, 0, 1), 500);
    assert!(answer.overrun);
    assert_eq!(got, data[..500]);
    // A failed command transfers nothing.
    let (answer, got) = testbed.read(&cdb10(0x28, BLOCKS as u32, 1), 512);
    assert_eq!((answer.sense, answer.resid), (Some((5, 0x21, 0)), 512));
    assert_eq!(got, [0xee; 512]);
    // A command without data has a data buffer.
    let (answer, _) = testbed.read(&[0; 6], 512);
    assert_eq!((answer.status, answer.resid), (0, 512));
}

#[test]
fn an_abort_is_answered_when_the_command_is_over() {
    let mut testbed = Testbed::logged_in();
    testbed.hold = true;
    testbed.memory.insert(9, pattern(512, 2));
    let tag = testbed.send(1, 0, &cdb10(0x2a, 0, 1), Direction::ToDevice, 512);
    let other = testbed.send(1, 0, &[0; 6], Direction::None, 0);
    let abort = testbed.manage(1, Function::AbortTask, tag);
    assert!(!testbed.answered(abort));
    testbed.let_go();
    assert_eq!(testbed.managed(abort), TmfStatus::COMPLETE);
    assert!(!testbed.answered(tag) && testbed.answered(other));
    // The write is aborted before it executes.
    assert_eq!(testbed.file(0, 1), [0; 512]);
    // No such task: SAM requires FUNCTION COMPLETE.
    let abort = testbed.manage(1, Function::AbortTask, 12345);
    assert_eq!(testbed.managed(abort), TmfStatus::COMPLETE);
    let aca = testbed.manage(1, Function::ClearAca, 0);
    assert_eq!(testbed.managed(aca), TmfStatus(Some(4)));
}

#[test]
fn a_reset_is_told_to_all() {
    let mut testbed = Testbed::logged_in();
    let other = Requested {
        initiator: PortId([2; 16]),
        ..requested()
    };
    testbed.login(2, &other);
    assert_eq!(testbed.none(2, &[0; 6]).sense, Some((6, 0x29, 0)));
    testbed.hold = true;
    let tag = testbed.send(2, 0, &[0; 6], Direction::None, 0);
    let reset = testbed.manage(1, Function::LunReset, 0);
    testbed.let_go();
    assert_eq!(testbed.managed(reset), TmfStatus::COMPLETE);
    assert!(!testbed.answered(tag));
    // INQUIRY does not clear the unit attention; REQUEST SENSE does.
    assert_eq!(testbed.read(&[0x12, 0, 0, 0, 36, 0], 36).0.status, 0);
    let (answer, sense) = testbed.read(&[0x03, 0, 0, 0, 18, 0], 18);
    assert_eq!(
        (answer.status, sense[2], sense[12], sense[13]),
        (0, 6, 0x29, 3)
    );
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
    let told = testbed.none(2, &[0; 6]);
    assert_eq!((told.sense, told.credits), (Some((6, 0x29, 3)), 2));
    assert_eq!(testbed.none(2, &[0; 6]).status, 0);

    testbed.hold = true;
    testbed.send(2, 0, &[0; 6], Direction::None, 0);
    let clear = testbed.manage(1, Function::ClearTaskSet, 0);
    testbed.let_go();
    assert_eq!(testbed.managed(clear), TmfStatus::COMPLETE);
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
    assert_eq!(testbed.none(2, &[0; 6]).sense, Some((6, 0x2f, 0)));
}

#[test]
fn task_management_of_no_unit_is_refused() {
    let mut testbed = Testbed::logged_in();
    let mut iu = [0; 48];
    let request = srp_target::proto::tmf::TskMgmt {
        tag: 9,
        lun: Lun::from_int(3),
        function: Function::LunReset,
        task_tag: 0,
    };
    request.build(&mut iu).unwrap();
    testbed.message(1, &iu);
    assert_eq!(testbed.managed(9), TmfStatus(Some(2)));
}

#[test]
fn no_memory_is_a_full_task_set() {
    let mut testbed = Testbed::logged_in();
    testbed.hold = true;
    testbed.memory.insert(9, vec![0; 512]);
    let tag = testbed.send(1, 0, &cdb10(0x2a, 0, 1), Direction::ToDevice, 512);
    let (task, _) = testbed.fetches.pop().unwrap();
    testbed.target.no_memory(task, None);
    testbed.pump();
    let answer = testbed.answer(tag, 512, Direction::ToDevice);
    assert_eq!(
        (answer.status, answer.resid, answer.credits),
        (0x28, 512, 1)
    );
}

#[test]
fn logouts_end_what_they_are_about() {
    let mut testbed = Testbed::logged_in();
    testbed.login(2, &further());
    let mut iu = [0; 16];
    build_short(&mut iu, opcode::I_LOGOUT, 1).unwrap();
    testbed.message(1, &iu);
    assert_eq!(testbed.left, [(1, None)]);
    assert_eq!(testbed.none(2, &[0; 6]).status, 0);
    testbed.target.shutdown();
    testbed.pump();
    let (channel, last) = &testbed.left[1];
    assert_eq!(*channel, 2);
    match Message::parse(last.as_ref().unwrap()).unwrap() {
        Message::TLogout(reason) => assert_eq!(reason, 0),
        other => panic!("{other:?}"),
    }
    assert!(testbed.target.idle());
}
