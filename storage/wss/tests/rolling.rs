// SPDX-License-Identifier: GPL-2.0

//! Each role is stopped and started again under I/O, as an update of the package does. Checks the
//! status of the roles, too.

use crate::world::{initiator, scene::*, Node, World};
use serde_json::Value;

/// Some steps with random commands of all initiators.
fn busy(world: &mut World, steps: u64) {
    for step in 0..steps {
        for n in 0..world.initiators.len() {
            if step % 40 == 0 && world.initiators[n].pending() < 4 {
                initiator::want_any(world, n);
            }
        }
        world.step();
    }
}

fn idle(world: &World, node: Node) -> bool {
    match node {
        Node::Se => world.se.as_ref().is_some_and(|se| se.idle()),
        Node::Ce(n) => world.ces[n].engine.as_ref().is_some_and(|ce| ce.idle()),
        Node::Rs(n) => world.rss[n].store.as_ref().is_some_and(|rs| rs.idle()),
        Node::Initiator(_) => true,
    }
}

/// SIGTERM, at most 5 s until the role is idle, and a new process a moment later.
fn restart(world: &mut World, node: Node) {
    match node {
        Node::Se => world.se.as_mut().unwrap().shutdown(),
        Node::Ce(n) => world.ces[n].engine.as_mut().unwrap().shutdown(),
        _ => {}
    }
    world.pump(node);
    let end = world.now + 5000;
    while !idle(world, node) && world.now < end {
        busy(world, 1);
    }
    world.kill(node);
    let pause = world.now + world.rng.below(2500);
    while world.now < pause {
        busy(world, 1);
    }
    world.start(node);
}

fn attached(world: &World) -> bool {
    let up = |ce: &crate::world::CeNode| ce.engine.as_ref().unwrap().attached();
    world.ces.iter().all(up)
}

#[test]
fn every_role_is_restarted_under_io() {
    for seed in seeds() {
        let mut world = up(seed, 2, 2);
        let roles = world.roles();
        for node in roles {
            let answered: Vec<_> = world.initiators.iter().map(|i| i.answered).collect();
            busy(&mut world, 400);
            restart(&mut world, node);
            world.until("all CEs are attached", 60_000, attached);
            busy(&mut world, 400);
            quiet(&mut world);
            for (i, before) in world.initiators.iter().zip(answered) {
                assert!(i.answered > before, "{node:?}: no command was answered");
            }
        }
        assert_eq!(world.told, 0, "a restart is no loss");
        done(world);
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

#[test]
fn roles_tell_of_themselves() {
    let mut world = up(3, 2, 1);
    for lba in (0..64).step_by(8) {
        write(&mut world, lba, 8);
    }
    quiet(&mut world);
    for _ in 0..2 {
        read(&mut world, 0, 8);
        quiet(&mut world);
    }
    world.heal();
    let se = world.se.as_ref().unwrap().status();
    assert_eq!(
        (&se["state"], &se["sessions"]),
        (&"serving".into(), &1.into())
    );
    assert_eq!(se["extents"], 8);
    let owned = list(&se, "members")
        .iter()
        .map(|m| m["extents"].as_u64().unwrap());
    assert_eq!(owned.sum::<u64>(), 8);
    for (n, member) in list(&se, "members").iter().enumerate() {
        assert_eq!(
            (&member["name"], &member["up"]),
            (&(n + 1).to_string().into(), &true.into())
        );
        let ce = world.ces[n].engine.as_ref().unwrap().status();
        assert_eq!(
            (&ce["state"], &ce["epoch"]),
            (&"serving".into(), &member["epoch"])
        );
        assert_eq!(ce["cache"]["lines"], 10);
        assert_eq!(ce["cache"]["pinned_lines"], 0);
        assert!(ce["counters"]["commands"].as_u64() > Some(0));
    }
    let hits = |world: &World| -> u64 {
        let all = world
            .ces
            .iter()
            .map(|c| c.engine.as_ref().unwrap().status());
        all.map(|s| s["counters"]["cached_reads"].as_u64().unwrap())
            .sum()
    };
    assert!(hits(&world) > 0);
    for (n, store) in list(&se, "stores").iter().enumerate() {
        assert_eq!(
            (&store["up"], &store["fenced"]),
            (&true.into(), &true.into())
        );
        assert_eq!(store["name"], (100 + n).to_string());
        let rs = world.rss[n].store.as_ref().unwrap().status();
        assert_eq!(
            (&rs["state"], &rs["epoch"]),
            (&"serving".into(), &se["epoch"])
        );
        assert_eq!(list(&rs, "members").len(), 2);
        assert!(list(&rs, "members").iter().all(|m| m["up"] == true));
    }

    world.kill(Node::Ce(0));
    world.until("the SE has noticed", 20_000, |w| {
        list(&w.se.as_ref().unwrap().status(), "members")[0]["up"] == false
    });
    world.kill(Node::Se);
    world.until("the others have noticed", 20_000, |w| {
        let ce = w.ces[1].engine.as_ref().unwrap().status();
        let rs = w.rss[0].store.as_ref().unwrap().status();
        ce["engine_up"] == false && ce["state"] == "waiting" && rs["engine_up"] == false
    });
    let rs = world.rss[0].store.as_ref().unwrap().status();
    assert_eq!(list(&rs, "members")[0]["up"], false);
    done(world);
}
