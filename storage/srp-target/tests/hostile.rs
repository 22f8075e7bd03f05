// SPDX-License-Identifier: GPL-2.0

//! A protocol violation ends its own session and no other.

use crate::common::*;
use seeded::Rng;
use srp_target::proto::{
    cmd::{Cmd, DirectBuf, Direction},
    ids::{Lun, PortId},
    login_iu::Requested,
    tmf::{Function, TskMgmt},
};

/// Creates a target with the session under test and a session of another initiator.
fn two() -> Testbed {
    let mut testbed = Testbed::logged_in();
    let other = Requested {
        initiator: PortId([2; 16]),
        ..requested()
    };
    testbed.login(9, &other);
    testbed.none(9, &[0; 6]);
    testbed
}

/// Checks that the message ends the first session with the reason "invalid message".
fn ends(testbed: &mut Testbed, what: &str, bytes: &[u8]) {
    testbed.message(1, bytes);
    assert_eq!(testbed.left.len(), 1, "{what}");
    let (channel, last) = &testbed.left[0];
    let last = last.as_ref().unwrap();
    assert_eq!((*channel, last[0], last[7]), (1, 0x80, 2), "{what}");
    assert_eq!(testbed.none(9, &[0; 6]).status, 0, "{what}");
}

fn command(cdb: &[u8], direction: Direction) -> Vec<u8> {
    let mut iu = vec![0; 256];
    let cmd = Cmd {
        tag: 4,
        lun: Lun::from_int(0),
        cdb,
    };
    let list = [DirectBuf::new(0x1000, 9, 512)];
    let n = match direction {
        Direction::None => cmd.build(&mut iu),
        _ => cmd.build_indirect(
            &mut iu,
            direction,
            &DirectBuf::new(0x1000, 11, 16),
            512,
            &list,
        ),
    };
    iu.truncate(n.unwrap());
    iu
}

#[test]
fn what_no_initiator_sends() {
    for code in (0..=255u8).filter(|c| ![1, 2, 3].contains(c)) {
        let mut bytes = command(&[0; 6], Direction::None);
        bytes[0] = code;
        ends(&mut two(), &format!("opcode {code}"), &bytes);
    }
    ends(&mut two(), "nothing", &[]);
}

#[test]
fn messages_that_break_off() {
    let write = command(&cdb10(0x2a, 0, 1), Direction::ToDevice);
    for len in 1..write.len() {
        ends(
            &mut two(),
            &format!("{len} bytes of a write"),
            &write[..len],
        );
    }
    let mut reset = [0; 48];
    let request = TskMgmt {
        tag: 5,
        lun: Lun::from_int(0),
        function: Function::LunReset,
        task_tag: 0,
    };
    request.build(&mut reset).unwrap();
    for len in 1..reset.len() {
        ends(
            &mut two(),
            &format!("{len} bytes of a reset"),
            &reset[..len],
        );
    }
}

#[test]
fn fields_that_contradict_each_other() {
    let good = command(&cdb10(0x2a, 0, 1), Direction::ToDevice);
    let with = |at: usize, bytes: &[u8]| {
        let mut message = good.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    for format in 4..=15 {
        ends(&mut two(), "format of DATA-OUT", &with(5, &[format << 4]));
        ends(&mut two(), "format of DATA-IN", &with(5, &[0x20 | format]));
    }
    ends(&mut two(), "immediate DATA-IN", &with(5, &[3]));
    ends(
        &mut two(),
        "more descriptors than there are",
        &with(6, &[2]),
    );
    ends(&mut two(), "additional CDB", &with(31, &[0xfc]));
    ends(
        &mut two(),
        "a total that is wrong",
        &with(64, &513u32.to_be_bytes()),
    );
    ends(
        &mut two(),
        "half a descriptor",
        &with(60, &17u32.to_be_bytes()),
    );
    ends(
        &mut two(),
        "fewer descriptors than in the message",
        &with(60, &0u32.to_be_bytes()),
    );
    ends(
        &mut two(),
        "a huge table",
        &with(60, &0xffff_fff0u32.to_be_bytes()),
    );
    assert_eq!(two().left.len(), 0);
}

#[test]
fn immediate_data_that_is_not_there() {
    let cmd = Cmd {
        tag: 4,
        lun: Lun::from_int(0),
        cdb: &cdb10(0x2a, 0, 1),
    };
    let mut iu = vec![0; 68 + 512];
    cmd.build_immediate(&mut iu, 512).unwrap();
    ends(&mut two(), "half of it", &iu[..68 + 256]);
    iu[48..52].copy_from_slice(&0xffff_ffffu32.to_be_bytes());
    ends(&mut two(), "4 GiB", &iu);
    cmd.build_immediate(&mut iu, 512).unwrap();
    // The additional CDB would overlap the data.
    iu[31] = 20;
    ends(&mut two(), "a long CDB", &iu);
    // A login without immediate data.
    let mut testbed = Testbed::new(settings(), 1, false);
    let without = Requested {
        immediate: 0,
        ..requested()
    };
    testbed.login(1, &without);
    iu[31] = 0;
    testbed.message(1, &iu);
    assert_eq!(testbed.left[0].1.as_ref().unwrap()[7], 2);
}

#[test]
fn tables_that_lie() {
    let one = |len: u32| {
        let d = DirectBuf::new(0x1000, 9, len);
        [
            &d.va().to_be_bytes()[..],
            &d.key().to_be_bytes(),
            &d.len().to_be_bytes(),
        ]
        .concat()
    };
    for (what, table) in [
        ("too little", [one(256), one(0)].concat()),
        ("too much", [one(512), one(1)].concat()),
        ("a sum beyond 32 bits", [one(u32::MAX), one(513)].concat()),
    ] {
        for (opcode, direction) in [(0x2a, Direction::ToDevice), (0x28, Direction::FromDevice)] {
            let mut testbed = two();
            testbed.memory.insert(9, pattern(512, 1));
            testbed.memory.insert(11, table.clone());
            let mut bytes = command(&cdb10(opcode, 0, 1), direction);
            bytes[60..64].copy_from_slice(&32u32.to_be_bytes());
            ends(&mut testbed, what, &bytes);
            assert_eq!(testbed.file(0, 1), [0; 512]);
        }
    }
}

#[test]
fn a_tag_in_use() {
    let mut testbed = two();
    testbed.hold = true;
    let bytes = command(&[0; 6], Direction::None);
    testbed.message(1, &bytes);
    assert!(testbed.left.is_empty());
    testbed.message(1, &bytes);
    assert_eq!(testbed.left[0].1.as_ref().unwrap()[7], 2);
    testbed.let_go();
    assert!(!testbed.answered(4));
    // Another initiator may use the same tag.
    testbed.message(9, &bytes);
    assert!(testbed.answered(4));
}

#[test]
fn noise_never_panics() {
    let mut rng = Rng(0);
    let mut random = move || rng.next();
    let mut ended = 0;
    let mut testbed = two();
    for channel in 100..40_000 {
        testbed.memory = [9, 11].map(|k| (k, pattern(8192, 0))).into();
        let mut bytes = match random() % 4 {
            0 => command(&cdb10(0x2a, 0, 1), Direction::ToDevice),
            1 => command(&cdb10(random() as u8, 0, 1), Direction::FromDevice),
            2 => command(&[random() as u8; 16], Direction::None),
            _ => {
                let mut b = vec![0; 48];
                b[0] = 1;
                b
            }
        };
        for _ in 0..random() % 4 {
            // Leave the descriptor alone: the test has no memory for random addresses.
            let at = random() as usize % 48;
            bytes[at] = random() as u8;
        }
        bytes.truncate(48.max(random() as usize % 128));
        testbed.left.clear();
        testbed.sent.clear();
        testbed.message(1, &bytes);
        if !testbed.left.is_empty() {
            ended += 1;
            testbed.left.clear();
            testbed.accepted.clear();
            testbed.target.ended(1);
            testbed.target.login(
                channel,
                srp_target::proto::login_iu::LoginReqRdma::new(&requested()).as_bytes(),
            );
            testbed.pump();
            assert_eq!(testbed.accepted.len(), 1);
            testbed.target.ended(channel);
            testbed.pump();
            testbed.login(1, &requested());
        }
    }
    assert!(ended > 1000, "{ended}");
    // The other session survives; a reset may be pending for it.
    testbed.none(9, &[0; 6]);
}
