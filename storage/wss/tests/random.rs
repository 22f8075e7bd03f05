// SPDX-License-Identifier: GPL-2.0

//! Random schedules. SEEDS: number (default 3000); FIRST: first seed; SEED: only this seed; TRACE:
//! print events.

use crate::world::{
    initiator::{self, Kind},
    Node, World,
};

/// The RSs with a set.
const SETS: [&[usize]; 4] = [&[], &[], &[0], &[1, 0]];

/// Possible faults of a schedule.
#[derive(Clone, Copy, Debug)]
struct Faults {
    kills: bool,
    power: bool,
    freezes: bool,
    holds: bool,
    cuts: bool,
    resets: bool,
    aborts: bool,
    bad_disk: bool,
    slow_disk: bool,
    /// RSs with a set, which its holder may lose.
    sets: &'static [usize],
}

fn fault(world: &mut World, faults: &Faults) {
    let roles = world.roles();
    let node = roles[world.rng.below(roles.len() as u64) as usize];
    let initiators = world.initiators.len() as u64;
    let n = world.rng.below(initiators) as usize;
    // Kill CEs more often: all other roles must tolerate their faults.
    let ce = Node::Ce(world.rng.below(world.ces.len() as u64) as usize);
    let rs = world.rng.below(world.rss.len() as u64) as usize;
    // Only with sets: a process is cut off from etcd, or hands its set over.
    match world.rng.below(if faults.sets.is_empty() { 9 } else { 12 }) {
        9 if !world.away.remove(&rs) => drop(world.away.insert(rs)),
        10 => world.hand_over(faults.sets[0]),
        11 => {
            let holder = world.holder(faults.sets[0]).map(Node::Rs);
            world.frozen.extend(holder);
        }
        7 if faults.kills && world.alive(ce) => world.kill(ce),
        0 if faults.kills && world.alive(node) => world.kill(node),
        // A frozen node wakes up instead.
        1 if faults.freezes && !world.frozen.remove(&node) && world.runs(node) => {
            world.note(|| format!("freeze {node:?}"));
            world.frozen.insert(node);
        }
        2 if faults.holds => {
            let other = roles[world.rng.below(roles.len() as u64) as usize];
            world.note(|| format!("hold {node:?} -> {other:?}"));
            world.hold(node, other);
        }
        3 if faults.cuts => {
            let ids: Vec<_> = world.conns.keys().copied().collect();
            if !ids.is_empty() {
                let id = ids[world.rng.below(ids.len() as u64) as usize];
                world.note(|| format!("cut {id}"));
                world.cut(id);
            }
        }
        8 if faults.power => world.power(rs),
        4 if faults.resets => initiator::lose(world, n),
        5 if faults.aborts => initiator::commands::abort_any(world, n),
        _ => {}
    }
}

fn repair(world: &mut World) {
    let roles = world.roles();
    let node = roles[world.rng.below(roles.len() as u64) as usize];
    world.start(node);
    world.frozen.remove(&node);
    if let Node::Rs(p) = node {
        world.away.remove(&p);
    }
    if world.rng.one_in(4) {
        world.release();
    }
}

fn flush_all(world: &mut World) {
    for n in 0..world.initiators.len() {
        initiator::want(world, n, Kind::Flush, 0, 0, false);
    }
    world.until("all have flushed", 100_000, |w| {
        w.initiators.iter().all(|i| i.idle())
    });
}

fn schedule(seed: u64) -> [u64; 7] {
    let mut rng = crate::world::Rng(seed ^ 0x5eed);
    let ces = 1 + rng.below(3) as usize;
    let initiators = 1 + rng.below(2) as usize;
    let faults = Faults {
        kills: rng.one_in(2),
        freezes: rng.one_in(2),
        holds: rng.one_in(2),
        cuts: rng.one_in(2),
        resets: rng.one_in(2),
        aborts: rng.one_in(2),
        bad_disk: rng.one_in(6),
        slow_disk: rng.one_in(2),
        power: rng.one_in(2),
        sets: SETS[seed as usize % 4],
    };
    let rate = 20 + rng.below(200);
    let mut world = World::with_sets(seed, ces, initiators, faults.sets);
    world.direct = rng.one_in(2);
    world.until("all are logged in", 60_000, |w| {
        w.initiators.iter().all(|i| i.up())
    });
    world.pace = 12;
    if faults.bad_disk {
        world.bad_disk = 20;
    }
    if faults.slow_disk {
        world.slow_disk = 4;
    }
    world.span = [12, 16, 24, 64][world.rng.below(4) as usize];
    for _ in 0..40 {
        for n in 0..initiators {
            if world.initiators[n].pending() < 8 {
                initiator::want_any(&mut world, n);
            }
        }
        for _ in 0..80 {
            world.step();
            if world.rng.one_in(rate) {
                fault(&mut world, &faults);
            }
            if world.rng.one_in(200) {
                repair(&mut world);
            }
        }
    }
    world.heal();
    world.judge();
    // Without a loss no flush fails. A failed write with FUA may be a loss.
    let lossless = !faults.power && !faults.bad_disk;
    assert!(!lossless || world.told == 0, "{} flushes", world.told);
    let sessions = |w: &World| w.initiators.iter().map(|i| i.sessions).sum::<u64>();
    let before = sessions(&world);
    flush_all(&mut world);
    let told = world.told;
    flush_all(&mut world);
    // The SE may lose a session before it knows that an answer has arrived.
    let again = world.told > told && sessions(&world) == before;
    assert!(!again, "a loss is told twice");
    assert!(!lossless || world.told == 0, "{} flushes", world.told);
    let mut sum = [0, 0, 0, 0, 0, world.history.judged, world.takeovers()];
    for i in &world.initiators {
        for (n, count) in [i.answered, i.by_ce, i.by_rs, i.aborted, i.sessions]
            .into_iter()
            .enumerate()
        {
            sum[n] += count;
        }
    }
    sum
}

#[test]
fn schedules() {
    let names = [
        "commands answered",
        "of them by CEs",
        "of them by RSs",
        "aborted",
        "sessions",
        "blocks judged",
        "takeovers",
    ];
    let Some((seeds, [_, by_ce, by_rs, aborted, sessions, judged, takeovers])) =
        seeded::schedules(3000, names, schedule)
    else {
        return;
    };
    // The schedules have exercised the code.
    assert!(by_ce > 20 * seeds && by_rs > 4 * seeds && judged > 100 * seeds);
    assert!(aborted > seeds / 4 && sessions > 2 * seeds && takeovers > seeds / 4);
}
