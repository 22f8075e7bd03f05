// SPDX-License-Identifier: GPL-2.0

//! A slot: the fields of its command that other threads read without holding the slot.

use crate::channel::pd;
use loom::thread;
use srp_loom::{
    model,
    rdma::{dma::Chunk, mr::Regions},
    scsi::{Command, Tag},
    srp::{
        logic::slot_state::{Event, State},
        proto::ids::Lun,
        slot::{Cell, Slot},
    },
};
use std::sync::Arc;

fn cell() -> Arc<Cell> {
    let (_, handles) = Regions::new::<Command>(&pd(), 1, 1).unwrap();
    let handle = handles.into_iter().next().expect("one");
    Arc::new(Cell::new(Slot::new(0, Chunk::new(64), handle, None)))
}

fn tag(index: u16) -> Tag {
    Tag { hw_queue: 0, index }
}

fn lun(number: u8) -> Lun {
    Lun([0, number, 0, 0, 0, 0, 0, 0])
}

/// Sends two commands, one after the other.
fn two_commands(cell: &Cell) {
    for number in 1..3u8 {
        let slot = cell
            .claim(|| 0, lun(number).to_int(), tag(number.into()))
            .expect("free");
        slot.release_after(Event::Post);
        if number == 1 {
            let slot = cell.take_from(cell.word(), Event::Respond).expect("posted");
            slot.release_after(Event::Finish);
        }
    }
}

/// A lookup by blk-mq's tag never returns a command with another tag.
#[test]
fn slot_of_tag() {
    model("slot_of_tag", 3, || {
        let cell = cell();
        let sender = {
            let cell = cell.clone();
            thread::spawn(move || two_commands(&cell))
        };
        if let Some(word) = cell.of_tag(tag(1)) {
            // The command may have ended by now, but no other command had been sent at the lookup.
            assert_eq!(word.generation() as u16, 1);
        }
        sender.join().unwrap();
    });
}

/// A lookup by logical unit: once a command of another unit is sent, the lookup does not return the
/// slot.
#[test]
fn slot_for_unit() {
    model("slot_for_unit", 3, || {
        let cell = cell();
        let sender = {
            let cell = cell.clone();
            thread::spawn(move || two_commands(&cell))
        };
        if let Some(word) = cell.for_unit(lun(1)) {
            let sent = !matches!(word.state(), State::Free | State::Building);
            assert!(!sent || word.generation() as u16 == 1);
        }
        sender.join().unwrap();
        assert!(cell.for_unit(lun(1)).is_none() && cell.for_unit(lun(2)).is_some());
    });
}

/// A response whose command has already been taken back finds that the command was recalled.
#[test]
fn slot_recalled() {
    model("slot_recalled", 3, || {
        let cell = cell();
        let slot = cell.claim(|| 0, lun(1).to_int(), tag(1)).expect("free");
        let posted = slot.word().with_state(State::Posted);
        slot.release_after(Event::Post);
        let handler = {
            let cell = cell.clone();
            thread::spawn(move || {
                if cell.abort(posted) {
                    cell.recall(posted.generation());
                    let aborting = posted.with_state(State::Aborting);
                    if let Some(slot) = cell.take_from(aborting, Event::Respond) {
                        slot.release_after(Event::Finish);
                    }
                }
            })
        };
        let states = [State::Posted, State::Aborting];
        match states
            .iter()
            .find_map(|&s| cell.take_from(posted.with_state(s), Event::Respond))
        {
            Some(slot) => slot.release_after(Event::Finish),
            None => assert!(cell.is_recalled(posted.generation())),
        }
        handler.join().unwrap();
        assert_eq!(cell.word().state(), State::Free);
    });
}
