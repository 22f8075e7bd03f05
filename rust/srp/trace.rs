// SPDX-License-Identifier: GPL-2.0

//! What the trace events say of commands; see [`crate::trace`].
//!
//! Whoever calls these keeps no local variable in memory for it: they get the channel, the slot, and numbers.

use super::{
    channel::Channel,
    logic::{
        registration::Way,
        tag::Tag, //
    },
    mapping,
    proto::{
        cmd::Direction,
        ids::Lun, //
    },
    slot::{
        Owner,
        Slot, //
    }, //
};
use crate::{
    scsi::ScsiResult,
    trace::trace, //
};

fn tag(channel: &Channel, generation: u32, index: u16) -> u64 {
    Tag::command(generation, channel.index(), index).map_or(0, Tag::to_wire)
}

/// A unit's number.
pub fn lun(lun: Lun) -> u64 {
    u64::from_be_bytes(lun.0)
}

fn direction(direction: Direction) -> u8 {
    match direction {
        Direction::None => 0,
        Direction::ToDevice => 1,
        Direction::FromDevice => 2,
    }
}

fn way(way: Way) -> u8 {
    match way {
        Way::None => 0,
        Way::Immediate => 1,
        Way::Static => 2,
        Way::Dynamic => 3,
    }
}

/// The command of a slot has a credit.
#[inline(always)]
pub fn queue(channel: &Channel, slot: &Slot, generation: u32, owner: Owner) {
    let Owner { hw_queue, index } = owner;
    trace!(queue(
        channel.host(),
        channel.index(),
        tag(channel, generation, slot.index),
        lun(slot.lun),
        hw_queue,
        index,
        slot.handle
            .get()
            .and_then(|cmd| cmd.cdb().first().copied())
            .unwrap_or(0),
        slot.handle.get().map_or(0, |cmd| cmd.data_len()),
        slot.handle
            .get()
            .map_or(0, |cmd| direction(mapping::direction(cmd))),
    ));
}

/// Its message is written.
#[inline(always)]
pub fn map(channel: &Channel, slot: &Slot, generation: u32) {
    trace!(map(
        channel.host(),
        channel.index(),
        tag(channel, generation, slot.index),
        way(slot.way),
        // CAST: No command has more than some hundreds.
        slot.handle.segments().count() as u16,
    ));
}

/// It has been posted, and the slot may have gone on.
#[inline(always)]
pub fn send(channel: &Channel, generation: u32, index: u16) {
    trace!(send(
        channel.host(),
        channel.index(),
        tag(channel, generation, index)
    ));
}

/// The target is done with it.
#[inline(always)]
pub fn response(channel: &Channel, slot: &Slot, generation: u32) {
    trace!(response(
        channel.host(),
        channel.index(),
        tag(channel, generation, slot.index),
        slot.result.number(),
    ));
}

/// Its invalidation has been posted, and the slot may have gone on.
#[inline(always)]
pub fn invalidate(channel: &Channel, generation: u32, index: u16) {
    trace!(invalidate(
        channel.host(),
        channel.index(),
        tag(channel, generation, index)
    ));
}

/// It goes back to the midlayer.
#[inline(always)]
pub fn done(channel: &Channel, slot: &Slot, generation: u32, result: ScsiResult) {
    trace!(done(
        channel.host(),
        channel.index(),
        tag(channel, generation, slot.index),
        result.number(),
    ));
}
