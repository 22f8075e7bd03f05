// SPDX-License-Identifier: GPL-2.0

//! Commands that an RS does itself, and their faults.

use crate::world::{initiator, scene::*, Node, World};
use wss::{message::Message, rs::Work};

/// Answers of CEs and of RSs.
fn by(world: &World) -> (u64, u64) {
    (world.initiators[0].by_ce, world.initiators[0].by_rs)
}

fn is_given(m: &Message) -> bool {
    matches!(m, Message::Exec(e) if e.direct)
}

/// Whether an RS has a file operation to do.
fn works(world: &World) -> bool {
    world.rss.iter().any(|rs| !rs.pending.is_empty())
}

#[test]
fn a_line_that_is_read_twice_is_cached() {
    for seed in seeds() {
        let mut world = up_direct(seed, 2, 1);
        // Extent 0, a whole line. A write does not make a line one that is read often.
        write(&mut world, 0, 4);
        quiet(&mut world);
        assert_eq!(by(&world), (0, 1));
        for wanted in [(0, 2), (1, 2), (2, 2)] {
            read(&mut world, 1, 3);
            quiet(&mut world);
            assert_eq!(by(&world), wanted);
        }
        // The CE has the line, so writes pass through it, and later reads find them there.
        write(&mut world, 2, 1);
        quiet(&mut world);
        read(&mut world, 0, 4);
        quiet(&mut world);
        assert_eq!(by(&world), (4, 2));
        let counters = |n: usize| {
            let status = world.ces[n].engine.as_ref().unwrap().status();
            let count = |name: &str| status["counters"][name].as_u64().unwrap();
            [count("cached_reads"), count("other_reads"), count("given")]
        };
        let all = [counters(0), counters(1)].concat();
        assert_eq!(all.iter().sum::<u64>(), 2 + 1 + 2, "{all:?}");
        // An RS answers for its own object only, and not what several CEs own.
        read(&mut world, 4, 12);
        quiet(&mut world);
        assert_eq!(by(&world), (5, 2));
        done(world);
    }
}

/// Without a channel to the initiator an RS gets no command.
#[test]
fn an_rs_that_is_not_asked_for_answers_nothing() {
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        for lba in (0..64).step_by(4) {
            write(&mut world, lba, 4);
            read(&mut world, lba, 4);
        }
        world.until("all is answered", 60_000, |w| {
            assert!(!on_its_way(w, Node::Ce(0), Node::Rs(0), is_given));
            w.initiators[0].idle()
        });
        assert_eq!(by(&world), (32, 0));
        done(world);
    }
}

/// A CE dies while an RS writes for it. The initiator logs in again when the write has ended.
#[test]
fn a_login_waits_for_a_command_at_an_rs() {
    for seed in seeds() {
        let mut world = up_direct(seed, 2, 1);
        world.stuck = [0, 1].into();
        write(&mut world, 0, 8);
        world.until("a write at an RS", 10_000, writing);
        let ce = if on_one(&world) {
            Node::Ce(0)
        } else {
            Node::Ce(1)
        };
        world.kill(ce);
        world.until("the end of the session", 20_000, |w| !w.initiators[0].up());
        world.for_ms(10_000);
        assert!(!world.initiators[0].up() && writing(&world));
        world.stuck.clear();
        world.until("the next session", 60_000, |w| w.initiators[0].up());
        quiet(&mut world);
        done(world);
    }
}

/// Whether the first CE has commands in flight.
fn on_one(world: &World) -> bool {
    !world.ces[0].engine.as_ref().unwrap().idle()
}

/// The data of a write is at the RS when its CE is fenced, and the RS learns of that late, after
/// another CE has written there.
#[test]
fn a_fenced_write_does_not_reach_the_file() {
    let mut shown = 0;
    for seed in 0..200 {
        let mut world = up_direct(seed, 2, 1);
        let rs = Node::Rs(0);
        let (id, side) = world.between(rs, A)[0];
        world.late_side(id, side, true);
        write(&mut world, 0, 4);
        world.until("the data", 10_000, |w| w.pending(id, side));
        let ce = if on_one(&world) {
            Node::Ce(0)
        } else {
            Node::Ce(1)
        };
        // The RS hears neither of the end of the session nor of that of the channel.
        world.hold(A, rs);
        world.kill(ce);
        world.until("the end of the session", 20_000, |w| !w.initiators[0].up());
        world.hold(SE, rs);
        let end = world.now + 2_500;
        while world.now < end && !world.initiators[0].idle() {
            world.step();
        }
        if world.initiators[0].idle() {
            write(&mut world, 0, 4);
            while world.now < end && !world.initiators[0].idle() {
                world.step();
            }
            shown += u64::from(world.initiators[0].idle() && world.pending(id, side));
        }
        world.late_side(id, side, false);
        world.for_ms(200);
        done(world);
    }
    assert!(shown > 4, "{shown}");
}

/// The CE does not learn that the RS has answered. It does not send the command again.
#[test]
fn a_command_is_not_answered_twice() {
    for seed in seeds() {
        let mut world = up_direct(seed, 1, 1);
        world.hold(Node::Rs(0), Node::Ce(0));
        write(&mut world, 0, 4);
        world.until("the answer", 10_000, |w| by(w) == (0, 1));
        for (id, _) in world.between(Node::Ce(0), Node::Rs(0)) {
            world.cut(id);
        }
        world.until("the next session", 60_000, |w| {
            let next = w.initiators[0].up() && w.initiators[0].sessions == 2;
            assert!(next || !on_its_way(w, Node::Ce(0), Node::Rs(0), is_given));
            next
        });
        done(world);
    }
}

/// An RS has been restarted, and SE and initiator do not know. The session ends at once.
#[test]
fn an_rs_that_has_forgotten_its_channels() {
    for seed in seeds() {
        let mut world = up_direct(seed, 1, 1);
        let rs = Node::Rs(0);
        world.hold(rs, SE);
        world.hold(rs, A);
        world.kill(rs);
        write(&mut world, 0, 4);
        world.until("the command", 1_000, |w| {
            on_its_way(w, SE, Node::Ce(0), is_given)
        });
        world.start(rs);
        // The initiator would wait 20 s for an answer.
        world.until("the answer", 15_000, |w| w.initiators[0].idle());
        done(world);
    }
}

/// An abort is answered when the RS has done the command. No data arrives later: its rkey would be
/// invalid, which ends the session.
#[test]
fn an_abort_waits_for_an_rs() {
    for seed in seeds() {
        let mut world = up_direct(seed, 1, 1);
        world.stuck = [0, 1].into();
        read(&mut world, 0, 4);
        write(&mut world, 40, 4);
        world.until("both at the RSs", 10_000, |w| {
            w.rss.iter().all(|rs| !rs.pending.is_empty())
        });
        initiator::commands::abort_any(&mut world, 0);
        world.for_ms(4_000);
        assert_eq!(world.initiators[0].aborted, 0);
        world.stuck.clear();
        quiet(&mut world);
        assert_eq!(world.initiators[0].sessions, 1);
        done(world);
    }
}

/// Whatever breaks while RSs do commands: each is answered in the end, and the session recovers.
#[test]
fn faults_amid_commands_of_an_rs() {
    for seed in 0..300 {
        let mut world = up_direct(seed, 1 + seed as usize % 2, 1);
        world.slow_disk = 2;
        for lba in (0..64).step_by(8) {
            write(&mut world, lba, 5);
            read(&mut world, lba + 2, 4);
        }
        let given = |w: &World| (0..2).any(|n| on_its_way(w, Node::Ce(0), Node::Rs(n), is_given));
        world.until("a command of an RS", 10_000, |w| given(w) || works(w));
        for _ in 0..world.rng.below(60) {
            world.step();
        }
        let rs = Node::Rs(world.rng.below(2) as usize);
        let cut = |world: &mut World, from, to| {
            for (id, _) in world.between(from, to) {
                world.cut(id);
            }
        };
        match seed % 6 {
            0 => world.kill(rs),
            1 => world.kill(SE),
            2 => world.kill(Node::Ce(0)),
            3 => cut(&mut world, A, rs),
            4 => cut(&mut world, Node::Ce(0), rs),
            _ => cut(&mut world, SE, rs),
        }
        world.for_ms(500);
        world.heal();
        world.until("all answer channels", 60_000, |w| {
            w.initiators[0].reach() == w.ces.len() + 2
        });
        done(world);
    }
}

/// The SE ends while an RS reads: the RS ends its answer channels, and nothing is sent there.
#[test]
fn an_rs_without_an_se_has_no_channels() {
    for seed in seeds() {
        let mut world = up_direct(seed, 1, 1);
        world.stuck = [0, 1].into();
        read(&mut world, 0, 4);
        world.until("a read at an RS", 10_000, |w| {
            let read = |w: &Work| matches!(w, Work::Read { .. });
            w.rss
                .iter()
                .any(|rs| rs.pending.iter().any(|(_, w, _)| read(w)))
        });
        let sessions = |w: &World| -> u64 {
            let all = w.rss.iter().map(|rs| rs.store.as_ref().unwrap().status());
            all.map(|s| s["sessions"].as_u64().unwrap()).sum()
        };
        assert_eq!(sessions(&world), 2);
        // They do not hear that the initiator leaves.
        world.hold(A, Node::Rs(0));
        world.hold(A, Node::Rs(1));
        world.kill(SE);
        world.until("the end of the channels", 10_000, |w| sessions(w) == 0);
        world.stuck.clear();
        world.for_ms(1_000);
        assert_eq!(by(&world), (0, 0));
        world.start(SE);
        quiet(&mut world);
        done(world);
    }
}
