// SPDX-License-Identifier: GPL-2.0

//! Random schedules. SEEDS: number (default 1500); FIRST: first seed; SEED: only this seed; TRACE:
//! print events.

use crate::world::{Who, World};

/// Possible faults of a schedule.
#[derive(Clone, Copy, Debug)]
struct Faults {
    kills: bool,
    clients: bool,
    power: bool,
    freezes: bool,
    cuts: bool,
    partitions: bool,
    cancels: bool,
    blanks: bool,
    hangs: bool,
}

/// Files are lost only in schedules with faults of at most two nodes, as the loss of more is not
/// recoverable.
fn fault_of_two(world: &mut World, faults: &Faults, pair: [usize; 2]) {
    let n = pair[world.rng.below(2) as usize];
    let node = Who::Node(n);
    match world.rng.below(7) {
        6 => world.spoil_any(n),
        0 if faults.kills => world.kill(node),
        1 if faults.freezes => {
            world.frozen.insert(node);
        }
        2 if faults.cuts => world.cut(Who::Node(pair[0]), Who::Node(pair[1])),
        3 if faults.clients => {
            let seat = world.rng.below(world.seats.len() as u64) as usize;
            world.kill(Who::Client(seat));
        }
        5 if faults.hangs => world.hang_any(n),
        // A new set needs all of its files.
        4 if world
            .etcd
            .map
            .as_ref()
            .is_some_and(|(_, map)| map.contains("used")) =>
        {
            world.lose(n);
        }
        _ => {}
    }
}

fn fault(world: &mut World, faults: &Faults) {
    let n = world.rng.below(5) as usize;
    let node = Who::Node(n);
    let all = world.participants();
    let one = all[world.rng.below(all.len() as u64) as usize];
    let other = all[world.rng.below(all.len() as u64) as usize];
    match world.rng.below(11) {
        0 | 1 if faults.kills => world.kill(node),
        2 if faults.clients => {
            let seat = world.rng.below(world.seats.len() as u64) as usize;
            world.kill(Who::Client(seat));
        }
        3 if faults.power && world.rng.one_in(3) => world.power_loss(),
        4 if faults.freezes => {
            world.note(|| format!("freeze {one:?}"));
            world.frozen.insert(one);
        }
        5 if faults.cuts && one != other => {
            world.note(|| format!("cut {one:?} {other:?}"));
            world.cut(one, other);
        }
        6 if faults.partitions => world.partition(&[one, other]),
        7 if faults.cancels => {
            let ids: Vec<_> = world.commands.keys().copied().collect();
            if !ids.is_empty() {
                let id = ids[world.rng.below(ids.len() as u64) as usize];
                world.cancel(id);
            }
        }
        9 | 10 if faults.hangs => world.hang_any(n),
        8 if faults.clients => {
            let alive = world.seats.iter().filter(|s| s.client.is_some()).count();
            if alive < 2 {
                world.add_client();
            }
        }
        _ => {}
    }
}

fn repair(world: &mut World) {
    match world.rng.below(4) {
        0 => world.cuts.clear(),
        1 => world.frozen.clear(),
        _ => {
            let n = world.rng.below(5) as usize;
            world.start(n);
        }
    }
    if !world.seats.iter().any(|s| s.client.is_some()) {
        world.add_client();
    }
}

fn schedule(seed: u64) -> [u64; 7] {
    let mut rng = crate::world::Rng(seed ^ 0x5eed);
    let faults = Faults {
        kills: !rng.one_in(3),
        clients: rng.one_in(3),
        power: rng.one_in(3),
        freezes: rng.one_in(3),
        cuts: rng.one_in(3),
        partitions: rng.one_in(3),
        cancels: rng.one_in(2),
        blanks: rng.one_in(4),
        hangs: rng.one_in(2),
    };
    let first = rng.below(5) as usize;
    let pair = [first, (first + 1 + rng.below(4) as usize) % 5];
    let rate = 60 + rng.below(600);
    let mut world = crate::world::up(seed, 1 + rng.below(5));
    let span = [6, 12, 48, 240][rng.below(4) as usize];
    for _ in 0..30 {
        for _ in 0..3 {
            if world.commands.len() < 8 {
                world.command_any(span);
            }
        }
        for _ in 0..120 {
            world.step();
            if world.rng.one_in(rate) {
                if faults.blanks {
                    fault_of_two(&mut world, &faults, pair);
                } else {
                    fault(&mut world, &faults);
                }
            }
            if world.rng.one_in(250) {
                repair(&mut world);
            }
        }
    }
    world.heal();
    world.judge();
    let map = world.etcd.map.clone().unwrap().1;
    [
        world.answered,
        world.failed,
        world.cancelled,
        world.degraded,
        world.relayed,
        map.split(' ').next().unwrap().parse().unwrap(),
        world.history.judged,
    ]
}

#[test]
fn schedules() {
    let names = [
        "commands answered",
        "failed",
        "cancelled",
        "requests without a node",
        "deltas",
        "epochs",
        "blocks judged",
    ];
    let Some((seeds, [answered, _, cancelled, degraded, relayed, epochs, judged])) =
        seeded::schedules(1500, names, schedule)
    else {
        return;
    };
    // The schedules have exercised the code.
    assert!(answered > 30 * seeds && judged > 150 * seeds && relayed > 50 * seeds);
    assert!(degraded > 5 * seeds && epochs > 4 * seeds && cancelled > 0);
}
