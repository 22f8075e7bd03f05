// SPDX-License-Identifier: GPL-2.0

//! Bad blocks: a sector of a node's file cannot be read, or has changed without notice.

use crate::world::{command::done, up, Who, World};
use xorset::{
    layout::{column, Cell, DATA, NODES, ROWS},
    map::{Map, State},
};

const STRIPES: u64 = 3;

/// A set with data in all blocks, none of it only in a log.
fn full(seed: u64) -> World {
    let mut world = up(seed, STRIPES);
    let seat = world.seat().unwrap();
    for lba in (0..world.size.blocks()).step_by(8) {
        world.command(seat, lba, 8, true);
        world.quiet();
    }
    wait(&mut world, 1000);
    world
}

fn wait(world: &mut World, ms: u64) {
    let end = world.now + ms;
    world.until("the time is over", ms + 1000, |w| w.now >= end);
}

fn read_all(world: &mut World) {
    let seat = world.seat().unwrap();
    for lba in (0..world.size.blocks()).step_by(4) {
        world.command(seat, lba, 4, false);
        world.quiet();
    }
}

fn repaired(world: &World) -> u64 {
    let client = world.seats[world.seat().unwrap()].client.as_ref();
    client.unwrap().repaired().iter().sum()
}

/// Bad blocks on each node in turn, in data and parities: every read succeeds, the blocks are
/// written again, and no node ends or is excluded.
#[test]
fn bad_blocks_are_computed_and_written_again() {
    for seed in 0..40 {
        let mut world = full(seed);
        let (n, row) = ((seed % 5) as usize, seed / 5 % 4);
        let at = world.offset(seed % STRIPES, row, seed % 4);
        match seed % 2 {
            0 => world.slots[n].disk.spoil(at),
            _ => world.slots[n].disk.rot(at + 77),
        }
        read_all(&mut world);
        world.until("the block is written again", 20_000, |w| repaired(w) == 1);
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        assert_eq!(world.states(), Some([State::Up; NODES]));
        assert_eq!(world.slots[n].disk.bad(), 0);
        done(world);
    }
}

/// A checksum that cannot be read is one more bad block.
#[test]
fn bad_checksums_are_written_again() {
    for seed in 0..10 {
        let mut world = full(seed);
        let n = (seed % 5) as usize;
        let all = STRIPES * ROWS as u64 * u64::from(world.size.cell);
        let cells = world.offset(0, 0, 0) + all * 512;
        let at = cells.next_multiple_of(4096) + 4 * (seed % all);
        match seed % 2 {
            0 => world.slots[n].disk.spoil(at),
            _ => world.slots[n].disk.rot(at),
        }
        read_all(&mut world);
        world.until("all is written again", 20_000, |w| {
            repaired(w) > 0 && w.slots[n].disk.bad() == 0
        });
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        done(world);
    }
}

/// Nodes find bad blocks that no command reads.
#[test]
fn a_scrub_finds_bad_blocks() {
    for seed in 0..10 {
        let mut world = full(seed);
        for n in 0..2 {
            let at = world.offset(n, seed % 4, 1);
            world.slots[n as usize].disk.spoil(at);
        }
        world.until("both are written again", 20_000, |w| repaired(w) == 2);
        assert!(world.slots.iter().all(|p| p.disk.bad() == 0));
        done(world);
    }
}

/// A write needs the old content of a bad block of its cell.
#[test]
fn a_write_to_bad_blocks() {
    for seed in 0..40 {
        let mut world = full(seed);
        let (stripe, data) = (seed % STRIPES, (seed % DATA as u64) as u8);
        let cell = Cell::data(data);
        let n = xorset::layout::node(stripe, cell.column);
        world.slots[n]
            .disk
            .spoil(world.offset(stripe, u64::from(cell.row), 1));
        let seat = world.seat().unwrap();
        let size = u64::from(world.size.cell);
        let lba = (stripe * DATA as u64 + u64::from(data)) * size;
        world.command(seat, lba, size, true);
        world.command(seat, lba, size, false);
        world.quiet();
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        done(world);
    }
}

/// A parity with a bad block takes a delta without its content: the write succeeds, and the node
/// gets the stripe anew. It is not excluded.
#[test]
fn a_write_with_a_bad_parity() {
    for seed in 0..20 {
        let mut world = full(seed);
        let (stripe, cell) = (seed % STRIPES, Cell::data((seed % DATA as u64) as u8));
        let parity = cell.parities()[seed as usize % 2];
        let n = xorset::layout::node(stripe, parity.column);
        assert_eq!(column(stripe, n), parity.column);
        let at = world.offset(stripe, u64::from(parity.row), 0);
        world.slots[n].disk.spoil(at);
        let seat = world.seat().unwrap();
        let lba = (stripe * DATA as u64 + seed % DATA as u64) * u64::from(world.size.cell);
        world.command(seat, lba, 2, true);
        world.quiet();
        // What the sector returns does not count, even if it is the old content.
        if seed % 4 == 0 {
            world.slots[n].disk.mend(at);
        }
        world.until("the stripe is written again", 20_000, |w| repaired(w) == 1);
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        assert_eq!(world.states(), Some([State::Up; NODES]));
        done(world);
    }
}

/// Bad parities on three nodes, each in another stripe: writes go on, and no node is excluded.
#[test]
fn writes_with_bad_parities_on_three_nodes() {
    for seed in 0..20 {
        let mut world = full(seed);
        let seat = world.seat().unwrap();
        for stripe in 0..STRIPES {
            let cell = Cell::data(((seed + stripe) % DATA as u64) as u8);
            let parity = cell.parities()[1];
            let n = xorset::layout::node(stripe, parity.column);
            let at = world.offset(stripe, u64::from(parity.row), 1);
            world.slots[n].disk.spoil(at);
            let data = stripe * DATA as u64 + (seed + stripe) % DATA as u64;
            world.command(seat, data * u64::from(world.size.cell), 3, true);
        }
        world.quiet();
        world.until("all are written again", 20_000, |w| repaired(w) == STRIPES);
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        assert_eq!(world.states(), Some([State::Up; NODES]));
        done(world);
    }
}

/// While one node is out, another has a bad block: all blocks are read, and the first node is
/// rebuilt.
#[test]
fn a_bad_block_and_a_lost_node() {
    for seed in 0..40 {
        let mut world = full(seed);
        let (gone, n) = (
            (seed % 5) as usize,
            ((seed + 1 + seed / 5 % 4) % 5) as usize,
        );
        world.lose(gone);
        world.until("a node is out", 60_000, |w| {
            w.states().is_some_and(|s| s[gone] == State::Out)
        });
        world.slots[n]
            .disk
            .spoil(world.offset(seed % STRIPES, seed / 3 % 4, 2));
        read_all(&mut world);
        world.start(gone);
        world.until("all are up", 60_000, |w| {
            w.states().is_some_and(|s| s == [State::Up; NODES])
        });
        assert_eq!((world.failed, world.ended.len()), (0, 0));
        done(world);
    }
}

/// With two nodes out only blocks that need the bad one are lost: the nodes return, commands that
/// need these blocks fail at once, all others are executed, also when a third node is lost.
#[test]
fn a_bad_block_and_two_lost_nodes() {
    for seed in 0..10 {
        let mut world = full(seed);
        for gone in 0..2 {
            world.lose(gone);
        }
        world.until("both are out", 60_000, |w| {
            w.states()
                .is_some_and(|s| s[0] == State::Out && s[1] == State::Out)
        });
        world.slots[2].disk.spoil(world.offset(1, seed % 4, 0));
        world.start(0);
        world.start(1);
        world.until("both are back", 60_000, |w| {
            w.states().is_some_and(|s| s == [State::Up; NODES])
        });
        let seat = world.seat().unwrap();
        let incomplete = world.seats[seat].client.as_ref().unwrap().incomplete();
        assert!((1..=2).contains(&incomplete), "{incomplete}");
        assert_eq!(world.ended.len(), 0);
        // A third loss, after the next client's takeover.
        world.kill(Who::Client(seat));
        world.add_client();
        world.until("the set is open", 60_000, |w| w.seat().is_some());
        world.lose(3);
        world.until("it is out", 60_000, |w| {
            w.states().is_some_and(|s| s[3] == State::Out)
        });
        let seat = world.seat().unwrap();
        let cell = u64::from(world.size.cell);
        let cells = DATA as u64 * cell;
        for stripe in [0, 2] {
            for lba in (stripe * cells..(stripe + 1) * cells).step_by(4) {
                world.command(seat, lba, 4, true);
                world.command(seat, lba, 4, false);
                world.quiet();
            }
        }
        assert_eq!(world.failed, 0);
        // Block 0 of some cells is lost; what is read of the others is right, or refused.
        for data in 0..DATA as u64 {
            let begin = world.now;
            world.command(seat, cells + data * cell, 1, false);
            world.command(seat, cells + data * cell + 1, 1, false);
            world.quiet();
            assert!(
                world.now < begin + 3000,
                "the refusal takes {}",
                world.now - begin
            );
        }
        assert!(
            (1..=DATA as u64).contains(&world.failed),
            "{}",
            world.failed
        );
        assert!(world.alive(Who::Node(2)));
    }
}

/// The client ends before the blocks are written again: the next one takes the node for whole, so
/// no write has passed it over.
#[test]
fn the_client_ends_before_the_repair() {
    for seed in 0..20 {
        let mut world = full(seed);
        let (stripe, seat) = (seed % STRIPES, world.seat().unwrap());
        let cell = Cell::data(0);
        let n = xorset::layout::node(stripe, cell.column);
        let at = world.offset(stripe, u64::from(cell.row), 0);
        world.slots[n].disk.spoil(at);
        let lba = stripe * DATA as u64 * u64::from(world.size.cell);
        // The write waits for the read.
        world.command(seat, lba, 1, false);
        world.command(seat, lba, 3, true);
        let spoilt = |w: &World| w.seats[seat].said.iter().any(|s| s.contains("bad blocks"));
        world.until("the client knows", 5000, spoilt);
        // The node does not hear of the rebuild.
        world.mute = Some(n);
        wait(&mut world, 1000);
        world.kill(Who::Client(seat));
        world.mute = None;
        world.add_client();
        world.until("the set is open", 60_000, |w| w.seat().is_some());
        let seat = world.seat().unwrap();
        world.command(seat, lba + 1, 2, false);
        world.quiet();
        done(world);
    }
}

/// A rebuilt node has a bad block while its change to up is on the way to etcd. No write passes it
/// over: neither this client nor the next one reads old content.
#[test]
fn a_bad_block_as_a_node_gets_up() {
    for seed in 0..40 {
        let mut world = crate::world::World::new(seed, STRIPES);
        world.kill(Who::Client(0));
        world.settings.lease = 60_000;
        world.add_client();
        world.until("the set is open", 60_000, |w| w.seat().is_some());
        let seat = world.seat().unwrap();
        for lba in (0..world.size.blocks()).step_by(8) {
            world.command(seat, lba, 8, true);
            world.quiet();
        }
        let stripe = seed % STRIPES;
        let n = xorset::layout::node(stripe, 0);
        world.lose(n);
        world.until("the node is out", 60_000, |w| {
            w.states().is_some_and(|s| s[n] == State::Out)
        });
        world.start(n);
        world.until("it is rebuilt", 60_000, |w| w.rises(seat, n));
        world.cut(Who::Client(seat), Who::Etcd);
        world.slots[n].disk.spoil(world.offset(stripe, 0, 0));
        let lba = stripe * DATA as u64 * u64::from(world.size.cell);
        // The write waits for the read.
        world.command(seat, lba, 1, false);
        world.command(seat, lba, 3, true);
        let spoilt = |w: &World| w.seats[seat].said.iter().any(|s| s.contains("bad blocks"));
        world.until("the client knows", 5000, spoilt);
        // The next client takes over before the stripe is rebuilt.
        let next = seed % 2 == 0;
        world.mute = next.then_some(n);
        wait(&mut world, 1000);
        world.cuts.clear();
        world.until("etcd has the node up", 60_000, |w| {
            let map = w.etcd.map.as_ref().and_then(|(_, m)| Map::parse(m));
            map.is_some_and(|m| m.states[n] == State::Up)
        });
        if next {
            world.kill(Who::Client(seat));
            world.mute = None;
            world.add_client();
        }
        world.until("the set is open", 90_000, |w| w.seat().is_some());
        let seat = world.seat().unwrap();
        world.command(seat, lba + 1, 2, false);
        world.quiet();
        assert_eq!(world.failed, 0);
        done(world);
    }
}

/// `--pause` does not delay commands that wait for stripes with bad blocks.
#[test]
fn a_pause_does_not_delay_commands() {
    let mut world = crate::world::World::new(1, STRIPES);
    world.kill(Who::Client(0));
    world.settings.pause = 20_000;
    world.add_client();
    world.until("the set is open", 60_000, |w| w.seat().is_some());
    let seat = world.seat().unwrap();
    world.slots[0].disk.spoil(world.offset(0, 0, 0));
    world.slots[0].disk.spoil(world.offset(2, 1, 0));
    for lba in (0..world.size.blocks()).step_by(4) {
        world.command(seat, lba, 4, true);
    }
    world.quiet();
    assert_eq!(world.failed, 0);
    done(world);
}

/// Under load a sync is nearly always in flight; nodes find bad blocks all the same.
#[test]
fn a_scrub_finds_bad_blocks_under_load() {
    let mut world = full(1);
    let seat = world.seat().unwrap();
    let hang = crate::world::hang::Hang {
        until: world.now + 15_000,
        each: 900,
        reads: false,
        writes: false,
        syncs: true,
    };
    for n in 0..5 {
        world.hang(n, hang);
    }
    world.slots[0].disk.spoil(world.offset(2, 1, 0));
    let end = world.now + 15_000;
    while world.now < end && repaired(&world) == 0 {
        if world.commands.len() < 16 {
            let lba = world.rng.below(12 * 4);
            world.command(seat, lba, 1, true);
        }
        world.step();
    }
    assert_eq!(repaired(&world), 1);
    world.quiet();
    done(world);
}
