// SPDX-License-Identifier: GPL-2.0

//! Slow files, and the nodes that are excluded. The simulated world also checks each change of the
//! map: an excluded node must have had a fault.

use crate::world::{
    command::{done, some_commands, steps},
    hang::Hang,
    up, Who, World,
};
use xorset::{
    layout::{node, spans, NODES},
    map::State,
};

fn hang(world: &mut World, n: usize, ms: u64, main: bool) {
    let until = world.now + ms;
    world.hang(
        n,
        Hang {
            until,
            each: 0,
            reads: main,
            writes: main,
            syncs: true,
        },
    );
}

/// A block of a data cell of this node.
fn block_of(world: &World, n: usize) -> u64 {
    let mine = |lba: &u64| spans(&world.size, *lba, 1)[0].node() == n;
    (0..world.size.blocks()).find(mine).unwrap()
}

fn map(world: &World) -> String {
    world.etcd.map.clone().unwrap().1
}

/// Returns the nodes that have never been readmitted.
fn untouched(world: &World) -> Vec<usize> {
    let words = map(world);
    let words: Vec<_> = words.split(' ').skip(3).collect();
    (0..NODES).filter(|n| words[*n] == "u1").collect()
}

/// A node that waits for its file processes no answers meanwhile, or sends nothing that could be
/// answered. Only this node is excluded, and no command fails.
#[test]
fn who_waits_for_a_file_is_put_out_alone() {
    for n in 0..NODES {
        for turn in 0..6 {
            let mut world = up(100 + n as u64 * 10 + turn, 2);
            // At first only this node may have something to complain about.
            let seat = world.seat().unwrap();
            if turn % 2 == 0 {
                some_commands(&mut world, 10);
                steps(&mut world, 50);
            }
            hang(
                &mut world,
                n,
                [5000, 9000, 30_000][turn as usize / 2],
                turn % 2 == 0,
            );
            let lba = block_of(&world, n);
            world.command(seat, lba, 1, true);
            world.quiet();
            let end = world.now + 12_000;
            world.until("time", 20_000, |w| w.now >= end);
            assert_eq!(world.failed, 0);
            let world = done(world);
            let others: Vec<_> = (0..NODES).filter(|m| *m != n).collect();
            assert!(
                others.iter().all(|m| untouched(&world).contains(m)),
                "{}",
                map(&world)
            );
        }
    }
}

/// A slow file below the limit of exclusion does not make one node blame another.
#[test]
fn a_slow_file_is_no_fault_of_others() {
    for n in 0..NODES {
        for each in [50, 300, 900] {
            let mut world = up(200 + n as u64 * 10 + each, 2);
            let until = world.now + 30_000;
            world.hang(
                n,
                Hang {
                    until,
                    each,
                    reads: true,
                    writes: true,
                    syncs: true,
                },
            );
            for _ in 0..8 {
                some_commands(&mut world, 4);
                steps(&mut world, 400);
            }
            world.quiet();
            let world = done(world);
            assert!(untouched(&world).len() >= NODES - 1, "{}", map(&world));
        }
    }
}

/// One write waits for a node with a hanging file. Concurrent writes do not fill the logs of other
/// nodes.
#[test]
fn logs_do_not_fill_while_one_node_hangs() {
    for n in 0..NODES {
        let mut world = up(300 + n as u64, 4);
        let seat = world.seat().unwrap();
        // A cell of the owner with a parity on the node that hangs, and one without.
        let (mut stuck, mut free) = (None, None);
        for lba in (0..world.size.blocks()).step_by(4) {
            let span = spans(&world.size, lba, 4)[0];
            let owner = span.node();
            let parities = span.cell.parities().map(|c| node(span.stripe, c.column));
            if owner == (n + 1) % NODES {
                match parities.contains(&n) {
                    true => stuck = Some(lba),
                    false => free = Some(lba),
                }
            }
        }
        let (stuck, free) = (stuck.unwrap(), free.unwrap());
        hang(&mut world, n, 3000, false);
        world.command(seat, stuck, 4, true);
        let end = world.now + 3000;
        let mut count = 0;
        while world.now < end {
            if world.commands.len() < 2 {
                world.command(seat, free, 4, true);
                count += 1;
            }
            world.step();
        }
        world.quiet();
        assert_eq!(world.failed, 0);
        assert!(count > 10);
        done(world);
    }
}

/// A node receives no messages of the client for a while, and continues with deltas of other nodes.
/// It discards what it need not keep.
#[test]
fn a_log_does_not_fill_before_the_set_is_said_to_be_open() {
    for n in 0..NODES {
        let mut world = up(400 + n as u64, 4);
        // Another epoch. This node does not receive its OPEN.
        let other = (n + 2) % NODES;
        world.kill(Who::Node(other));
        let open = |w: &World| w.states().is_some_and(|s| s[other] == State::Out);
        world.until("it is open", 20_000, open);
        world.mute = Some(n);
        let seat = world.seat().unwrap();
        let writes = |w: &World, lba: u64| {
            let span = spans(&w.size, lba, 4)[0];
            let parities = span.cell.parities().map(|c| node(span.stripe, c.column));
            ![n, other].contains(&span.node()) && parities.contains(&n)
        };
        let list: Vec<u64> = (0..world.size.blocks())
            .step_by(4)
            .filter(|l| writes(&world, *l))
            .collect();
        let end = world.now + 2000;
        let mut count = 0;
        while world.now < end {
            if world.commands.len() < 4 {
                let lba = list[world.rng.below(list.len() as u64) as usize];
                world.command(seat, lba, 4, true);
                count += 1;
            }
            world.step();
        }
        assert!(count > 100, "{count}");
        world.mute = None;
        world.quiet();
        done(world);
    }
}

/// A node that is cut off from two others is excluded, whichever node complains first.
#[test]
fn one_of_three_that_do_not_reach_each_other() {
    for n in 0..NODES {
        for turn in 0..8 {
            let mut world = up(500 + n as u64 * 10 + turn, 2);
            for m in [(n + 1) % NODES, (n + 3) % NODES] {
                world.cut(Who::Node(n), Who::Node(m));
            }
            for _ in 0..8 {
                some_commands(&mut world, 5);
                steps(&mut world, 300);
            }
            world.quiet();
            let out = |w: &World| w.states().is_some_and(|s| s[n] == State::Out);
            world.until("it is out", 30_000, out);
            assert_eq!(world.failed, 0);
            let world = done(world);
            assert_eq!(untouched(&world).len(), NODES - 1, "{n}: {}", map(&world));
        }
    }
}

/// All nodes are away for longer than the grace period. None is excluded, as the set needs at least
/// three.
#[test]
fn all_are_away_for_a_while() {
    for seed in 600..620 {
        let mut world = up(seed, 2);
        some_commands(&mut world, 12);
        steps(&mut world, 100);
        world.power_loss();
        let end = world.now + 15_000;
        world.until("time", 20_000, |w| w.now >= end);
        let world = done(world);
        assert_eq!(untouched(&world).len(), NODES, "{}", map(&world));
    }
}

/// A node that is killed and restarted at once is not excluded, not even when its old key expires.
#[test]
fn a_start_within_three_seconds() {
    for seed in 700..760 {
        let mut world = up(seed, 1);
        let n = world.rng.below(5) as usize;
        some_commands(&mut world, 6);
        steps(&mut world, 60);
        world.kill(Who::Node(n));
        let at = world.now + world.rng.below(2500);
        world.until("time", 4000, |w| w.now >= at);
        world.start(n);
        let end = world.now + 8000;
        world.until("time", 20_000, |w| w.now >= end);
        let world = done(world);
        assert_eq!(untouched(&world).len(), NODES, "{}", map(&world));
    }
}

/// A client sleeps while it waits. When it takes over, it has received nothing from any node for
/// long, and excludes none.
#[test]
fn a_client_that_takes_over_gives_up_no_node() {
    for seed in 800..860 {
        let mut world = up(seed, 1);
        some_commands(&mut world, 6);
        world.add_client();
        steps(&mut world, 300);
        world.frozen.insert(Who::Client(1));
        let end = world.now + 6000;
        world.until("time", 20_000, |w| w.now >= end);
        world.kill(Who::Client(0));
        let end = world.now + 3500;
        world.until("time", 20_000, |w| w.now >= end);
        world.frozen.clear();
        let world = done(world);
        assert_eq!(untouched(&world).len(), NODES, "{}", map(&world));
    }
}

/// A node is admitted again while a client waits. When that client takes over, it does not use
/// older reports of the node.
#[test]
fn a_client_that_takes_over_knows_who_was_let_in() {
    for seed in 850..880 {
        let mut world = up(seed, 1);
        world.add_client();
        let n = world.rng.below(5) as usize;
        hang(&mut world, n, 6000, true);
        some_commands(&mut world, 12);
        let out = |w: &World| w.states().is_some_and(|s| s[n] == State::Out);
        world.until("it is out", 20_000, out);
        let whole = |w: &World| w.seats[0].client.as_ref().is_some_and(|c| c.whole());
        world.until("it is let in", 60_000, whole);
        let before = untouched(&world);
        let words = |w: &World| {
            map(w)
                .split(' ')
                .skip(3)
                .map(String::from)
                .collect::<Vec<_>>()
        };
        let since = words(&world);
        assert_eq!(before.len(), NODES - 1);
        let end = world.now + 10_000;
        world.until("time", 20_000, |w| w.now >= end);
        world.kill(Who::Client(0));
        let world = done(world);
        assert_eq!(words(&world), since);
    }
}

/// Two files hang one after the other: a command that needs both is done before its timeout.
#[test]
fn two_files_hang_one_after_the_other() {
    for seed in 900..940 {
        let mut world = up(seed, 2);
        let first = world.rng.below(5) as usize;
        let second = (first + 1 + world.rng.below(4) as usize) % NODES;
        some_commands(&mut world, 10);
        world.quiet();
        hang(&mut world, first, 60_000, seed % 2 == 0);
        some_commands(&mut world, 10);
        let end = world.now + 3800;
        world.until("time", 20_000, |w| w.now >= end);
        hang(&mut world, second, 60_000, seed % 4 < 2);
        some_commands(&mut world, 10);
        world.quiet();
        assert_eq!(world.failed, 0, "{seed}");
        done(world);
    }
}

/// A node with a file that still hangs is not admitted repeatedly, as all others would wait for it
/// each time.
#[test]
fn a_file_that_hangs_on() {
    for n in 0..NODES {
        let mut world = up(1000 + n as u64, 1);
        hang(&mut world, n, 80_000, false);
        let end = world.now + 70_000;
        while world.now < end {
            if world.commands.len() < 2 {
                some_commands(&mut world, 1);
            }
            for _ in 0..20 {
                world.step();
            }
        }
        let epoch: u64 = map(&world).split(' ').next().unwrap().parse().unwrap();
        assert!(epoch < 8, "{}", map(&world));
        world.quiet();
        assert_eq!(world.failed, 0);
        done(world);
    }
}

/// The map determines the size of the set. A file of another size is rejected with the option of
/// `xorset format` that differs, and is not changed.
#[test]
fn a_file_of_another_size() {
    for n in 0..NODES {
        for (cell, stripes, why) in [
            (4, 5, "--stripes 5 and not 2"),
            (4, 1, "--stripes 1 and not 2"),
            (8, 2, "--cell 4 and not 2"),
        ] {
            let mut world = up(1100 + n as u64, 2);
            some_commands(&mut world, 10);
            world.quiet();
            world.kill(Who::Node(n));
            let size = world.size;
            world.size = xorset::layout::Size { cell, stripes };
            world.slots[n].disk = world.blank(n);
            world.size = size;
            let before = world.slots[n].disk.content();
            // Also by a client that reaches this node first.
            world.kill(Who::Client(0));
            world.start(n);
            let opened = world.slots[n].disk.content();
            world.add_client();
            world.until("it is refused", 40_000, |w| !w.ended.is_empty());
            assert_eq!(world.ended.len(), 1);
            assert!(
                world.ended[0].0 == n && world.ended[0].1.contains(why),
                "{:?}",
                world.ended
            );
            assert_eq!(world.slots[n].disk.content(), opened);
            assert_eq!(before.len(), opened.len());
            world.until("the set goes on", 20_000, |w| {
                w.states().is_some_and(|s| s[n] == State::Out)
            });
            assert!(
                map(&world).split(' ').nth(3 + n).unwrap() == "o1",
                "{}",
                map(&world)
            );
            some_commands(&mut world, 10);
            world.quiet();
            assert_eq!(world.failed, 0);
            // A file with the size of the set is admitted.
            world.slots[n].disk = world.blank(n);
            world.start(n);
            done(world);
        }
    }
}
