// SPDX-License-Identifier: GPL-2.0

//! Several clients at once: one has the set, and the others log this and wait until it ends. SEEDS,
//! FIRST, SEED and TRACE as in random.rs.

use crate::world::{command::done, up, Who, World};
use xorset::{
    layout::NODES,
    link::LinkAction,
    map::Map,
    message::{Message, Role},
    node::Action,
};

/// Causes a fault of a client, usually of the one that has the set.
fn fault_of_client(world: &mut World) {
    let alive: Vec<_> = (0..world.seats.len())
        .filter(|c| world.alive(Who::Client(*c)))
        .collect();
    let ready = alive.iter().find(|c| world.seats[**c].ready).copied();
    let Some(any) = alive.get(world.rng.below(3) as usize).copied() else {
        return;
    };
    let c = ready.filter(|_| world.rng.below(4) != 0).unwrap_or(any);
    let (who, n) = (Who::Client(c), Who::Node(world.rng.below(5) as usize));
    world.note(|| format!("fault of {who:?}"));
    match world.rng.below(6) {
        0 => world.kill(who),
        1 | 2 => {
            world.frozen.insert(who);
        }
        3 => world.cut(who, Who::Etcd),
        4 => world.cut(who, n),
        // Only one node can reach the client.
        _ => world.partition(&[who, n]),
    }
}

fn fault_of_node(world: &mut World) {
    let n = world.rng.below(5) as usize;
    match world.rng.below(3) {
        0 => world.kill(Who::Node(n)),
        1 => {
            world.frozen.insert(Who::Node(n));
        }
        _ => world.hang_any(n),
    }
}

fn schedule(seed: u64) -> [u64; 5] {
    let mut rng = crate::world::Rng(seed ^ 0xc11e);
    let (clients, rate) = (2 + rng.below(2) as usize, 100 + rng.below(500));
    let nodes = rng.one_in(2);
    let mut world = up(seed, 1 + rng.below(3));
    // All clients use the same few blocks.
    let span = [3, 12, 40][rng.below(3) as usize];
    for _ in 0..30 {
        for _ in 0..3 {
            if world.commands.len() < 8 {
                world.command_any(span);
            }
        }
        for _ in 0..120 {
            world.step();
            if world.rng.one_in(rate) {
                match nodes && world.rng.one_in(3) {
                    true => fault_of_node(&mut world),
                    false => fault_of_client(&mut world),
                }
            }
            let alive = world.seats.iter().filter(|s| s.client.is_some()).count();
            if alive < clients && world.rng.one_in(60) {
                world.add_client();
            }
            match world.rng.below(600) {
                0 => world.cuts.clear(),
                1 => world.frozen.clear(),
                2..5 => {
                    let n = world.rng.below(5) as usize;
                    world.start(n);
                }
                _ => {}
            }
        }
    }
    let world = done(world);
    [
        world.answered,
        world.failed,
        world.served,
        world.late,
        world.history.judged,
    ]
}

#[test]
fn two_and_three_clients() {
    let names = [
        "commands answered",
        "failed",
        "clients served",
        "commands in flight at another one then",
        "blocks judged",
    ];
    let Some((seeds, [answered, _, served, late, judged])) =
        seeded::schedules(400, names, schedule)
    else {
        return;
    };
    // The schedules have exercised the code.
    assert!(answered > 20 * seeds && judged > 100 * seeds);
    assert!(served > 2 * seeds && late > seeds / 4);
}

/// A client with a longer lease serves for five sixths of it without etcd, and no other client has
/// the set meanwhile.
#[test]
fn a_longer_lease() {
    let mut world = up(4, 1);
    world.kill(Who::Client(0));
    world.settings.lease = 12_000;
    let (one, two) = (world.add_client(), world.add_client());
    world.until("one has the set", 30_000, |w| w.seat().is_some());
    let first = world.seat().unwrap();
    let cut = world.now;
    world.cut(Who::Client(first), Who::Etcd);
    world.until("8 s are over", 8500, |w| w.now >= cut + 8000);
    world.command(first, 5, 4, true);
    world.quiet();
    assert_eq!(world.seat(), Some(first));
    world.until("its end", 2000, |w| !w.alive(Who::Client(first)));
    assert!(world.now <= cut + 10_100);
    assert!(!world.seats[one + two - first].ready);
    world.until("another one is there", 30_000, |w| w.seat().is_some());
    done(world);
}

/// A waiting client logs once per client that it waits for.
#[test]
fn who_waits_says_for_whom() {
    let mut world = up(1, 1);
    world.add_client();
    world.add_client();
    let waits = |world: &World, seat: usize, other: usize| {
        let (me, other) = (world.seats[seat].id, world.seats[other].id);
        let line = format!("client {other} has the set: this one, {me}, waits for its end");
        world.seats[seat]
            .said
            .iter()
            .filter(|s| **s == line)
            .count()
    };
    let end = world.now + 9000;
    world.until("a while is over", 9500, |w| w.now >= end);
    assert_eq!((waits(&world, 1, 0), waits(&world, 2, 0)), (1, 1));
    assert!(!world.seats[1].ready && !world.seats[2].ready);
    world.kill(Who::Client(0));
    world.until("another one is there", 30_000, |w| w.seat().is_some());
    let seat = world.seat().unwrap();
    let end = world.now + 3000;
    world.until("a while is over", 3500, |w| w.now >= end);
    assert_eq!(waits(&world, 3 - seat, seat), 1);
    done(world);
}

/// A client of another set is given the nodes of this set by mistake, and gets none of them.
#[test]
fn a_client_of_another_set() {
    let mut world = up(2, 1);
    let stray = world.add_client();
    world.seats[stray].stray = true;
    for _ in 0..12 {
        for lba in [0, 5, 9] {
            world.command(0, lba, 4, true);
        }
        world.quiet();
    }
    let end = world.now + 9000;
    world.until("a while is over", 9500, |w| w.now >= end);
    assert!(!world.seats[stray].ready);
    let said = &world.seats[stray].said;
    assert!(
        said.iter().any(|s| s.ends_with("is --set its name?")),
        "{said:?}"
    );
    world.kill(Who::Client(stray));
    done(world);
}

/// Clients of two sets are given the same new files. At most one set gets them.
#[test]
fn two_sets_with_the_same_new_nodes() {
    let (mut one, mut none) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, 1);
        let other = world.add_client();
        world.seats[other].stray = true;
        let end = world.now + 12_000;
        while world.now < end {
            world.step();
        }
        match (world.seats[0].ready, world.seats[other].ready) {
            (true, true) => panic!("seed {seed}: both have the set"),
            (false, false) => none += 1,
            _ => one += 1,
        }
    }
    println!("{one} times one of them, {none} times none");
    assert!(one > 0);
}

/// A node of one set rejects another set, also after a restart.
#[test]
fn a_map_of_another_set_is_refused() {
    for started in [false, true] {
        let mut world = up(3, 1);
        if started {
            world.kill(Who::Node(1));
            world.start(1);
        }
        let ours = Map::parse(&world.etcd.map.clone().unwrap().1).unwrap();
        for (set, new) in [
            (ours.set + 1, false),
            (ours.set + 1, true),
            (ours.set, false),
        ] {
            let node = world.slots[1].node.as_mut().unwrap();
            let (epoch, peer) = (ours.epoch + 1, 1 << 40);
            let mut map = Map::first(7, ours.size);
            (map.epoch, map.set, map.new, map.since) = (epoch, set, new, [1; NODES]);
            node.connected(peer);
            node.message(peer, &Message::Attach { role: Role::Client }.build(), &[]);
            let message = Message::Epoch { epoch }.build();
            node.message(peer, &message, map.text().as_bytes());
            let closed =
                |a: &Action| matches!(a, Action::Link(LinkAction::Close { peer: p }) if *p == peer);
            let refused = node.actions().iter().any(closed);
            assert_eq!(refused, set != ours.set);
        }
    }
}
