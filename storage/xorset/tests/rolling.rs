// SPDX-License-Identifier: GPL-2.0

//! Each node and the client are stopped and started again under I/O, as an update of the package
//! does. Checks their status, too.

use crate::world::{
    command::{done, some_commands, steps},
    up, Who, World,
};
use serde_json::Value;
use xorset::{layout::NODES, map::State};

fn whole(world: &World) -> bool {
    let seat = world.seat().map(|s| &world.seats[s]);
    seat.is_some_and(|s| s.client.as_ref().is_some_and(|c| c.whole()))
}

/// Some commands and events.
fn busy(world: &mut World, rounds: u64) {
    for _ in 0..rounds {
        if world.commands.len() < 8 {
            some_commands(world, 2);
        }
        steps(world, 60);
    }
}

/// A restart of a node takes less than the 4 s after which it would be excluded: it waits for its
/// operations, and begins with its log.
fn restart(world: &mut World, n: usize) {
    let end = world.now + 1500;
    while world.now < end && !world.slots[n].node.as_ref().is_some_and(|n| n.idle()) {
        world.step();
    }
    world.kill(Who::Node(n));
    let end = world.now + world.rng.below(1000);
    while world.now < end {
        busy(world, 1);
    }
    world.start(n);
}

#[test]
fn every_role_is_restarted_under_io() {
    for seed in 0..40 {
        let mut world = up(seed, 2);
        for n in 0..NODES {
            busy(&mut world, 10);
            restart(&mut world, n);
            busy(&mut world, 10);
            world.quiet();
            world.until("the set is whole", 20_000, whole);
        }
        // No node was excluded: all were admitted in the first epoch.
        let map = world.etcd.map.as_ref().unwrap().1.clone();
        assert_eq!(map.matches(" u1").count(), NODES, "{map}");
        let other = world.add_client();
        busy(&mut world, 10);
        world.kill(Who::Client(0));
        world.until("the other client has the set", 30_000, |w| {
            w.seat() == Some(other)
        });
        busy(&mut world, 10);
        world.quiet();
        assert_eq!(world.failed, 0);
        done(world);
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

#[test]
fn roles_tell_of_themselves() {
    let mut world = up(2, 3);
    some_commands(&mut world, 20);
    world.quiet();
    let of = |world: &World, c: usize| world.seats[c].client.as_ref().unwrap().status();
    world.until("the set is whole", 20_000, whole);
    let client = of(&world, 0);
    assert_eq!(
        (&client["state"], &client["stripes"]),
        (&"serving".into(), &3.into())
    );
    assert_eq!(
        (&client["open"], &client["whole"]),
        (&true.into(), &true.into())
    );
    for (n, node) in list(&client, "nodes").iter().enumerate() {
        assert_eq!(
            (&node["state"], &node["connected"]),
            (&"up".into(), &true.into())
        );
        assert_eq!(node["stripes_to_rebuild"], 0);
        let own = world.slots[n].node.as_ref().unwrap().status();
        assert_eq!(
            (&own["state"], &own["number"]),
            (&"serving".into(), &n.into())
        );
        assert_eq!(
            (&own["epoch"], &own["set"]),
            (&client["epoch"], &client["set"])
        );
        assert!(own["log"]["records"].as_u64() > Some(0));
        assert_eq!(list(&own, "nodes").len(), NODES - 1);
    }
    let other = world.add_client();
    world.until("it waits", 5000, |w| {
        of(w, other)["state"] == "waiting for the set"
    });

    world.lose(3);
    world.until("node 3 is out", 30_000, |w| {
        w.states().is_some_and(|s| s[3] == State::Out)
    });
    let client = of(&world, 0);
    assert_eq!(client["whole"], false);
    assert_eq!(list(&client, "nodes")[3]["state"], "out");
    world.start(3);
    world.until("the rebuild begins", 60_000, |w| {
        list(&of(w, 0), "nodes")[3]["state"] == "rebuilding"
    });
    let left = |w: &World| list(&of(w, 0), "nodes")[3]["stripes_to_rebuild"].as_u64();
    assert_eq!(left(&world), Some(3));
    world.until("the rebuild ends", 60_000, |w| {
        left(w) == Some(0) && whole(w)
    });
    done(world);
}
