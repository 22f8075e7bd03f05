// SPDX-License-Identifier: GPL-2.0

//! Units with remote blocks: dispatch, responses, and requests that wait for a dispatched command.

use std::sync::Arc;

use crate::common::*;
use srp_target::{
    proto::{cmd::Direction, rsp::Rsp, tmf::Function},
    scsi::{Command, Geometry, Unit},
    sense::Sense,
    target::{Outcome, Target},
};

const MAX: u64 = 1 << 20;

/// Creates a target with one session and one unit whose blocks are remote.
fn testbed() -> Testbed {
    let mut testbed = Testbed::new(settings(), 0, false);
    let geometry = Geometry {
        blocks: BLOCKS,
        read_only: false,
        max_transfer: MAX,
        max_unmap: 2048,
        max_ranges: 1,
    };
    testbed
        .target
        .open(vec![Arc::new(Unit::elsewhere(geometry, b"there", 5))]);
    testbed.login(1, &requested());
    assert_eq!(testbed.none(1, &[0; 6]).sense, Some((6, 0x29, 0)));
    testbed
}

/// Sends a WRITE of 8 blocks at LBA 16; returns its tag.
fn write(testbed: &mut Testbed) -> u64 {
    testbed.memory.insert(9, vec![1; 4096]);
    testbed.send(1, 0, &cdb10(0x2a, 16, 8), Direction::ToDevice, 4096)
}

/// An UNMAP block descriptor.
fn range(lba: u64, count: u32) -> Vec<u8> {
    [&lba.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]].concat()
}

/// Sends UNMAP with these ranges; returns the tag, and whether it was answered at once.
fn unmap(testbed: &mut Testbed, ranges: &[Vec<u8>]) -> (u64, bool) {
    let len = 8 + 16 * ranges.len();
    let mut list = vec![0, len as u8 - 2, 0, len as u8 - 8, 0, 0, 0, 0];
    list.extend(ranges.concat());
    testbed.memory.insert(9, list);
    let tag = testbed.send(
        1,
        0,
        &[0x42, 0, 0, 0, 0, 0, 0, 0, len as u8, 0],
        Direction::ToDevice,
        len as u32,
    );
    (tag, testbed.answered(tag))
}

#[test]
fn zeros_are_handed_out_without_data() {
    let mut testbed = testbed();
    let (tag, answered) = unmap(&mut testbed, &[range(16, 2000)]);
    assert!(!answered);
    let (task, remote) = testbed.dispatched.pop().unwrap();
    let wanted = Command::Zero {
        lba: 16,
        count: 2000,
        unmap: true,
    };
    assert_eq!((remote.command, remote.descriptors.len()), (wanted, 0));
    testbed.target.dispatched(task, Outcome::Good);
    testbed.pump();
    let answer = testbed.answer(tag, 24, Direction::ToDevice);
    assert_eq!((answer.status, answer.resid), (0, 0));
    // Empty ranges and an empty list need no dispatch.
    for ranges in [vec![range(16, 0)], vec![range(BLOCKS, 0)], vec![]] {
        let (tag, _) = unmap(&mut testbed, &ranges);
        let len = 8 + 16 * ranges.len() as u32;
        assert_eq!(testbed.answer(tag, len, Direction::ToDevice).status, 0);
    }
    for (ranges, sense) in [
        (vec![range(0, 1), range(8, 1)], (5, 0x26, 0)),
        (vec![range(0, 2049)], (5, 0x26, 0)),
        (vec![range(BLOCKS, 1)], (5, 0x21, 0)),
    ] {
        let (tag, _) = unmap(&mut testbed, &ranges);
        let len = 8 + 16 * ranges.len() as u32;
        let answer = testbed.answer(tag, len, Direction::ToDevice);
        assert_eq!(answer.sense, Some(sense));
    }
    // WRITE SAME of zeros, with and without UNMAP, and of other data.
    for (flags, byte) in [(0, 0), (8, 0), (0, 1)] {
        let mut cdb = cdb10(0x41, 32, 8);
        cdb[1] = flags;
        testbed.memory.insert(9, vec![byte; 512]);
        let tag = testbed.send(1, 0, &cdb, Direction::ToDevice, 512);
        if byte != 0 {
            let answer = testbed.answer(tag, 512, Direction::ToDevice);
            assert_eq!(answer.sense, Some((5, 0x26, 0)));
            continue;
        }
        let (task, remote) = testbed.dispatched.pop().unwrap();
        let wanted = Command::Zero {
            lba: 32,
            count: 8,
            unmap: flags != 0,
        };
        assert_eq!(remote.command, wanted);
        testbed.target.dispatched(task, Outcome::Good);
        testbed.pump();
        assert_eq!(testbed.answer(tag, 512, Direction::ToDevice).status, 0);
    }
    assert!(testbed.dispatched.is_empty());
}

#[test]
fn verify_is_handed_out_if_it_compares_nothing() {
    let mut testbed = testbed();
    let tag = testbed.send(1, 0, &cdb10(0x2f, 16, 8), Direction::None, 0);
    let (task, remote) = testbed.dispatched.pop().unwrap();
    assert!(matches!(
        remote.command,
        Command::Verify {
            lba: 16,
            count: 8,
            ..
        }
    ));
    testbed
        .target
        .dispatched(task, Outcome::Failed(Sense::READ_ERROR));
    testbed.pump();
    let answer = testbed.answer(tag, 0, Direction::None);
    assert_eq!(answer.sense, Some((3, 0x11, 0)));
    for compare in [2, 6] {
        let mut cdb = cdb10(0x2f, 16, 8);
        cdb[1] = compare;
        assert_eq!(testbed.none(1, &cdb).sense, Some((5, 0x24, 0)));
    }
    assert!(testbed.dispatched.is_empty());
}

#[test]
fn what_is_reported() {
    let mut testbed = testbed();
    let (_, list) = testbed.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024);
    let len = u32::from_be_bytes(list[..4].try_into().unwrap()) as usize;
    let codes: Vec<_> = list[4..4 + len].chunks(8).map(|e| e[0]).collect();
    assert!([0x2a, 0x35, 0x42, 0x93, 0x8f]
        .iter()
        .all(|c| codes.contains(c)));
    // VERIFY does not compare.
    let (_, one) = testbed.read(&[0xa3, 0x0c, 1, 0x2f, 0, 0, 0, 0, 0, 64, 0, 0], 64);
    assert_eq!((one[4], one[5]), (0x2f, 0xf0));
    // Thin provisioned, with these limits.
    let (_, capacity) = testbed.read(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32);
    assert_eq!(capacity[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!(capacity[14], 0xc0);
    let (_, limits) = testbed.read(&[0x12, 1, 0xb0, 0, 64, 0], 64);
    assert_eq!(limits[8..12], ((MAX / 512) as u32).to_be_bytes());
    assert_eq!(limits[20..24], 2048u32.to_be_bytes());
    assert_eq!(limits[24..28], 1u32.to_be_bytes());
    let more = testbed.none(1, &cdb10(0x28, 0, (MAX / 512) as u16 + 1));
    assert_eq!(more.sense, Some((5, 0x24, 0)));
}

#[test]
fn a_command_is_handed_out_with_its_places() {
    let mut testbed = testbed();
    let tag = write(&mut testbed);
    let (task, remote) = testbed.dispatched.pop().unwrap();
    assert_eq!((remote.tag, remote.unit, remote.room), (tag, 0, 4096));
    assert_eq!(remote.initiator, INITIATOR.0);
    let wanted = Command::Write {
        lba: 16,
        count: 8,
        fua: false,
    };
    assert_eq!(remote.command, wanted);
    assert_eq!(remote.descriptors.len(), 1);
    assert_eq!(
        (remote.descriptors[0].va(), remote.descriptors[0].len()),
        (0x1000, 4096)
    );
    assert!(!testbed.answered(tag));
    testbed.target.dispatched(task, Outcome::Good);
    testbed.pump();
    let answer = testbed.answer(tag, 4096, Direction::ToDevice);
    assert_eq!((answer.status, answer.resid, answer.credits), (0, 0, 1));
}

#[test]
fn what_is_answered_there_is_not_answered_here() {
    let mut testbed = testbed();
    // Far more commands than credits: granted credits count at once.
    for _ in 0..3 * DEPTH {
        let tag = write(&mut testbed);
        let (task, _) = testbed.dispatched.pop().expect("a credit");
        assert_eq!(testbed.target.grant_for(task), Some(1));
        assert_eq!(testbed.target.grant_for(task), Some(1));
        testbed.target.dispatched(task, Outcome::Answered);
        testbed.pump();
        assert!(!testbed.answered(tag));
    }
    assert!(testbed.left.is_empty());
}

#[test]
fn the_answer_here_has_the_credits_that_were_granted() {
    for (outcome, wanted) in [
        (Outcome::Good, (0, None)),
        (Outcome::Busy, (8, None)),
        (Outcome::Failed(Sense::WRITE_ERROR), (2, Some((3, 0x0c, 0)))),
    ] {
        let mut testbed = testbed();
        for _ in 0..3 * DEPTH {
            let tag = write(&mut testbed);
            let (task, _) = testbed.dispatched.pop().expect("a credit");
            testbed.target.grant_for(task);
            testbed.target.dispatched(task, outcome);
            testbed.pump();
            let answer = testbed.answer(tag, 4096, Direction::ToDevice);
            assert_eq!((answer.status, answer.sense), wanted);
            assert_eq!(answer.credits, 1);
        }
    }
}

#[test]
fn an_abort_waits_until_it_is_over_there() {
    let mut testbed = testbed();
    let tag = write(&mut testbed);
    let (task, _) = testbed.dispatched.pop().unwrap();
    testbed.target.grant_for(task);
    let abort = testbed.manage(1, Function::AbortTask, tag);
    assert_eq!(testbed.cancelled, [task]);
    assert!(!testbed.answered(abort));
    // A second abort does not cancel again.
    let again = testbed.manage(1, Function::LunReset, 0);
    assert_eq!(testbed.cancelled, [task]);
    testbed.target.dispatched(task, Outcome::Over);
    testbed.pump();
    assert!(testbed.answered(abort) && testbed.answered(again) && !testbed.answered(tag));
    // The two responses also return the credit of the command.
    let told: i32 = testbed
        .sent
        .iter()
        .map(|(_, m)| Rsp::parse(m).unwrap())
        .filter(|rsp| [abort, again].contains(&rsp.tag))
        .map(|rsp| rsp.req_lim_delta)
        .sum();
    assert_eq!(told, 3);
}

#[test]
fn a_login_waits_until_all_is_over_there() {
    let mut testbed = testbed();
    write(&mut testbed);
    let (task, _) = testbed.dispatched.pop().unwrap();
    testbed.target.grant_for(task);
    testbed.target.ended(1);
    testbed.pump();
    assert_eq!(
        (&testbed.cancelled[..], &testbed.gone[..]),
        (&[task][..], &[INITIATOR.0][..])
    );
    testbed.login(2, &requested());
    assert_eq!(testbed.accepted.len(), 1);
    testbed.target.dispatched(task, Outcome::Over);
    testbed.pump();
    assert_eq!(testbed.accepted.len(), 2);
}

#[test]
fn no_login_before_the_units_are_known() {
    let mut testbed = Testbed::new(settings(), 0, false);
    testbed.target = Target::closed(settings());
    testbed.login(1, &requested());
    assert!(testbed.accepted.is_empty() && testbed.rejected.is_empty());
    testbed.target.open(Vec::new());
    testbed.pump();
    assert_eq!(testbed.accepted.len(), 1);
}

#[test]
fn a_stop_waits_for_what_is_stable() {
    let mut testbed = testbed();
    let stop = [0x1b, 0, 0, 0, 0, 0];
    let tag = testbed.send(1, 0, &stop, Direction::None, 0);
    let (task, remote) = testbed.dispatched.pop().unwrap();
    assert_eq!(remote.command, Command::Start(false));
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
    testbed.target.dispatched(task, Outcome::Good);
    testbed.pump();
    assert_eq!(testbed.answer(tag, 0, Direction::None).status, 0);
    assert_eq!(testbed.none(1, &[0; 6]).sense, Some((2, 4, 2)));
    assert_eq!(testbed.none(1, &[0x1b, 0, 0, 0, 1, 0]).status, 0);
    assert_eq!(testbed.none(1, &[0; 6]).status, 0);
}

/// A unit without UNMAP is not thin: it reports no granularity, and UNMAP is refused.
#[test]
fn a_unit_that_frees_no_space() {
    let mut testbed = Testbed::new(settings(), 0, false);
    let geometry = Geometry {
        blocks: BLOCKS,
        read_only: false,
        max_transfer: MAX,
        max_unmap: 2048,
        max_ranges: 0,
    };
    let unit = Unit::elsewhere(geometry, b"there", 5);
    testbed.target.open(vec![Arc::new(unit)]);
    testbed.login(1, &requested());
    assert_eq!(testbed.none(1, &[0; 6]).sense, Some((6, 0x29, 0)));
    let cdb = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    assert_eq!(testbed.read(&cdb, 32).1[14], 0);
    let page = |testbed: &mut Testbed, page| testbed.read(&[0x12, 1, page, 0, 64, 0], 64).1;
    assert_eq!(page(&mut testbed, 0xb2)[4..8], [0; 4]);
    assert_eq!(page(&mut testbed, 0xb0)[20..36], [0; 16]);
    let (tag, _) = unmap(&mut testbed, &[range(0, 8)]);
    assert!(testbed.answered(tag));
}
