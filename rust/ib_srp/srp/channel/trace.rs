// SPDX-License-Identifier: GPL-2.0

//! The arguments of the trace events of commands; see [`crate::trace`].
//!
//! The arguments of an event are computed in a separate function, called only while the event is
//! enabled. Inlined, the computation would cost the caller registers.

use super::Channel;
use crate::{
    scsi::ScsiResult,
    srp::{
        logic::{
            data_path::DataPath,
            slot_state::Word,
            tag::Tag, //
        },
        mapping,
        proto::{
            cmd::Direction,
            ids::Lun, //
        },
        slot::Slot, //
    },
    trace, //
};

fn tag(channel: &Channel, word: Word, slot: &Slot) -> u64 {
    Tag::command(word.generation(), channel.index(), slot.index).map_or(0, Tag::to_wire)
}

/// The LUN as a number.
pub(super) fn lun(lun: Lun) -> u64 {
    u64::from_be_bytes(lun.0)
}

/// The 8-byte halves of a CDB, padded with zeros as in the message.
fn cdb(cdb: &[u8]) -> [u64; 2] {
    [0, 8].map(|first| {
        let mut half = [0; 8];
        for (to, from) in half.iter_mut().zip(cdb.iter().skip(first)) {
            *to = *from;
        }
        u64::from_be_bytes(half)
    })
}

fn direction(direction: Direction) -> u8 {
    match direction {
        Direction::None => 0,
        Direction::ToDevice => 1,
        Direction::FromDevice => 2,
    }
}

/// The number of a data path; both dynamic ones have the same.
fn path(path: DataPath) -> u8 {
    (path as u8).min(DataPath::DynamicWrite as u8)
}

macro_rules! events {
    ($($(#[$doc:meta])* $event:ident($($argument:ident: $type:ty),*) $log:block)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $event($($argument: $type),*) {
            #[cold]
            #[inline(never)]
            fn log($($argument: $type),*) $log

            if trace::$event::is_on() {
                log($($argument),*);
            }
        }
    )*};
}

events! {
    /// The command of a slot is about to be posted.
    send(channel: &Channel, slot: &Slot, word: Word) {
        let blk_mq = slot.tag;
        let cmd = slot.handle.get();
        let [cdb_high, cdb_low] = cmd.map_or([0; 2], |cmd| cdb(cmd.cdb()));
        trace::send::log(
            channel.host(),
            channel.index(),
            tag(channel, word, slot),
            lun(slot.lun),
            blk_mq.hw_queue,
            blk_mq.index,
            cdb_high,
            cdb_low,
            cmd.map_or(0, |cmd| cmd.data_len()),
            cmd.map_or(0, |cmd| direction(mapping::direction(cmd))),
            path(slot.path),
            // CAST: No command has more than a few hundred segments.
            slot.handle.segments().count() as u16,
        );
    }

    /// The target has finished the command.
    response(channel: &Channel, slot: &Slot, word: Word, result: ScsiResult) {
        let tag = tag(channel, word, slot);
        trace::response::log(channel.host(), channel.index(), tag, result.number());
    }

    /// The invalidation of the command's data is about to be posted.
    invalidate(channel: &Channel, slot: &Slot, word: Word) {
        trace::invalidate::log(channel.host(), channel.index(), tag(channel, word, slot));
    }

    /// The command goes back to the midlayer.
    done(channel: &Channel, slot: &Slot, word: Word, result: ScsiResult) {
        let tag = tag(channel, word, slot);
        trace::done::log(channel.host(), channel.index(), tag, result.number());
    }
}
