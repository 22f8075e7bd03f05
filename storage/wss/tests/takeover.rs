// SPDX-License-Identifier: GPL-2.0

//! An RS with two places: another process takes its set over, and the former holder may still live.

use crate::world::{initiator, scene::*, Node, World, BLOCKS, LINE, OBJECT};
use wss::{
    ce,
    message::{Message, Role, Scope, Status},
    peer::Peer,
    rs::{Action, Store},
};

/// The first holder of the set of RS 0, and the process that waits.
const OLD: Node = Node::Rs(0);
const NEW: Node = Node::Rs(2);

fn up_over(seed: u64, ces: usize, initiators: usize, direct: bool) -> World {
    let mut world = World::with_sets(seed, ces, initiators, &[0]);
    world.direct = direct;
    let world = begin(world);
    assert_eq!(world.holder(0), Some(0));
    world
}

fn taken(world: &mut World) {
    world.until("another holder", 8_000, |w| w.holder(0) == Some(2));
}

/// Whether the SE is attached to RS 0.
fn known(world: &World) -> bool {
    let se = world.se.as_ref();
    se.is_some_and(|se| se.status()["stores"][0]["up"] == true)
}

/// Writes and reads all blocks, up to any moment.
fn busy(world: &mut World) {
    for lba in (0..BLOCKS).step_by(4) {
        write(world, lba, 4);
        read(world, lba, 4);
    }
    for _ in 0..20 + world.rng.below(300) {
        world.step();
    }
}

/// Writes to RS 0, whose file does not answer.
fn stuck(world: &mut World) {
    world.stuck.insert(0);
    write(world, 0, 4);
    write(world, 8, 4);
    world.until("writes in the file", 20_000, |w| {
        w.rss[0].pending.len() == 2 && writing(w)
    });
}

fn wake(world: &mut World) {
    world.stuck.clear();
    world.frozen.clear();
}

/// The holder dies, or is off, with commands in flight. They wait for the next holder, no longer
/// than initiators do, and their sessions go on.
#[test]
fn a_holder_dies() {
    for seed in seeds() {
        let mut world = up_over(seed, 2, 1, false);
        busy(&mut world);
        match seed % 3 {
            0 => world.kill(OLD),
            1 => world.hand_over(0),
            // A machine that is off: no connection to it ends, and none is refused.
            _ => drop(world.frozen.insert(OLD)),
        }
        let end = world.now + 15_000;
        taken(&mut world);
        quiet(&mut world);
        assert!(world.now < end, "{} ms too late", world.now - end);
        let all = &world.initiators[0];
        assert_eq!((all.sessions, all.aborted), (1, 0));
        assert_eq!((world.holder(0), world.takeovers()), (Some(2), 1));
        done(world);
    }
}

/// A holder sleeps with writes in its file. The next one has done them, and newer ones of the same
/// blocks, when it wakes up.
#[test]
fn a_holder_wakes_up() {
    for seed in seeds() {
        let mut world = up_over(seed, 2, 1, false);
        stuck(&mut world);
        world.frozen.insert(OLD);
        taken(&mut world);
        quiet(&mut world);
        write(&mut world, 0, 4);
        write(&mut world, 8, 4);
        quiet(&mut world);
        wake(&mut world);
        world.for_ms(3000);
        assert!(!world.runs(OLD));
        read(&mut world, 0, 12);
        quiet(&mut world);
        // It is the next holder, at the first address.
        world.start(OLD);
        world.kill(NEW);
        write(&mut world, 0, 4);
        quiet(&mut world);
        assert_eq!((world.holder(0), world.takeovers()), (Some(0), 2));
        assert_eq!(world.initiators[0].sessions, 1);
        done(world);
    }
}

/// A holder that does not reach etcd serves until its lease is over, then it ends.
#[test]
fn a_holder_is_cut_off_from_etcd() {
    for seed in seeds() {
        let mut world = up_over(seed, 2, 1, false);
        world.away.insert(0);
        for _ in 0..12 {
            busy(&mut world);
            world.for_ms(300);
        }
        taken(&mut world);
        assert!(!world.runs(OLD));
        quiet(&mut world);
        assert_eq!(world.initiators[0].sessions, 1);
        done(world);
    }
}

/// The SE is at the new place. A CE does not know, and gets the answers that the old holder has
/// sent while it had the set.
#[test]
fn a_ce_is_still_at_the_old_place() {
    let [mut there, mut late] = [0; 2];
    for seed in seeds() {
        let mut world = up_over(seed, 2, 1, seed % 2 == 0);
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        world.away.insert(0);
        world.for_ms(1200);
        for n in 0..2 {
            world.hold(OLD, Node::Ce(n));
        }
        for lba in (0..32).step_by(8) {
            write(&mut world, lba + 2, 4);
            read(&mut world, lba, 3);
        }
        let wait = world.now + 600;
        let answers = |w: &World| {
            let done = |m: &Message| matches!(m, Message::Done { .. });
            (0..2).any(|n| on_its_way(w, OLD, Node::Ce(n), done))
        };
        while world.now < wait && !answers(&world) {
            world.step();
        }
        world.frozen.insert(OLD);
        taken(&mut world);
        for (id, _) in world.between(SE, OLD) {
            world.cut(id);
        }
        let known_to_all = world.now + 4000;
        while world.now < known_to_all && (!world.between(SE, OLD).is_empty() || !known(&world)) {
            world.step();
        }
        let still = (0..2).any(|n| !world.between(Node::Ce(n), OLD).is_empty());
        there += u64::from(still && known(&world));
        late += u64::from(answers(&world) && known(&world));
        world.release();
        quiet(&mut world);
        for lba in (0..32).step_by(8) {
            write(&mut world, lba, 8);
        }
        quiet(&mut world);
        wake(&mut world);
        world.for_ms(1000);
        for lba in (0..32).step_by(8) {
            read(&mut world, lba, 8);
        }
        quiet(&mut world);
        done(world);
    }
    assert!(there > 20 && late > 10, "{there}, {late}");
}

/// A CE dies with writes in a file of the old holder, which dies before it answers the fence, or
/// sleeps. The next login is answered when the new holder has fenced the CE.
#[test]
fn a_ce_and_its_holder_die() {
    for seed in seeds() {
        let mut world = up_over(seed, 2, 1, seed % 2 == 0);
        stuck(&mut world);
        let owners = [0, 1].map(Node::Ce);
        for ce in owners {
            world.kill(ce);
        }
        for _ in 0..world.rng.below(100) {
            world.step();
        }
        if world.rng.one_in(2) {
            world.kill(OLD);
        } else {
            world.frozen.insert(OLD);
        }
        let sessions = world.initiators[0].sessions;
        let again = |w: &World| w.initiators[0].sessions > sessions;
        while world.holder(0) != Some(2) {
            assert!(!again(&world), "the login was answered before the fence");
            world.step();
        }
        world.hold(SE, NEW);
        world.start(owners[0]);
        world.for_ms(1000);
        world.release();
        world.until("the next session", 60_000, again);
        write(&mut world, 0, 4);
        write(&mut world, 8, 4);
        quiet(&mut world);
        wake(&mut world);
        world.for_ms(1000);
        read(&mut world, 0, 12);
        quiet(&mut world);
        done(world);
    }
}

/// A new holder does not know the fences of the former one. It takes no CE before the SE tells it.
#[test]
fn a_new_holder_waits_for_fences() {
    let attach = |role, member, epoch| Message::Attach {
        role,
        member,
        epoch,
    };
    let fence = |scope, member, epoch| Message::Fence {
        scope,
        member,
        epoch,
    };
    for (epoch, wanted) in [(4, Status::Good), (5, Status::Stale)] {
        let mut rs = Store::new(settings(), vec![OBJECT], 0);
        (1..3).for_each(|peer| rs.connected(peer));
        let mut tell = |peer, message: Message| {
            rs.message(peer, &message.build());
            let to_ce = rs.actions().into_iter().filter_map(|action| match action {
                Action::Send {
                    peer: 1,
                    message: Message::Attached { status, .. },
                } => Some(status),
                _ => None,
            });
            to_ce.collect::<Vec<_>>()
        };
        assert_eq!(tell(1, attach(Role::Ce, 3, 4)), []);
        assert_eq!(tell(2, attach(Role::Se, 0, 1)), []);
        assert_eq!(tell(2, fence(Scope::All, 0, 1)), []);
        assert_eq!(tell(2, fence(Scope::Member, 3, epoch)), [wanted]);
    }
}

/// The machine of the first address is off. SE and CEs that start find the other one.
#[test]
fn the_first_address_is_off() {
    for seed in seeds() {
        let mut world = up_over(seed, 1, 1, false);
        for node in [SE, Node::Ce(0)] {
            world.kill(node);
        }
        world.frozen.insert(OLD);
        taken(&mut world);
        world.start(SE);
        world.start(Node::Ce(0));
        world.until("the RS is found", 5_000, known);
        let at = |w: &World| w.ces[0].engine.as_ref().unwrap().attached();
        world.until("the CE is attached", 5_000, at);
        done(world);
    }
}

/// The set goes back and forth while a session works.
#[test]
fn a_set_goes_back_and_forth() {
    for seed in seeds() {
        let mut world = up_over(seed, 2, 2, false);
        for _ in 0..6 {
            for _ in 0..20 {
                let n = world.rng.below(2) as usize;
                initiator::want_any(&mut world, n);
                for _ in 0..10 {
                    world.step();
                }
            }
            let holder = Node::Rs(world.holder(0).unwrap());
            world.hand_over(0);
            world.start(holder);
            world.until("the RS is found", 10_000, known);
        }
        quiet(&mut world);
        assert_eq!(world.takeovers(), 6);
        assert!(world.initiators.iter().all(|i| i.sessions == 1));
        done(world);
    }
}

/// Whatever happens to the holder while it does commands itself: each is answered in the end.
#[test]
fn faults_amid_commands_of_a_holder() {
    for seed in 0..200 {
        let mut world = up_over(seed, 1 + seed as usize % 2, 1, true);
        world.slow_disk = 2;
        for lba in (0..64).step_by(8) {
            write(&mut world, lba, 5);
            read(&mut world, lba + 2, 4);
        }
        world.until("a command of the RS", 10_000, |w| {
            !w.rss[0].pending.is_empty()
        });
        for _ in 0..world.rng.below(60) {
            world.step();
        }
        if world.rng.one_in(2) {
            world.hold(OLD, A);
        }
        match seed % 4 {
            0 => world.kill(OLD),
            1 => world.hand_over(0),
            2 => drop(world.away.insert(0)),
            _ => drop(world.frozen.insert(OLD)),
        }
        taken(&mut world);
        if world.rng.one_in(2) {
            world.for_ms(2000);
            for lba in (0..64).step_by(8) {
                write(&mut world, lba, 5);
            }
        }
        world.for_ms(500);
        world.heal();
        world.until("all answer channels", 60_000, |w| {
            w.initiators[0].reach() == w.ces.len() + 2
        });
        assert_eq!(world.holder(0), Some(2));
        done(world);
    }
}

/// A CE that has found the RS does not leave its address as the SE gives it a new epoch.
#[test]
fn a_ce_stays_where_the_rs_is() {
    let settings = ce::Settings {
        member: 1,
        id: [7; 16],
        lines: 8,
        line: LINE,
        engines: 1,
        stores: vec![3],
    };
    let mut ce = ce::Engine::new(settings, 0);
    let mut now = 0;
    // The connections that the CE makes next.
    let mut connects = |ce: &mut ce::Engine| -> Vec<(Peer, ce::To, usize)> {
        now += 1000;
        ce.tick(now);
        let one = |action: ce::Action| match action {
            ce::Action::Connect { peer, to, place } => Some((peer, to, place)),
            _ => None,
        };
        ce.actions().into_iter().filter_map(one).collect()
    };
    let attached = |epoch| Message::Attached {
        status: Status::Good,
        number: 1,
        epoch,
        boot: 0,
    };
    let [(se, ce::To::Se, 0)] = connects(&mut ce)[..] else {
        panic!()
    };
    ce.connected(se, 0, 0);
    ce.message(se, &attached(5).build());
    // Nothing listens at the first address. The RS at the second one waits for a fence.
    let store = ce::To::Store(0);
    let [(first, to, 0)] = connects(&mut ce)[..] else {
        panic!()
    };
    assert_eq!(to, store);
    ce.closed(first);
    let [(second, _, 1)] = connects(&mut ce)[..] else {
        panic!()
    };
    ce.connected(second, 0, 0);
    ce.closed(se);
    let [(se, ce::To::Se, 0)] = connects(&mut ce)[..] else {
        panic!()
    };
    ce.connected(se, 0, 0);
    ce.message(se, &attached(6).build());
    let [(_, to, place)] = connects(&mut ce)[..] else {
        panic!()
    };
    assert_eq!((to, place), (store, 1));
}
