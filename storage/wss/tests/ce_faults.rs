// SPDX-License-Identifier: GPL-2.0

//! Faults of a CE, one at a time, as in `faults.rs`: it dies, sleeps, is slow or starts late.

use crate::world::{initiator, scene::*, Item, Node, World, BLOCKS};
use wss::message::Message;

/// A CE dies during reads and writes; the others take over.
#[test]
fn a_ce_is_killed() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..BLOCKS).step_by(8) {
            write(&mut world, lba, 4);
            read(&mut world, lba + 2, 6);
        }
        let steps = 20 + world.rng.below(300);
        for _ in 0..steps {
            world.step();
        }
        world.kill(Node::Ce(0));
        quiet(&mut world);
        read(&mut world, 0, 12);
        quiet(&mut world);
        let owners = world.se.as_mut().unwrap().owners();
        assert!(!owners.contains_key(&1) || owners[&1] < 8);
        done(world);
    }
}

/// A CE is switched off while it is idle. Its answer channel does not report that; the SE does.
#[test]
fn a_ce_is_switched_off() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..BLOCKS).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        world.frozen.insert(Node::Ce(0));
        world.until("the session without it", 20_000, |w| {
            let i = &w.initiators[0];
            i.up() && i.sessions == 2 && i.reach() == 1
        });
        for lba in (0..BLOCKS).step_by(8) {
            read(&mut world, lba, 8);
        }
        quiet(&mut world);
        world.frozen.clear();
        world.kill(Node::Ce(0));
        world.start(Node::Ce(0));
        world.until("its answer channel", 60_000, |w| {
            w.initiators[0].reach() == 2
        });
        done(world);
    }
}

/// An EXEC is delayed between SE and CE while the session is lost and re-established. The login
/// waits for the EXEC, which has no effect when it arrives.
#[test]
fn an_exec_is_held_over_a_reconnect() {
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        world.hold(SE, Node::Ce(0));
        write(&mut world, 0, 8);
        world.until("EXEC", 20_000, |w| on_its_way(w, SE, Node::Ce(0), is_exec));
        initiator::lose(&mut world, 0);
        // Shorter than the liveness timeout, so the SE keeps the CE.
        world.for_ms(1500);
        assert!(!world.initiators[0].up());
        let disk = world.disks.clone();
        world.release();
        world.until("the session is back", 60_000, |w| w.initiators[0].up());
        assert_eq!(
            world.disks, disk,
            "an EXEC of the session before was carried out"
        );
        quiet(&mut world);
        done(world);
    }
}

/// An EXEC is delayed until the SE fences the CE. Another CE takes over, and the first one must not
/// execute the EXEC.
#[test]
fn an_exec_is_held_until_its_ce_is_given_up() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        world.hold(SE, Node::Ce(0));
        world.hold(SE, Node::Ce(1));
        write(&mut world, 0, 4);
        world.until("EXEC", 20_000, |w| {
            (0..2).any(|n| on_its_way(w, SE, Node::Ce(n), is_exec))
        });
        let late = (0..2)
            .find(|n| on_its_way(&world, SE, Node::Ce(*n), is_exec))
            .unwrap();
        for (id, side) in world.between(SE, Node::Ce(1 - late)) {
            world.hold_side(id, side, false);
        }
        world.frozen.insert(Node::Ce(late));
        world.for_ms(5000);
        quiet(&mut world);
        // The other CE has done the write, and does this newer one, too.
        write(&mut world, 0, 4);
        quiet(&mut world);
        world.release();
        world.frozen.clear();
        world.for_ms(5000);
        read(&mut world, 0, 4);
        quiet(&mut world);
        done(world);
    }
}

/// A write of a CE is slow in the file. The SE fences the CE, and the initiator logs in again. The
/// login is not answered until the write has landed, so later writes are newer.
#[test]
fn a_write_is_slow_and_its_ce_is_given_up() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        world.stuck.extend([0, 1]);
        write(&mut world, 0, 4);
        world.until("a write in the file", 20_000, writing);
        // The CE with the write loses its connection to the SE.
        let ids: Vec<_> = (0..2)
            .flat_map(|n| world.between(SE, Node::Ce(n)))
            .collect();
        for (id, _) in ids {
            world.cut(id);
        }
        world.for_ms(8000);
        assert!(
            !world.initiators[0].up(),
            "the login was answered before the write was over"
        );
        world.stuck.clear();
        quiet(&mut world);
        write(&mut world, 0, 4);
        quiet(&mut world);
        done(world);
    }
}

/// A CE sleeps after it has fetched the data of a write. The others proceed; when it wakes up, the
/// RSs reject the write.
#[test]
fn a_ce_sleeps_with_a_write() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        write(&mut world, 8, 4);
        // Just before the CE sends PUT.
        world.until("a CE has the data", 20_000, |w| {
            (0..2).any(|n| w.completes(Node::Ce(n)))
        });
        let n = (0..2).find(|n| world.completes(Node::Ce(*n))).unwrap();
        world.frozen.insert(Node::Ce(n));
        world.for_ms(5000);
        quiet(&mut world);
        write(&mut world, 8, 4);
        quiet(&mut world);
        // The CE wakes up. Its PUT is older than these writes.
        world.frozen.clear();
        world.for_ms(3000);
        read(&mut world, 8, 4);
        quiet(&mut world);
        done(world);
    }
}

/// The SE fences a CE with a pending PUT, without the CE's knowledge. The CE attaches to the RS
/// again, with its old epoch.
#[test]
fn a_ce_does_not_know_that_it_is_given_up() {
    let mut refused = 0;
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        write(&mut world, 8, 4);
        let put = |w: &World, n| {
            let put = |m: &Message| matches!(m, Message::Put(_));
            (0..2).any(|rs| on_its_way(w, Node::Ce(n), Node::Rs(rs), put))
        };
        world.until("PUT", 20_000, |w| (0..2).any(|n| put(w, n)));
        let n = (0..2).find(|n| put(&world, *n)).unwrap();
        let ce = Node::Ce(n);
        world.hold(ce, Node::Rs(0));
        world.hold(ce, Node::Rs(1));
        world.hold(ce, SE);
        world.for_ms(1700);
        world.hold(SE, ce);
        let epoch = |w: &World| w.ces[n].engine.as_ref().unwrap().epoch();
        let before = epoch(&world);
        let attached = |w: &World| {
            let again =
                |m: &Message| matches!(m, Message::Attach { epoch, .. } if *epoch == before);
            (0..2).any(|rs| on_its_way(w, ce, Node::Rs(rs), again))
        };
        let end = world.now + 6000;
        while world.now < end && !attached(&world) {
            world.step();
        }
        refused += u64::from(attached(&world));
        // Slow enough that an accepted write would still be in progress.
        world.slow_disk = 1;
        world.for_ms(400);
        world.slow_disk = 0;
        quiet(&mut world);
        write(&mut world, 8, 4);
        quiet(&mut world);
        world.release();
        world.for_ms(4000);
        read(&mut world, 8, 4);
        quiet(&mut world);
        done(world);
    }
    assert!(refused > 20, "{refused}");
}

/// A second CE starts, and extents move to it when they are idle.
#[test]
fn a_ce_comes_later() {
    for seed in seeds() {
        let mut world = World::new(seed, 2, 1);
        world.kill(Node::Ce(1));
        world.until("logged in", 60_000, |w| w.initiators[0].up());
        for lba in (0..BLOCKS).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        assert_eq!(world.se.as_mut().unwrap().owners(), [(1, 8)].into());
        world.start(Node::Ce(1));
        world.for_ms(4000);
        assert_eq!(world.initiators[0].reach(), 2);
        for lba in (0..BLOCKS).step_by(4) {
            read(&mut world, lba, 4);
            write(&mut world, lba, 2);
        }
        quiet(&mut world);
        for lba in (0..BLOCKS).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        assert_eq!(world.se.as_mut().unwrap().owners(), [(1, 4), (2, 4)].into());
        done(world);
    }
}

/// An initiator abandons the login of an answer channel that the SE has admitted, and logs in
/// again. The report of the CE about the first login must not affect the second.
#[test]
fn a_login_is_given_up() {
    let mut crossed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        let ce = Node::Ce(0);
        initiator::lose(&mut world, 0);
        let join = |m: &Message| matches!(m, Message::Join { .. });
        world.until("JOIN", 20_000, |w| on_its_way(w, ce, SE, join));
        world.hold(SE, ce);
        let joined = |w: &World| {
            let of = |item: &Item| match item {
                Item::Message(bytes, _) => {
                    matches!(Message::parse(bytes), Ok(Message::Joined { .. }))
                }
                _ => false,
            };
            let all = w.between(SE, ce);
            let count = |(id, side): &(_, _)| w.queue(*id, *side).filter(|i| of(i)).count();
            all.iter().map(count).sum::<usize>()
        };
        let end = world.now + 2000;
        while world.now < end && joined(&world) == 0 {
            world.step();
        }
        initiator::give_up(&mut world, 0, 0, 0);
        while world.now < end && joined(&world) < 2 {
            world.step();
        }
        crossed += u64::from(joined(&world) == 2);
        world.release();
        world.until("an answer channel", 60_000, |w| {
            w.initiators[0].up() && w.initiators[0].reach() == 1
        });
        let sessions = world.initiators[0].sessions;
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        assert_eq!(world.initiators[0].sessions, sessions);
        done(world);
    }
    assert!(crossed > 30, "{crossed}");
}
