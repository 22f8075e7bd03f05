// SPDX-License-Identifier: GPL-2.0

//! Common steps of the tests of one fault: start, wait, write, read, check.

use super::{
    initiator::{self, Kind},
    Item, Node, World, TARGET,
};
use wss::{
    message::Message,
    rs::{self, Work},
};

pub const SE: Node = Node::Se;
pub const A: Node = Node::Initiator(0);

/// Parameters of an RS apart from the world.
pub fn settings() -> rs::Settings {
    rs::Settings {
        number: 1,
        id: TARGET,
        boot: 9,
    }
}

pub fn seeds() -> std::ops::Range<u64> {
    0..60
}

pub fn up(seed: u64, ces: usize, initiators: usize) -> World {
    begin(World::new(seed, ces, initiators))
}

/// The same with logins to the RSs, too.
pub fn up_direct(seed: u64, ces: usize, initiators: usize) -> World {
    let mut world = World::new(seed, ces, initiators);
    world.direct = true;
    begin(world)
}

pub fn begin(mut world: World) -> World {
    let channels = world.ces.len() + if world.direct { world.disks.len() } else { 0 };
    world.until("all CEs are attached", 60_000, |w| {
        w.ces
            .iter()
            .all(|ce| ce.engine.as_ref().unwrap().attached())
    });
    world.until("all are logged in", 60_000, |w| {
        let all = |i: &initiator::Initiator| i.up() && i.reach() == channels;
        w.initiators.iter().all(all)
    });
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
