// SPDX-License-Identifier: GPL-2.0

//! The rebuild of a node: its pace, and the stripes that it needs.

use std::collections::BTreeSet;

use crate::world::{
    command::{done, some_commands},
    up, Who, World,
};
use xorset::{layout::DATA, map::State};

/// Waits until node 1 has this state.
fn is(world: &mut World, state: State) {
    world.until("node 1 has the state", 600_000, |w| {
        w.states().is_some_and(|s| s[1] == state)
    });
}

/// Node 1 dies and is excluded.
fn out(world: &mut World) {
    world.kill(Who::Node(1));
    is(world, State::Out);
    world.rebuilds.clear();
}

/// Node 1 is back. Returns the stripes that were rebuilt.
fn back(world: &mut World) -> BTreeSet<u64> {
    world.start(1);
    is(world, State::Up);
    assert!(world.rebuilds.iter().all(|(n, _)| *n == 1));
    world.rebuilds.iter().map(|(_, stripe)| *stripe).collect()
}

/// Opens a set, writes to each of its 20 stripes, and excludes node 1.
fn without_node(seed: u64) -> World {
    let mut world = up(seed, 20);
    for stripe in 0..20 {
        touch(&mut world, stripe);
    }
    out(&mut world);
    world
}

/// Writes to a stripe, at some cell.
fn touch(world: &mut World, stripe: u64) {
    let seat = world.seat().unwrap();
    let cells = stripe * DATA as u64 + world.rng.below(DATA as u64);
    world.command(seat, cells * u64::from(world.size.cell), 3, true);
    world.quiet();
}

/// The processes tick each 250 ms, as on a device: the rebuild does not wait for that.
#[test]
fn a_rebuild_does_not_wait_for_ticks() {
    const STRIPES: u64 = 40;
    for seed in 0..6 {
        let mut world = up(seed, STRIPES);
        world.pace = 250;
        some_commands(&mut world, 12);
        world.quiet();
        out(&mut world);
        world.lose(1);
        world.start(1);
        is(&mut world, State::Rebuilding);
        let begin = world.now;
        is(&mut world, State::Up);
        let each = (world.now - begin) / STRIPES;
        println!("{each} ms a stripe");
        assert!(each < 60, "{each}");
        done(world);
    }
}

/// `--pause` bounds the rate of a rebuild.
#[test]
fn a_pause_bounds_a_rebuild() {
    let mut world = up(1, 40);
    world.pace = 250;
    world.settings.pause = 100;
    world.kill(Who::Client(0));
    world.add_client();
    world.until("the set is open", 60_000, |w| w.seat().is_some());
    out(&mut world);
    world.lose(1);
    world.start(1);
    is(&mut world, State::Rebuilding);
    let begin = world.now;
    is(&mut world, State::Up);
    let each = (world.now - begin) / 40;
    assert!((85..150).contains(&each), "{each}");
    done(world);
}

/// A node that comes back with its file gets the stripes that were written without it, and those
/// with a write in flight when it died.
#[test]
fn only_what_has_changed_is_rebuilt() {
    for seed in 0..40 {
        let mut world = up(seed, 40);
        for stripe in 0..40 {
            touch(&mut world, stripe);
        }
        let seat = world.seat().unwrap();
        let cell = u64::from(world.size.cell);
        world.command(seat, 30 * DATA as u64 * cell, 9, true);
        out(&mut world);
        world.quiet();
        for stripe in [3, 17, 5] {
            touch(&mut world, stripe);
        }
        let rebuilt = back(&mut world);
        assert!(
            rebuilt.is_superset(&BTreeSet::from([3, 5, 17])),
            "{rebuilt:?}"
        );
        assert!(
            rebuilt.is_subset(&BTreeSet::from([3, 5, 17, 30])),
            "{rebuilt:?}"
        );
        // The same again: the last rebuild has left nothing.
        out(&mut world);
        touch(&mut world, 8);
        assert_eq!(back(&mut world), BTreeSet::from([8]));
        done(world);
    }
}

/// A node that dies during a rebuild needs the remaining stripes, and those written meanwhile.
#[test]
fn a_rebuild_goes_on() {
    for seed in 0..40 {
        let mut world = up(seed, 40);
        out(&mut world);
        for stripe in 0..30 {
            touch(&mut world, stripe);
        }
        world.start(1);
        world.until("some are rebuilt", 60_000, |w| w.rebuilds.len() > 12);
        out(&mut world);
        touch(&mut world, 0);
        touch(&mut world, 39);
        let rebuilt = back(&mut world);
        assert!(
            rebuilt.is_superset(&BTreeSet::from([0, 29, 39])),
            "{rebuilt:?}"
        );
        assert!(rebuilt.len() < 26, "{rebuilt:?}");
        done(world);
    }
}

/// All stripes are rebuilt if the node has another file, or another client has taken over.
#[test]
fn all_is_rebuilt() {
    for seed in 0..20 {
        let mut world = without_node(seed);
        if seed % 2 == 0 {
            world.lose(1);
        } else {
            let seat = world.seat().unwrap();
            world.kill(Who::Client(seat));
            world.add_client();
            world.until("the set is open", 60_000, |w| w.seat().is_some());
        }
        assert_eq!(back(&mut world).len(), 20);
        done(world);
    }
}

/// The file of a node is replaced after it is admitted, and before it hears of that.
#[test]
fn a_file_is_replaced_as_its_node_is_admitted() {
    for seed in 0..20 {
        let mut world = without_node(seed);
        touch(&mut world, 7);
        world.start(1);
        // At the first step after this the node has not settled.
        world.until("the node is admitted", 60_000, |w| {
            let map = w.seats[0].client.as_ref().and_then(|c| c.map());
            map.is_some_and(|m| m.states[1] == State::Rebuilding)
        });
        world.lose(1);
        assert_eq!(back(&mut world).len(), 20);
        done(world);
    }
}
