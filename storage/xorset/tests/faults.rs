// SPDX-License-Identifier: GPL-2.0

//! Tests of specific faults, modelled on the "Failures" table of "A redundant set" in
//! docs/fabric.md.

use crate::world::{
    command::{done, some_commands, steps},
    up, Who,
};
use xorset::{
    coordinator::Key,
    layout::{node, spans, NODES},
    link::LinkAction,
    map::{Map, State},
    message::{Message, Role, LEN},
    node::Action,
};

/// Returns all subsets of `count` nodes.
fn sets(count: usize) -> Vec<Vec<usize>> {
    let all = 0..1usize << NODES;
    let chosen = |set: usize| (0..NODES).filter(|n| set >> n & 1 != 0).collect::<Vec<_>>();
    all.map(chosen).filter(|s| s.len() == count).collect()
}

/// Both nodes die before, during or after writes, while the rest of the set works on the same
/// blocks.
fn pair(seed: u64, nodes: &[usize], phase: u64) {
    let mut world = up(seed, 2);
    some_commands(&mut world, 12);
    world.quiet();
    if phase == 1 {
        some_commands(&mut world, 12);
        steps(&mut world, 120);
    }
    for n in nodes {
        world.kill(Who::Node(*n));
        if phase == 1 {
            steps(&mut world, 60);
        }
    }
    if phase == 0 {
        some_commands(&mut world, 12);
    }
    world.quiet();
    assert_eq!(world.failed, 0);
    world.until("both are out", 30_000, |w| {
        w.states()
            .is_some_and(|s| nodes.iter().all(|n| s[*n] == State::Out))
    });
    let before = world.degraded;
    some_commands(&mut world, 20);
    world.quiet();
    assert_eq!(world.failed, 0);
    assert!(world.degraded > before);
    // Read all blocks without these nodes.
    let seat = world.seat().unwrap();
    for lba in (0..world.size.blocks()).step_by(8) {
        world.command(seat, lba, 8, false);
    }
    world.quiet();
    assert_eq!(world.failed, 0);
    let world = done(world);
    let map = &world.etcd.map.as_ref().unwrap().1;
    assert!(map.matches(" u1").count() == NODES - nodes.len(), "{map}");
}

#[test]
fn any_two_nodes_die_before_in_and_after_writes() {
    for (i, nodes) in sets(2).iter().enumerate() {
        for phase in 0..3 {
            for turn in 0..4 {
                let order = if turn % 2 == 0 {
                    nodes.clone()
                } else {
                    vec![nodes[1], nodes[0]]
                };
                pair(i as u64 * 100 + phase * 10 + turn, &order, phase);
            }
        }
    }
}

#[test]
fn a_partition_of_two() {
    for (i, nodes) in sets(2).iter().enumerate() {
        for turn in 0..3 {
            let mut world = up(1000 + i as u64 * 10 + turn, 2);
            some_commands(&mut world, 12);
            steps(&mut world, 100);
            world.partition(&[Who::Node(nodes[0]), Who::Node(nodes[1])]);
            for _ in 0..4 {
                some_commands(&mut world, 5);
                steps(&mut world, 200);
            }
            world.quiet();
            assert_eq!(world.failed, 0);
            assert!(world.degraded > 0);
            done(world);
        }
    }
}

/// Two nodes are alive, but cannot reach each other.
#[test]
fn two_nodes_do_not_reach_each_other() {
    for (i, nodes) in sets(2).iter().enumerate() {
        let mut world = up(1500 + i as u64, 2);
        world.cut(Who::Node(nodes[0]), Who::Node(nodes[1]));
        for _ in 0..6 {
            some_commands(&mut world, 5);
            steps(&mut world, 300);
        }
        world.quiet();
        assert_eq!(world.failed, 0);
        done(world);
    }
}

/// Two nodes die, and the client gets a turn so rarely that their exclusion takes longer than a
/// command may. Initiators have to send such commands again: no block is lost.
#[test]
fn two_nodes_die_and_the_client_is_slow() {
    let mut late = 0;
    for (i, nodes) in sets(2).iter().enumerate() {
        let mut world = up(1800 + i as u64, 2);
        world.pace = 900;
        some_commands(&mut world, 12);
        steps(&mut world, 60);
        for n in nodes {
            world.kill(Who::Node(*n));
        }
        some_commands(&mut world, 12);
        world.quiet();
        late += world.failed;
        world.until("both are out", 30_000, |w| {
            w.states()
                .is_some_and(|s| nodes.iter().all(|n| s[*n] == State::Out))
        });
        let failed = world.failed;
        some_commands(&mut world, 20);
        world.quiet();
        assert_eq!((world.failed, world.lost), (failed, 0));
        done(world);
    }
    assert!(late > 0);
}

/// Three nodes are lost. Commands that need them fail, and no data is lost: when one of the three
/// is back, the set continues.
#[test]
fn a_third_loss_is_refused() {
    for (i, nodes) in sets(3).iter().enumerate() {
        for turn in 0..2 {
            let mut world = up(2000 + i as u64 * 10 + turn, 2);
            some_commands(&mut world, 12);
            if turn == 0 {
                world.quiet();
            }
            let at_once = world.rng.one_in(2);
            for n in nodes {
                if turn == 1 {
                    steps(&mut world, 60);
                }
                world.kill(Who::Node(*n));
                if !at_once {
                    steps(&mut world, 2000);
                }
            }
            for _ in 0..12 {
                let (lba, write) = (
                    world.rng.below(world.size.blocks() - 8),
                    world.rng.one_in(2),
                );
                world.command(0, lba, 8, write);
            }
            let end = world.now + 30_000;
            world.until("time", 40_000, |w| w.now >= end);
            assert!(world.commands.is_empty());
            assert!(world.failed > 0);
            assert_eq!(world.lost, 0);
            // At most two nodes are excluded.
            let map = world.etcd.map.clone().unwrap().1;
            assert!(map.matches(" u").count() >= 4, "{map}");
            for n in nodes {
                if turn == 1 {
                    world.slots[*n].disk.clone().power(&mut world.rng);
                }
                world.start(*n);
            }
            done(world);
        }
    }
}

/// The client of an RS ends no command early: those that three lost nodes hold up are done when one
/// of the nodes is back.
#[test]
fn without_a_timeout_commands_wait() {
    for (i, nodes) in sets(3).iter().enumerate() {
        let mut world = up(2500 + i as u64, 2);
        world.kill(Who::Client(0));
        world.settings.patience = None;
        let seat = world.add_client();
        world.until("the set is open", 60_000, |w| w.seat() == Some(seat));
        some_commands(&mut world, 12);
        steps(&mut world, 60);
        for n in nodes {
            world.kill(Who::Node(*n));
        }
        some_commands(&mut world, 12);
        let end = world.now + 60_000;
        world.until("a minute", 80_000, |w| w.now >= end);
        assert!(!world.commands.is_empty());
        world.start(nodes[i % 3]);
        world.quiet();
        assert_eq!((world.failed, world.lost), (0, 0));
        done(world);
    }
}

/// The owner of a write dies when one of its two deltas is logged, then another node of the same
/// stripe dies.
#[test]
fn a_kill_between_the_two_deltas() {
    let mut found = 0;
    for number in 0..12u64 {
        for other in 0..NODES {
            for which in 0..2 {
                let mut world = up(3000 + number * 100 + other as u64 * 10 + which, 1);
                let seat = world.seat().unwrap();
                for cell in 0..12 {
                    world.command(seat, cell * 4, 4, true);
                }
                world.quiet();
                let span = spans(&world.size, number * 4, 4)[0];
                let owner = span.node();
                if other == owner {
                    continue;
                }
                let cut = node(0, span.cell.parities()[which as usize].column);
                world.cut(Who::Node(owner), Who::Node(cut));
                let relayed = world.relayed;
                world.command(seat, number * 4, 4, true);
                world.until("one delta is there", 10_000, |w| w.relayed > relayed);
                steps(&mut world, 40);
                let waits = world.commands.len();
                world.kill(Who::Node(owner));
                world.kill(Who::Node(other));
                world.quiet();
                found += waits;
                let all = |s: [State; NODES]| s[owner] == State::Out && s[other] == State::Out;
                world.until("both are out", 30_000, |w| w.states().is_some_and(all));
                let seat = world.seat().unwrap();
                for cell in 0..12 {
                    world.command(seat, cell * 4, 4, false);
                }
                world.quiet();
                assert_eq!(world.failed, 0);
                done(world);
            }
        }
    }
    assert_eq!(found, 12 * 4 * 2);
}

/// All nodes lose power at the same time, repeatedly, while data is not durable.
#[test]
fn power_loss_of_all() {
    for seed in 4000..4120 {
        let mut world = up(seed, 1 + seed % 3);
        for _ in 0..5 {
            some_commands(&mut world, 8);
            steps(&mut world, 150);
            world.power_loss();
            if world.rng.one_in(3) {
                for seat in 0..world.seats.len() {
                    world.kill(Who::Client(seat));
                }
            }
            for n in 0..NODES {
                steps(&mut world, 30);
                world.start(n);
            }
            if !world.seats.iter().any(|s| s.client.is_some()) {
                world.add_client();
            }
            world.until("it is open", 60_000, |w| w.seat().is_some());
            let seat = world.seat().unwrap();
            for lba in (0..world.size.blocks()).step_by(8) {
                world.command(seat, lba, 8, false);
            }
            world.quiet();
        }
        done(world);
    }
}

/// A node returns with another file and is rebuilt completely.
#[test]
fn files_are_lost() {
    for (i, nodes) in sets(2).iter().enumerate() {
        let mut world = up(5000 + i as u64, 3);
        some_commands(&mut world, 30);
        world.quiet();
        for n in nodes {
            world.lose(*n);
            world.start(*n);
            some_commands(&mut world, 4);
            steps(&mut world, 400);
        }
        world.quiet();
        assert_eq!(world.failed, 0);
        let world = done(world);
        let map = &world.etcd.map.as_ref().unwrap().1;
        assert!(map.matches(" u1").count() == NODES - 2, "{map}");
    }
}

/// The client dies during writes, and another one takes over: the writes of the first are done or
/// not, permanently.
#[test]
fn another_client() {
    for seed in 6000..6060 {
        let mut world = up(seed, 1);
        for turn in 0..3 {
            some_commands(&mut world, 8);
            steps(&mut world, 100);
            let seat = world.seats.len() - 1;
            world.kill(Who::Client(seat));
            if seed % 3 == turn {
                let n = world.rng.below(5) as usize;
                world.kill(Who::Node(n));
            }
            world.add_client();
            world.until("it is open", 60_000, |w| w.seat().is_some());
            let seat = world.seat().unwrap();
            for lba in (0..48).step_by(4) {
                world.command(seat, lba, 4, false);
            }
            world.quiet();
            for n in 0..NODES {
                world.start(n);
            }
        }
        done(world);
    }
}

/// A client that is cut off with one node never returns data that another client has changed.
#[test]
fn a_client_that_is_cut_off_ends() {
    for n in 0..NODES {
        let mut world = up(7000 + n as u64, 2);
        let lba = (0..96)
            .find(|lba| spans(&world.size, *lba, 1)[0].node() == n)
            .unwrap();
        world.command(0, lba, 1, true);
        world.quiet();
        world.partition(&[Who::Client(0), Who::Node(n)]);
        world.add_client();
        let mut written = false;
        let end = world.now + 20_000;
        while world.now < end {
            world.step();
            if world.seats[0].client.is_some() && world.commands.values().all(|c| c.seat != 0) {
                world.command(0, lba, 1, false);
            }
            if world.seats[1].ready && !written {
                written = true;
                world.command(1, lba, 1, true);
            }
        }
        assert!(written && world.seats[0].client.is_none());
        assert!(world.etcd.holder(Key::Client).is_some());
        done(world);
    }
}

/// A node that sleeps and wakes up after it was excluded changes nothing.
#[test]
fn a_node_sleeps_with_a_write() {
    for seed in 8000..8060 {
        let mut world = up(seed, 1);
        some_commands(&mut world, 10);
        steps(&mut world, 100);
        let n = world.rng.below(5) as usize;
        world.frozen.insert(Who::Node(n));
        world.quiet();
        world.until("it is out", 30_000, |w| {
            w.states().is_some_and(|s| s[n] == State::Out)
        });
        some_commands(&mut world, 10);
        world.quiet();
        world.frozen.clear();
        some_commands(&mut world, 5);
        done(world);
    }
}

/// A node that was told a map rejects older ones from any client, also after a restart.
#[test]
fn an_old_map_is_refused() {
    for started in [false, true] {
        let mut world = up(8500, 1);
        if started {
            world.kill(Who::Node(1));
            world.start(1);
        }
        let size = world.size;
        let set = Map::parse(&world.etcd.map.clone().unwrap().1).unwrap().set;
        let node = world.slots[1].node.as_mut().unwrap();
        let peer = 1 << 40;
        let told = |node: &mut xorset::node::Node<_>, epoch| {
            node.connected(peer);
            node.message(peer, &Message::Attach { role: Role::Client }.build(), &[]);
            let mut map = Map::first(7, size);
            (map.epoch, map.new, map.set) = (epoch, false, set);
            node.message(
                peer,
                &Message::Epoch { epoch }.build(),
                map.text().as_bytes(),
            );
            let actions = node.actions();
            let closed =
                |a: &Action| matches!(a, Action::Link(LinkAction::Close { peer: p }) if *p == peer);
            let settled = |a: &Action| {
                matches!(
                    a,
                    Action::Link(LinkAction::Send {
                        peer: p,
                        message: Message::Settled { epoch: e },
                        ..
                    }) if *p == peer && *e == epoch
                )
            };
            (actions.iter().any(closed), actions.iter().any(settled))
        };
        assert_eq!(told(node, 1), (true, false));
        assert_eq!(told(node, 3), (false, true));
        assert_eq!(told(node, 2), (true, false));
    }
}

/// A node and the set continue, whatever the node receives.
#[test]
fn invalid_bytes() {
    for seed in 9000..9040 {
        let mut world = up(seed, 1);
        for _ in 0..300 {
            let n = world.rng.below(5) as usize;
            let peer = 1 << 40 | world.rng.below(4);
            let mut bytes = [0; LEN];
            bytes[0] = (1 + world.rng.below(14)) as u8;
            bytes[1] = world.rng.below(3) as u8;
            bytes[2] = world.rng.below(5) as u8;
            for at in [3, 4, 7, 9, 23, 31, 39, 47] {
                if world.rng.one_in(2) {
                    bytes[at] = world.rng.below(24) as u8;
                }
            }
            // Skip a valid EPOCH: only a client sends it, and nodes trust clients.
            if let Ok(Message::Epoch { .. }) = Message::parse(&bytes) {
                continue;
            }
            let payload = vec![7; 512 * world.rng.below(5) as usize];
            let node = world.slots[n].node.as_mut().unwrap();
            if world.rng.one_in(9) {
                node.connected(peer);
            }
            // The sender does not impersonate a node, either.
            let role = Message::Attach {
                role: xorset::message::Role::Client,
            };
            node.message(peer, &role.build(), &[]);
            node.message(peer, &bytes, &payload);
            world.step();
        }
        some_commands(&mut world, 5);
        world.quiet();
        done(world);
    }
}

/// A node dies with its file during its admission, and so does the client. Nodes that have deltas
/// of its unfinished writes relay them only if the next client detects the new file.
#[test]
fn a_node_dies_with_its_file_while_it_is_let_in_and_so_does_the_client() {
    for seed in 0..60 {
        let n = seed as usize % NODES;
        let mut world = up(1300 + seed, 3);
        world.kill(Who::Node(n));
        world.until("it is out", 30_000, |w| {
            w.states().is_some_and(|s| s[n] == State::Out)
        });
        some_commands(&mut world, 10);
        world.quiet();
        world.start(n);
        world.until("it is let in", 30_000, |w| {
            w.states().is_some_and(|s| s[n] == State::Rebuilding)
        });
        // This node lacks the deltas that the other nodes get.
        let deaf = Who::Node((n + 1 + seed as usize / NODES % 4) % NODES);
        some_commands(&mut world, 10);
        steps(&mut world, 1 + seed * 4);
        world.cut(Who::Node(n), deaf);
        some_commands(&mut world, 10);
        steps(&mut world, 200);
        world.lose(n);
        if let Some(c) = world.seat() {
            world.kill(Who::Client(c));
        }
        done(world);
    }
}
