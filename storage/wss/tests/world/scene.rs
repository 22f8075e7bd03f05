// SPDX-License-Identifier: GPL-2.0

//! Common steps of the tests of one fault: start, wait, write, read, check.

use super::{
    initiator::{self, Kind},
    Item, Node, World,
};
use wss::{message::Message, rs::Work};

pub const SE: Node = Node::Se;
pub const A: Node = Node::Initiator(0);

pub fn seeds() -> std::ops::Range<u64> {
    0..60
}

pub fn up(seed: u64, ces: usize, initiators: usize) -> World {
    let mut world = World::new(seed, ces, initiators);
    world.until("all CEs are attached", 60_000, |w| {
        w.ces
            .iter()
            .all(|ce| ce.engine.as_ref().unwrap().attached())
    });
    world.until("all are logged in", 60_000, |w| {
        w.initiators.iter().all(|i| i.up() && i.reach() == ces)
    });
    assert_eq!(world.initiators.len(), initiators);
    world
}

/// Ends all faults and checks all blocks.
pub fn done(mut world: World) {
    world.heal();
    world.judge();
}

pub fn quiet(world: &mut World) {
    world.until("all is answered", 100_000, |w| {
        w.initiators.iter().all(|i| i.idle())
    });
}

pub fn write(world: &mut World, lba: u64, count: u64) {
    initiator::want(world, 0, Kind::Write, lba, count, false);
}

pub fn read(world: &mut World, lba: u64, count: u64) {
    initiator::want(world, 0, Kind::Read, lba, count, false);
}

/// Whether a message that `what` accepts is in flight from one node to another.
pub fn on_its_way(world: &World, from: Node, to: Node, what: impl Fn(&Message) -> bool) -> bool {
    world.between(from, to).iter().any(|(id, side)| {
        world.queue(*id, *side).any(|item| match item {
            Item::Message(bytes, _) => Message::parse(bytes).is_ok_and(|m| what(&m)),
            _ => false,
        })
    })
}

pub fn is_exec(m: &Message) -> bool {
    matches!(m, Message::Exec(_))
}

/// Whether a write to a file is in progress.
pub fn writing(world: &World) -> bool {
    world.rss.iter().any(|rs| {
        rs.pending
            .iter()
            .any(|(_, w, _)| matches!(w, Work::Write { .. }))
    })
}
