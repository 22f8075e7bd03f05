// SPDX-License-Identifier: GPL-2.0

//! Units whose blocks are elsewhere: what is handed out, what its answer does, and what waits for its end.

mod common;

use std::sync::Arc;

use common::*;
use srp_target::{
    proto::{cmd::Direction, rsp::Rsp, tmf::Function},
    scsi::{Command, Geometry, Unit},
    sense::Sense,
    target::{Outcome, Target},
};

const MAX: u64 = 1 << 20;

/// A session with one such unit.
fn rig() -> Rig {
    let mut rig = Rig::new(settings(), 0, false);
    let geometry = Geometry {
        blocks: BLOCKS,
        read_only: false,
        max_transfer: MAX,
    };
    rig.target
        .open(vec![Arc::new(Unit::elsewhere(geometry, b"there", 5))]);
    rig.login(1, &requested());
    assert_eq!(rig.none(1, &[0; 6]).sense, Some((6, 0x29, 0)));
    rig
}

/// Sends a write of 8 blocks at 16; its tag.
fn write(rig: &mut Rig) -> u64 {
    rig.memory.insert(9, vec![1; 4096]);
    rig.send(1, 0, &cdb10(0x2a, 16, 8), Direction::ToDevice, 4096)
}

#[test]
fn what_needs_the_blocks_here_is_not_there() {
    let mut rig = rig();
    for opcode in [0x2f, 0x41, 0x42, 0x8f, 0x93, 0xaf] {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        assert_eq!(rig.none(1, &cdb).sense, Some((5, 0x20, 0)), "{opcode:#x}");
    }
    assert!(rig.dispatched.is_empty());
    // Nor is it reported.
    let (_, list) = rig.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024);
    let len = u32::from_be_bytes(list[..4].try_into().unwrap()) as usize;
    let codes: Vec<_> = list[4..4 + len].chunks(8).map(|e| e[0]).collect();
    assert!(codes.contains(&0x2a) && codes.contains(&0x35) && !codes.contains(&0x42));
    // No thin provisioning, and this limit.
    let (_, capacity) = rig.read(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32);
    assert_eq!(capacity[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!(capacity[14], 0);
    let (_, limits) = rig.read(&[0x12, 1, 0xb0, 0, 64, 0], 64);
    assert_eq!(limits[8..12], ((MAX / 512) as u32).to_be_bytes());
    assert_eq!(limits[20..24], [0; 4]);
    let more = rig.none(1, &cdb10(0x28, 0, (MAX / 512) as u16 + 1));
    assert_eq!(more.sense, Some((5, 0x24, 0)));
}

#[test]
fn a_command_is_handed_out_with_its_places() {
    let mut rig = rig();
    let tag = write(&mut rig);
    let (task, remote) = rig.dispatched.pop().unwrap();
    assert_eq!((remote.tag, remote.unit, remote.room), (tag, 0, 4096));
    assert_eq!(remote.initiator, INITIATOR.0);
    let wanted = Command::Write {
        lba: 16,
        count: 8,
        fua: false,
    };
    assert_eq!(remote.command, wanted);
    assert_eq!(remote.places.len(), 1);
    assert_eq!(
        (remote.places[0].va(), remote.places[0].len()),
        (0x1000, 4096)
    );
    assert!(!rig.answered(tag));
    rig.target.dispatched(task, Outcome::Good);
    rig.pump();
    let answer = rig.answer(tag, 4096, Direction::ToDevice);
    assert_eq!((answer.status, answer.resid, answer.credits), (0, 0, 1));
}

#[test]
fn what_is_answered_there_is_not_answered_here() {
    let mut rig = rig();
    // Far more than there are credits: those that were granted count at once.
    for _ in 0..3 * DEPTH {
        let tag = write(&mut rig);
        let (task, _) = rig.dispatched.pop().expect("a credit");
        assert_eq!(rig.target.grant_for(task), Some(1));
        assert_eq!(rig.target.grant_for(task), Some(1));
        rig.target.dispatched(task, Outcome::Answered);
        rig.pump();
        assert!(!rig.answered(tag));
    }
    assert!(rig.left.is_empty());
}

#[test]
fn the_answer_here_has_the_credits_that_were_granted() {
    for (outcome, wanted) in [
        (Outcome::Good, (0, None)),
        (Outcome::Busy, (8, None)),
        (Outcome::Failed(Sense::WRITE_ERROR), (2, Some((3, 0x0c, 0)))),
    ] {
        let mut rig = rig();
        for _ in 0..3 * DEPTH {
            let tag = write(&mut rig);
            let (task, _) = rig.dispatched.pop().expect("a credit");
            rig.target.grant_for(task);
            rig.target.dispatched(task, outcome);
            rig.pump();
            let answer = rig.answer(tag, 4096, Direction::ToDevice);
            assert_eq!((answer.status, answer.sense), wanted);
            assert_eq!(answer.credits, 1);
        }
    }
}

#[test]
fn an_abort_waits_until_it_is_over_there() {
    let mut rig = rig();
    let tag = write(&mut rig);
    let (task, _) = rig.dispatched.pop().unwrap();
    rig.target.grant_for(task);
    let abort = rig.manage(1, Function::AbortTask, tag);
    assert_eq!(rig.cancelled, [task]);
    assert!(!rig.answered(abort));
    // Once is enough.
    let again = rig.manage(1, Function::LunReset, 0);
    assert_eq!(rig.cancelled, [task]);
    rig.target.dispatched(task, Outcome::Over);
    rig.pump();
    assert!(rig.answered(abort) && rig.answered(again) && !rig.answered(tag));
    // The two responses bring the credit of the command, too.
    let told: i32 = rig
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
    let mut rig = rig();
    write(&mut rig);
    let (task, _) = rig.dispatched.pop().unwrap();
    rig.target.grant_for(task);
    rig.target.ended(1);
    rig.pump();
    assert_eq!(
        (&rig.cancelled[..], &rig.gone[..]),
        (&[task][..], &[INITIATOR.0][..])
    );
    rig.login(2, &requested());
    assert_eq!(rig.accepted.len(), 1);
    rig.target.dispatched(task, Outcome::Over);
    rig.pump();
    assert_eq!(rig.accepted.len(), 2);
}

#[test]
fn nobody_is_let_in_before_the_units_are_known() {
    let mut rig = Rig::new(settings(), 0, false);
    rig.target = Target::closed(settings());
    rig.login(1, &requested());
    assert!(rig.accepted.is_empty() && rig.rejected.is_empty());
    rig.target.open(Vec::new());
    rig.pump();
    assert_eq!(rig.accepted.len(), 1);
}

#[test]
fn a_stop_waits_for_what_is_stable() {
    let mut rig = rig();
    let stop = [0x1b, 0, 0, 0, 0, 0];
    let tag = rig.send(1, 0, &stop, Direction::None, 0);
    let (task, remote) = rig.dispatched.pop().unwrap();
    assert_eq!(remote.command, Command::Start(false));
    assert_eq!(rig.none(1, &[0; 6]).status, 0);
    rig.target.dispatched(task, Outcome::Good);
    rig.pump();
    assert_eq!(rig.answer(tag, 0, Direction::None).status, 0);
    assert_eq!(rig.none(1, &[0; 6]).sense, Some((2, 4, 2)));
    assert_eq!(rig.none(1, &[0x1b, 0, 0, 0, 1, 0]).status, 0);
    assert_eq!(rig.none(1, &[0; 6]).status, 0);
}
