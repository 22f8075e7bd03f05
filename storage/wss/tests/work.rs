// SPDX-License-Identifier: GPL-2.0

//! What the SE does when a command ends is bound by what the end changes, and not by all commands.

use crate::world::{
    initiator::{self, Kind},
    scene::*,
    World,
};

/// Block of the first extent on the second RS, whose commands do not end in these tests.
const STUCK: u64 = 32;
/// Number of commands that wait.
const WAITING: usize = 5;

fn retries(world: &World) -> u64 {
    world.se.as_ref().unwrap().retries()
}

/// A world in which commands of the second initiator wait for an extent, until a command of the
/// first one ends: the CE of the extent does not reach the second initiator.
fn waiting(seed: u64) -> World {
    let mut world = up(seed, 2, 2);
    world.barred.push((1, 0));
    world.stuck.insert(1);
    read(&mut world, STUCK, 4);
    world.until("a read in the file", 20_000, |w| {
        !w.rss[1].pending.is_empty()
    });
    initiator::lose(&mut world, 1);
    world.until("a session with one CE", 60_000, |w| {
        w.initiators[1].up() && w.initiators[1].reach() == 1
    });
    for n in 0..WAITING as u64 {
        initiator::want(&mut world, 1, Kind::Read, STUCK + n % 4, 2, false);
    }
    world.until("commands that wait", 20_000, |w| {
        w.se.as_ref().unwrap().status()["commands_waiting"] == WAITING
    });
    world
}

#[test]
fn a_command_that_ends_retries_those_that_wait_for_it() {
    for seed in seeds() {
        let mut world = waiting(seed);
        let before = retries(&world);
        for lba in (0..STUCK).step_by(4).cycle().take(40) {
            write(&mut world, lba, 2);
            read(&mut world, lba + 2, 2);
            world.until("commands on other extents", 20_000, |w| {
                w.initiators[0].pending() == 1
            });
        }
        assert_eq!(
            retries(&world),
            before,
            "of those that wait for another one"
        );
        world.stuck.clear();
        quiet(&mut world);
        assert_eq!(retries(&world), before + WAITING as u64);
        done(world);
    }
}

/// The ends of sessions leave no command behind that waits.
#[test]
fn commands_that_wait_end_with_their_session() {
    for seed in seeds() {
        let mut world = waiting(seed);
        initiator::lose(&mut world, 1);
        world.until("no command that waits", 20_000, |w| {
            w.se.as_ref().unwrap().status()["commands_waiting"] == 0
        });
        done(world);
    }
}
