// SPDX-License-Identifier: GPL-2.0

//! One fault at a time. Everything else occurs in random order, with many seeds. `ce_faults.rs`
//! tests faults of a CE.

use crate::world::{
    initiator::{self, Kind},
    scene::*,
    Item, Node, World, BLOCKS,
};
use wss::rs::Work;

/// The baseline without faults.
#[test]
fn without_a_fault() {
    for seed in seeds() {
        let mut world = up(seed, 3, 2);
        for _ in 0..60 {
            let n = world.rng.below(2) as usize;
            initiator::want_any(&mut world, n);
            for _ in 0..10 {
                world.step();
            }
        }
        quiet(&mut world);
        for i in &world.initiators {
            assert_eq!(i.sessions, 1);
        }
        // Each CE owns some extents.
        assert_eq!(world.se.as_mut().unwrap().owners().len(), 3);
        done(world);
    }
}

/// A repeated read hits the arena.
#[test]
fn a_second_read_is_a_hit() {
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        write(&mut world, 0, 8);
        quiet(&mut world);
        read(&mut world, 1, 6);
        quiet(&mut world);
        let hits = world.ces[0].engine.as_ref().unwrap().hits();
        // Lines that were written as a whole are cached, too.
        assert_eq!(hits, [1, 0]);
        // Read an unused extent, then its first line twice.
        read(&mut world, 40, 2);
        quiet(&mut world);
        read(&mut world, 42, 2);
        quiet(&mut world);
        assert_eq!(world.ces[0].engine.as_ref().unwrap().hits(), [2, 1]);
        done(world);
    }
}

/// Zeroed blocks are read as zeros at once, whatever a CE had cached: in a part of a line, in
/// several extents, of several CEs. Adjacent blocks do not change.
#[test]
fn zeros_are_seen_at_once() {
    for seed in seeds() {
        let mut world = up(seed, 3, 1);
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        for lba in (0..32).step_by(8) {
            read(&mut world, lba, 8);
        }
        quiet(&mut world);
        let (lba, stable) = (world.rng.below(20), world.rng.one_in(2));
        initiator::want(&mut world, 0, Kind::Zero, lba, 12, stable);
        quiet(&mut world);
        for lba in (0..32).step_by(8) {
            read(&mut world, lba, 8);
        }
        initiator::want(&mut world, 0, Kind::Verify, lba, 12, false);
        quiet(&mut world);
        for block in 0..32 {
            let seen = world.initiators[0].last[&block];
            assert_eq!(seen == 0, (lba..lba + 12).contains(&block), "block {block}");
        }
        done(world);
    }
}

/// A CE dies while zeroing blocks. The zeros reach the file before the fence is acknowledged, or
/// never: they do not overwrite data of the next session.
#[test]
fn zeros_of_a_ce_that_dies() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        world.stuck.extend([0, 1]);
        for lba in (0..32).step_by(8) {
            initiator::want(&mut world, 0, Kind::Zero, lba, 8, false);
        }
        world.until("zeros at work in a file", 20_000, |w| {
            let zero = |w: &Work| matches!(w, Work::Zero { .. });
            w.rss
                .iter()
                .any(|rs| rs.pending.iter().any(|(_, w, _)| zero(w)))
        });
        world.kill(Node::Ce(0));
        let steps = world.rng.below(300);
        for _ in 0..steps {
            world.step();
        }
        world.stuck.clear();
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 4);
            read(&mut world, lba + 2, 6);
        }
        quiet(&mut world);
        done(world);
    }
}

/// The SE dies with commands in flight, and another one takes over.
#[test]
fn the_se_is_killed() {
    for seed in seeds() {
        let mut world = up(seed, 2, 2);
        for lba in (0..48).step_by(4) {
            write(&mut world, lba, 4);
            read(&mut world, lba, 8);
        }
        let steps = 20 + world.rng.below(300);
        for _ in 0..steps {
            world.step();
        }
        world.kill(SE);
        let ms = 2000 + world.rng.below(6000);
        world.for_ms(ms);
        assert!(world.initiators.iter().all(|i| !i.up()));
        world.start(SE);
        world.until("the sessions are back", 60_000, |w| {
            w.initiators.iter().all(|i| i.up() && i.sessions > 1)
        });
        quiet(&mut world);
        done(world);
    }
}

/// An RS dies with commands in flight. They wait for its restart.
#[test]
fn an_rs_is_killed() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..BLOCKS).step_by(4) {
            write(&mut world, lba, 4);
            read(&mut world, lba, 4);
        }
        let steps = 20 + world.rng.below(300);
        for _ in 0..steps {
            world.step();
        }
        world.kill(Node::Rs(0));
        let ms = 500 + world.rng.below(6000);
        world.for_ms(ms);
        world.start(Node::Rs(0));
        quiet(&mut world);
        done(world);
    }
}

/// A CE is so slow that its commands are aborted. An abort is answered when no part of its command
/// is in flight.
#[test]
fn commands_are_aborted() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        // In any state: before EXEC arrives, during a fill, during file I/O, during the response.
        world.stuck.extend([0, 1]);
        if world.rng.one_in(2) {
            write(&mut world, 0, 12);
        } else {
            read(&mut world, 0, 12);
        }
        let steps = world.rng.below(80);
        for _ in 0..steps {
            world.step();
        }
        initiator::commands::abort_any(&mut world, 0);
        world.for_ms(1000);
        let at_work = world.rss.iter().any(|rs| !rs.pending.is_empty());
        if at_work {
            assert_eq!(
                world.initiators[0].aborted, 0,
                "the abort was answered while the file was at work"
            );
        }
        world.stuck.clear();
        quiet(&mut world);
        write(&mut world, 0, 12);
        quiet(&mut world);
        done(world);
    }
}

/// A command is aborted while the RS executes its write but is disconnected from the CE. The abort
/// is answered when the RS has reported the end of the write.
#[test]
fn an_abort_waits_for_an_rs() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        world.stuck.extend([0, 1]);
        write(&mut world, 0, 4);
        world.until("a write in the file", 20_000, writing);
        for n in 0..2 {
            for (id, _) in world.between(Node::Ce(n), Node::Rs(0)) {
                world.cut(id);
            }
        }
        let until = world.now + 500;
        let knows = |w: &World| {
            w.ces
                .iter()
                .any(|ce| !ce.engine.as_ref().unwrap().attached())
        };
        while world.now < until && !knows(&world) {
            world.step();
        }
        initiator::commands::abort_any(&mut world, 0);
        world.for_ms(2500);
        assert_eq!(world.initiators[0].out(), 1);
        assert_eq!(
            world.initiators[0].aborted, 0,
            "the abort was answered while the file was at work"
        );
        world.stuck.clear();
        world.until("the abort", 20_000, |w| w.initiators[0].aborted == 1);
        write(&mut world, 0, 4);
        quiet(&mut world);
        done(world);
    }
}

/// One of two initiators cannot reach one CE. Both initiators make progress.
#[test]
fn who_reaches_less_is_served() {
    for seed in seeds() {
        let mut world = World::new(seed, 2, 2);
        world.barred.push((1, 0));
        world.until("both are logged in", 60_000, |w| {
            w.initiators[0].reach() == 2 && w.initiators[1].reach() == 1
        });
        for round in 0..10 {
            for n in 0..2 {
                for lba in (0..BLOCKS).step_by(8) {
                    let kind = if (round + lba) % 16 == 0 {
                        Kind::Read
                    } else {
                        Kind::Write
                    };
                    initiator::want(&mut world, n, kind, lba, 8, false);
                }
            }
            for _ in 0..100 {
                world.step();
            }
        }
        quiet(&mut world);
        assert_eq!(world.initiators[1].sessions, 1);
        // The initiator that reaches both CEs takes no extent away.
        assert_eq!(world.se.as_mut().unwrap().owners(), [(2, 8)].into());
        done(world);
    }
}

/// A late RDMA WRITE of a CE uses an invalid rkey: only the connection breaks.
#[test]
fn an_rdma_write_comes_late() {
    let mut broken = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        read(&mut world, 0, 8);
        let out = |w: &World| {
            let on = w.between(Node::Ce(0), A);
            on.iter()
                .any(|(id, side)| w.queue(*id, *side).any(|i| matches!(i, Item::Write(..))))
        };
        world.until("an RDMA write", 20_000, out);
        // Invalidate the rkeys before the queue pairs end, as only a bug would.
        world.initiators[0].invalidate();
        let sessions = world.initiators[0].sessions;
        world.until("the session is back", 60_000, |w| {
            w.initiators[0].sessions > sessions && w.initiators[0].up()
        });
        broken += 1;
        quiet(&mut world);
        done(world);
    }
    assert_eq!(broken, seeds().end);
}

/// File I/O fails. Commands end with MEDIUM ERROR. After a failed write, reads return the content
/// of the file, also from a CE that had cached the blocks.
#[test]
fn files_fail() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..32).step_by(4) {
            read(&mut world, lba, 4);
        }
        quiet(&mut world);
        world.bad_disk = 2;
        for lba in (0..32).step_by(2) {
            write(&mut world, lba, 3);
        }
        quiet(&mut world);
        assert!(world.disks_failed);
        world.bad_disk = 0;
        for lba in (0..32).step_by(4) {
            read(&mut world, lba, 4);
        }
        quiet(&mut world);
        assert_eq!(world.initiators[0].sessions, 1);
        done(world);
    }
}

/// An answer channel breaks, with or without commands on it.
#[test]
fn an_answer_channel_breaks() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        for lba in (0..32).step_by(4) {
            write(&mut world, lba, 4);
            read(&mut world, lba, 4);
        }
        let steps = world.rng.below(200);
        for _ in 0..steps {
            world.step();
        }
        for (id, _) in world.between(Node::Ce(0), A) {
            world.cut(id);
        }
        quiet(&mut world);
        assert!(world.initiators[0].sessions >= 1);
        done(world);
    }
}

/// A second SE replaces one that only seemed dead. The RSs reject the first.
#[test]
fn an_old_se_is_refused() {
    use wss::{message::*, rs::*};
    let mut store = Store::new(settings(), vec![64], 0);
    let attach = |epoch| {
        let (role, member) = (Role::Se, 0);
        Message::Attach {
            role,
            member,
            epoch,
        }
        .build()
    };
    store.connected(1);
    store.message(1, &attach(5));
    store.connected(2);
    store.message(2, &attach(6));
    let closed = |a: &Action| *a == Action::Close { peer: 1 };
    assert!(store.actions().iter().any(closed));
    store.connected(3);
    store.message(3, &attach(5));
    let refused = Action::Send {
        peer: 3,
        message: Message::Attached {
            status: Status::Stale,
            number: 1,
            epoch: 6,
            boot: 9,
        },
    };
    let actions = store.actions();
    assert!(actions.contains(&refused) && !actions.contains(&Action::Close { peer: 2 }));
}
