// SPDX-License-Identifier: GPL-2.0

//! An RS loses its power, and with it any of the blocks that were not flushed.

use crate::world::{
    initiator::{self, Kind},
    scene::*,
    Node, World, TARGET,
};
use srp_target::proto::{
    cmd::{Cmd, DirectBuf, Direction},
    ids::{Lun, PortId},
    login_iu::{LoginReqRdma, MultiChannel, Requested},
};
use wss::rs::Work;

fn flush(world: &mut World) {
    initiator::want(world, 0, Kind::Flush, 0, 0, false);
    quiet(world);
}

/// The power of an RS is lost and comes back.
fn lose(world: &mut World, n: usize) {
    world.power(n);
    world.for_ms(1000);
    world.start(Node::Rs(n));
    world.until("all CEs are attached", 60_000, |w| {
        let up = |ce: &crate::world::CeNode| ce.engine.as_ref().unwrap().attached();
        w.ces.iter().all(up)
    });
}

/// A flush fails once if answered writes are lost. Reads agree with the file, whatever a CE has in
/// its lines.
#[test]
fn a_flush_tells_of_lost_writes() {
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        write(&mut world, 0, 4);
        quiet(&mut world);
        flush(&mut world);
        write(&mut world, 0, 4);
        quiet(&mut world);
        lose(&mut world, 0);
        let owed = world.initiators[0].owed.is_some();
        flush(&mut world);
        assert!(world.told == 1 || !owed);
        read(&mut world, 0, 4);
        quiet(&mut world);
        for block in 0..4 {
            let disk = &world.disks[0][block * 512..];
            let value = u64::from_le_bytes(*disk.first_chunk().unwrap());
            assert_eq!(world.initiators[0].last[&(block as u64)], value);
        }
        let told = world.told;
        write(&mut world, 0, 4);
        quiet(&mut world);
        flush(&mut world);
        assert_eq!(world.told, told);
        assert_eq!(world.initiators[0].sessions, 1);
        done(world);
    }
}

/// The power goes before the flush of an answered write.
fn lose_unflushed(world: &mut World) {
    write(world, 0, 4);
    quiet(world);
    flush(world);
    write(world, 0, 4);
    quiet(world);
    world.power(0);
    initiator::want(world, 0, Kind::Flush, 0, 0, false);
    world.until("the flush waits in the SE", 4000, |w| {
        w.se.as_ref().unwrap().commands() == 1
    });
}

/// The answer that reports a loss does not arrive: the repeated flush reports it.
fn tell_again(mut world: World) -> bool {
    let owed = world.initiators[0].owed.is_some();
    assert_eq!(world.told, 0);
    quiet(&mut world);
    assert!(world.told == 1 || !owed);
    let told = world.told;
    flush(&mut world);
    assert_eq!(world.told, told);
    assert!(world.initiators[0].sessions > 1);
    done(world);
    owed
}

/// The initiator is cut off when the SE answers, and gives up its session.
#[test]
fn a_lost_answer_tells_nothing() {
    let mut owed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        lose_unflushed(&mut world);
        world.hold(SE, A);
        world.start(Node::Rs(0));
        world.until("the SE has answered", 10_000, |w| {
            w.se.as_ref().unwrap().commands() == 0
        });
        initiator::lose(&mut world, 0);
        owed += u64::from(tell_again(world));
    }
    assert!(owed > 30, "{owed}");
}

/// If the SE ends the session before it has ended a flush, it does not respond to the flush.
#[test]
fn a_flush_of_an_ending_session_tells_nothing() {
    let mut owed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        lose_unflushed(&mut world);
        world.stuck.insert(0);
        world.start(Node::Rs(0));
        world.until("the RS flushes", 10_000, |w| {
            let flush = |(_, work, _): &_| matches!(work, Work::Flush { .. });
            w.rss[0].pending.iter().any(flush)
        });
        world.hold(SE, A);
        world.hold(Node::Ce(0), A);
        let (main, side) = world.between(SE, A)[0];
        world.kill(Node::Ce(0));
        world.pace = 10_000;
        world.until("the SE ends the session", 1000, |w| {
            w.queue(main, side).next().is_some()
        });
        world.stuck.clear();
        let end = world.now + 300;
        world.until("the flush has ended", 1000, |w| {
            w.se.as_ref().unwrap().commands() == 0
        });
        assert!(world.now < end);
        world.pace = 60;
        world.release();
        world.start(Node::Ce(0));
        owed += u64::from(tell_again(world));
    }
    assert!(owed > 30, "{owed}");
}

/// A flush that the SE gets before the completion of the answer that told of a loss: it succeeds,
/// unless there is another loss.
#[test]
fn a_late_completion() {
    let mut owed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        write(&mut world, 0, 4);
        quiet(&mut world);
        lose(&mut world, 0);
        world.uncompleted = true;
        flush(&mut world);
        assert_eq!(world.told, 1);
        if seed % 2 > 0 {
            initiator::want(&mut world, 0, Kind::Flush, 0, 0, false);
            world.for_ms(1000);
            assert!(!world.initiators[0].idle());
            world.uncompleted = false;
            quiet(&mut world);
            assert_eq!(world.told, 1);
            done(world);
            continue;
        }
        write(&mut world, 0, 4);
        world.for_ms(2000);
        // Unless the SE fetches a table, which never completes.
        if world.initiators[0].idle() {
            lose(&mut world, 0);
            world.uncompleted = false;
            world.for_ms(1000);
            let told = 1 + u64::from(world.initiators[0].owed.is_some());
            owed += told - 1;
            flush(&mut world);
            assert!(world.told >= told);
        }
        done(world);
    }
    assert!(owed > 10, "{owed}");
}

/// This many other initiators log in, send a read, and log out.
fn crowd(world: &mut World, count: u64) {
    world.until("the SE has no command", 10_000, |w| {
        w.se.as_ref().unwrap().commands() == 0
    });
    let buffer = DirectBuf::new(0x1000, 1, 512);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x88, 1);
    let lun = Lun::from_int(0);
    for _ in 0..count {
        let channel = world.number();
        let mut id = [0xff; 16];
        id[..8].copy_from_slice(&channel.to_be_bytes());
        let login = LoginReqRdma::new(&Requested {
            tag: 1,
            max_it_iu_len: 260,
            descriptors: 12,
            immediate: 0,
            multichannel: MultiChannel::Single,
            initiator: PortId(id),
            target: PortId(TARGET),
        });
        world.se.as_mut().unwrap().login(channel, login.as_bytes());
        world.pump(SE);
        // The first command gets UNIT ATTENTION.
        for tag in 2..4 {
            let (mut iu, cdb) = (vec![0; 260], &cdb);
            let cmd = Cmd { tag, lun, cdb };
            let len = cmd.build_direct(&mut iu, Direction::FromDevice, &buffer);
            let se = world.se.as_mut().unwrap();
            se.received(channel, iu, len.unwrap());
            world.pump(SE);
        }
        let se = world.se.as_mut().unwrap();
        assert_eq!(se.commands(), 1);
        se.ended(channel);
        world.pump(SE);
    }
}

/// An initiator with a session is told, however many have logged in after it.
#[test]
fn a_session_is_not_forgotten() {
    let mut owed = 0;
    for seed in 0..10 {
        let mut world = up(seed, 1, 1);
        if seed % 2 > 0 {
            initiator::lose(&mut world, 0);
        }
        write(&mut world, 0, 8);
        quiet(&mut world);
        crowd(&mut world, 1100);
        lose(&mut world, 0);
        owed += u64::from(world.initiators[0].owed.is_some());
        flush(&mut world);
        assert_eq!(world.told, 1);
        assert_eq!(world.initiators[0].sessions, 1 + seed % 2);
        done(world);
    }
    assert!(owed > 5, "{owed}");
}

/// An initiator that the SE has forgotten is told of a later loss.
#[test]
fn who_is_forgotten_is_told() {
    let mut owed = 0;
    for seed in 0..10 {
        let mut world = up(seed, 1, 2);
        flush(&mut world);
        initiator::want(&mut world, 1, Kind::Write, 0, 8, false);
        quiet(&mut world);
        initiator::lose(&mut world, 1);
        world.frozen.insert(Node::Initiator(1));
        world.for_ms(1000);
        crowd(&mut world, 1100);
        lose(&mut world, 0);
        world.frozen.clear();
        owed += u64::from(world.initiators[1].owed.is_some());
        initiator::want(&mut world, 1, Kind::Flush, 0, 0, false);
        quiet(&mut world);
        assert_eq!(world.told, 1);
        done(world);
    }
    assert!(owed > 5, "{owed}");
}

/// An initiator that was told is not told again after its next login, however many logged in
/// meanwhile that were not told.
#[test]
fn who_was_told_is_not_forgotten() {
    for seed in 0..10 {
        let mut world = up(seed, 1, 1);
        lose(&mut world, 0);
        flush(&mut world);
        assert_eq!(world.told, 1);
        world.for_ms(100);
        initiator::lose(&mut world, 0);
        world.until("the SE has no session", 10_000, |w| {
            w.se.as_ref().unwrap().idle()
        });
        crowd(&mut world, 1100);
        flush(&mut world);
        assert_eq!(world.told, 1);
        done(world);
    }
}

/// A read after the eviction of a cache line returns nothing older than a read before it.
#[test]
fn reads_do_not_go_back() {
    for seed in seeds() {
        let mut world = up(seed, 1, 1);
        write(&mut world, 0, 8);
        quiet(&mut world);
        lose(&mut world, 0);
        for lba in (0..56).step_by(4) {
            read(&mut world, lba, 4);
            quiet(&mut world);
        }
        read(&mut world, 0, 8);
        quiet(&mut world);
        done(world);
    }
}

/// Without a lost write no flush fails: if all was flushed, also if another SE had answered it, or
/// if only the process of the RS died.
#[test]
fn nothing_is_told_without_a_loss() {
    for seed in seeds() {
        let mut world = up(seed, 2, 1);
        write(&mut world, 0, 12);
        quiet(&mut world);
        if seed % 3 < 2 {
            if seed % 3 == 1 {
                replace_se(&mut world);
            }
            flush(&mut world);
            lose(&mut world, 0);
        } else {
            world.kill(Node::Rs(0));
            world.for_ms(1000);
            world.start(Node::Rs(0));
        }
        flush(&mut world);
        assert_eq!((world.told, world.initiators[0].owed), (0, None));
        done(world);
    }
}

/// A new SE takes the place of the first one.
fn replace_se(world: &mut World) {
    world.kill(SE);
    world.for_ms(1000);
    world.start(SE);
    world.until("the new SE is attached to all RSs", 60_000, |w| {
        w.attached.len() == w.rss.len()
    });
}

/// A new SE knows none of the earlier writes. It reports their loss to both initiators, whether
/// they log in or write before or after the loss.
#[test]
fn a_new_se_tells_of_lost_writes() {
    let mut owed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 2);
        write(&mut world, 0, 4);
        quiet(&mut world);
        replace_se(&mut world);
        if seed % 3 > 0 {
            world.until("all are logged in", 100_000, |w| {
                w.initiators.iter().all(|i| i.up())
            });
        }
        if seed % 3 > 1 {
            // The SE learns of one initiator only.
            initiator::want(&mut world, 1, Kind::Write, 0, 2, false);
            quiet(&mut world);
        }
        lose(&mut world, 0);
        for n in 0..2 {
            owed += u64::from(world.initiators[n].owed.is_some());
            initiator::want(&mut world, n, Kind::Flush, 0, 0, false);
            quiet(&mut world);
            assert_eq!(world.initiators[n].owed, None);
        }
        let told = world.told;
        assert_eq!(told, 2);
        for n in 0..2 {
            initiator::want(&mut world, n, Kind::Flush, 0, 0, false);
        }
        quiet(&mut world);
        assert_eq!(world.told, told);
        done(world);
    }
    assert!(owed > 60, "{owed}");
}

/// A sync of an RS's file fails, which the kernel reports once, and the RS is started again. Each
/// initiator is told once, also one that asked for no sync: of a flush, an aborted one, or a write
/// with FUA.
#[test]
fn a_failed_sync_is_told_to_all() {
    let mut owed = 0;
    for seed in seeds() {
        let mut world = up(seed, 1, 2);
        for n in 0..2 {
            let lba = n as u64 * 8;
            initiator::want(&mut world, n, Kind::Write, lba, 8, false);
        }
        quiet(&mut world);
        world.rss[0].bad_sync = true;
        let (kind, count) = match seed % 3 {
            0 => (Kind::Write, 1),
            _ => (Kind::Flush, 0),
        };
        initiator::want(&mut world, 0, kind, 16, count, true);
        if seed % 3 == 2 {
            world.until("the RS flushes", 60_000, |w| {
                let flush = |(_, work, _): &_| matches!(work, Work::Flush { .. });
                w.rss[0].pending.iter().any(flush)
            });
            world.stuck.insert(0);
            initiator::commands::abort_any(&mut world, 0);
            world.for_ms(1000);
            world.stuck.clear();
        }
        quiet(&mut world);
        world.until("the sync has failed", 60_000, |w| {
            !w.rss[0].bad_sync && w.history.settled()
        });
        for lba in [0, 8] {
            read(&mut world, lba, 8);
        }
        quiet(&mut world);
        world.kill(Node::Rs(0));
        world.start(Node::Rs(0));
        for n in [1, 0] {
            owed += u64::from(world.initiators[n].owed.is_some());
            initiator::want(&mut world, n, Kind::Flush, 0, 0, false);
            quiet(&mut world);
            assert_eq!(world.initiators[n].owed, None);
        }
        assert_eq!(world.told, 2);
        for n in 0..2 {
            initiator::want(&mut world, n, Kind::Flush, 0, 0, false);
        }
        quiet(&mut world);
        assert_eq!(world.told, 2);
        done(world);
    }
    assert!(owed > 60, "{owed}");
}

/// The power goes amid writes and flushes of two initiators. Each is told, also one whose session
/// ends before.
#[test]
fn a_loss_amid_commands() {
    let mut told = 0;
    for seed in seeds() {
        let mut world = up(seed, 2, 2);
        for _ in 0..3 {
            for _ in 0..30 {
                let n = world.rng.below(2) as usize;
                initiator::want_any(&mut world, n);
                for _ in 0..5 {
                    world.step();
                }
            }
            let n = world.rng.below(2) as usize;
            world.power(n);
            if world.rng.one_in(3) {
                initiator::lose(&mut world, 1);
            }
            world.for_ms(500);
            world.start(Node::Rs(n));
        }
        quiet(&mut world);
        for n in 0..2 {
            initiator::want(&mut world, n, Kind::Flush, 0, 0, false);
        }
        quiet(&mut world);
        for initiator in &world.initiators {
            assert_eq!(initiator.owed, None);
        }
        told += world.told;
        done(world);
    }
    assert!(told > 60, "{told}");
}
