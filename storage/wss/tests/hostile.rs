// SPDX-License-Identifier: GPL-2.0

//! A role neither panics nor exceeds a file or the arena, whatever it receives, in any order.

use std::collections::HashMap;

use crate::{strategies::message, world::scene::settings};
use proptest::{collection::vec, prelude::*};
use srp_target::{proto::cmd::DirectBuf, target};
use wss::{ce, message::*, rs, se};

/// An event for a role: a message, invalid bytes, a disconnect, a new connection, a completion,
/// time.
#[derive(Clone, Debug)]
enum Event {
    Message(u8, Message),
    Bytes(u8, Vec<u8>),
    Closed(u8),
    Connected(u8),
    Completed(u64),
    Tick(u64),
}

fn event() -> impl Strategy<Value = Event> {
    // Small numbers, so that they are likely to be valid.
    let small = message().prop_map(|mut m| {
        let low = |n: &mut u64| *n %= 4;
        match &mut m {
            Message::Attach { member, epoch, .. } => {
                *member %= 3;
                low(epoch);
            }
            Message::Attached { number, epoch, .. } => {
                *number %= 3;
                low(epoch);
            }
            Message::Joined { id, session, .. } | Message::Left { id, session, .. } => {
                low(id);
                low(session);
            }
            Message::Join { id, .. }
            | Message::Done { id, .. }
            | Message::Cancel { id }
            | Message::Cancelled { id } => low(id),
            Message::Fence { member, epoch, .. } | Message::Fenced { member, epoch, .. } => {
                *member %= 3;
                low(epoch);
            }
            Message::Open { id, object } | Message::Flush { id, object } => {
                low(id);
                *object %= 2;
            }
            Message::Exec(exec) => {
                low(&mut exec.id);
                low(&mut exec.session);
                // Most are of a few blocks, which their buffers fit.
                for e in &mut exec.extents {
                    (e.store, e.object, e.at, e.blocks) = (1, e.object % 2, e.at % 8, e.blocks % 4);
                    e.blocks += 1;
                }
                exec.extents.truncate(1);
                let len = exec.len() as u32;
                exec.descriptors.truncate(1);
                for d in &mut exec.descriptors {
                    *d = DirectBuf::new(d.va(), d.key(), len);
                }
            }
            _ => {}
        }
        m
    });
    prop_oneof![
        8 => (any::<u8>(), prop_oneof![small, message()]).prop_map(|(p, m)| Event::Message(p, m)),
        1 => (any::<u8>(), vec(any::<u8>(), 0..600)).prop_map(|(p, b)| Event::Bytes(p, b)),
        1 => any::<u8>().prop_map(Event::Closed),
        4 => any::<u8>().prop_map(Event::Connected),
        3 => (0..6u64).prop_map(Event::Completed),
        2 => (0..2000u64).prop_map(Event::Tick),
    ]
}

/// A login of an answer channel.
fn login() -> [u8; 56] {
    let mut login = [0; 56];
    login[10] = 1;
    login[12..16].copy_from_slice(&64u32.to_be_bytes());
    login[32..48].fill(7);
    login
}

fn attach(role: Role, member: u32, epoch: u64) -> Vec<u8> {
    let message = Message::Attach {
        role,
        member,
        epoch,
    };
    message.build()
}

fn attached(number: u32, epoch: u64) -> Vec<u8> {
    let status = Status::Good;
    let message = Message::Attached {
        status,
        number,
        epoch,
        boot: 9,
    };
    message.build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn an_rs(events in vec(event(), 0..60)) {
        let mut store = rs::Store::new(settings(), vec![64, 8], 0);
        // Length of each operation's buffer.
        let (mut now, mut buffers) = (0, HashMap::new());
        // Attach an SE, and a CE with a valid epoch.
        store.connected(0);
        store.message(0, &attach(Role::Se, 0, 1));
        let fence = Message::Fence { scope: Scope::Member, member: 1, epoch: 2 };
        store.message(0, &fence.build());
        store.connected(1);
        store.message(1, &attach(Role::Ce, 1, 2));
        for event in events {
            match event {
                Event::Message(p, m) => store.message(u64::from(p % 4), &m.build()),
                Event::Bytes(p, b) => {
                    store.message(u64::from(p % 4), &b);
                    store.login(u64::from(p % 4), &b);
                    store.received(u64::from(p % 4), &b);
                }
                Event::Closed(p) => {
                    store.closed(u64::from(p % 4));
                    store.ended(u64::from(p % 4));
                }
                Event::Connected(p) => {
                    store.connected(u64::from(p % 4));
                    store.login(u64::from(p / 4 % 4), &login());
                }
                Event::Completed(op) => {
                    store.moved(op);
                    store.executed(op, Status::Good);
                }
                Event::Tick(ms) => {
                    now += ms;
                    store.tick(now);
                }
            }
            for action in store.actions() {
                let len = |list: &[DirectBuf]| -> u64 {
                    list.iter().map(|d| u64::from(d.len())).sum()
                };
                // No access beyond the end of a file, or of the buffer of an operation.
                match action {
                    rs::Action::Execute {
                        op,
                        work: work @ (rs::Work::Read { object, at, blocks, .. }
                            | rs::Work::Write { object, at, blocks, .. }),
                        ..
                    } => {
                        let all = [64, 8][object as usize];
                        prop_assert!(at + u64::from(blocks) <= all);
                        let bytes = u64::from(blocks) * 512;
                        if matches!(work, rs::Work::Write { .. }) {
                            prop_assert_eq!(buffers.get(&op), Some(&bytes));
                        }
                        buffers.insert(op, bytes);
                    }
                    rs::Action::Pull { op, from, .. } => {
                        buffers.insert(op, len(&from));
                    }
                    rs::Action::Push { op, to, .. } => prop_assert!(len(&to) <= buffers[&op]),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_ce(events in vec(event(), 0..60)) {
        const LINE: u32 = 2048;
        let settings = ce::Settings { member: 1, id: [7; 16], lines: 8, line: LINE, engines: 1, stores: vec![1] };
        let mut engine = ce::Engine::new(settings, 0);
        let mut now = 0;
        engine.tick(0);
        engine.connected(1, 0, 0);
        engine.message(1, &attached(1, 2));
        engine.connected(2, 0x10000, 5);
        engine.message(2, &attached(1, 2));
        prop_assert!(engine.attached());
        for event in events {
            let peer = |p: u8| u64::from(1 + p % 4);
            match event {
                Event::Message(p, m) => engine.message(peer(p), &m.build()),
                Event::Bytes(p, b) => {
                    engine.message(peer(p), &b);
                    engine.login(peer(p), &b);
                    engine.received(peer(p), &b);
                }
                Event::Closed(p) => {
                    engine.closed(peer(p));
                    engine.ended(peer(p));
                }
                Event::Connected(p) => {
                    engine.connected(peer(p), 0x10000, 5);
                    engine.login(u64::from(p % 4), &login());
                }
                Event::Completed(job) => {
                    engine.fetched(job);
                    engine.sent(job);
                }
                Event::Tick(ms) => {
                    now += ms;
                    engine.tick(now);
                }
            }
            for action in engine.actions() {
                // No access beyond the end of the arena.
                let end = 8 * u64::from(LINE);
                match action {
                    ce::Action::Fetch { segments, .. } | ce::Action::Answer { segments, .. } => {
                        for s in segments {
                            prop_assert!(s.at + u64::from(s.descriptor.len()) <= end);
                        }
                    }
                    ce::Action::Send { message: Message::Get(t) | Message::Put(t), .. } => {
                        prop_assert!(t.va - 0x10000 + u64::from(t.blocks) * 512 <= end);
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn an_se(events in vec(event(), 0..60)) {
        let settings = se::Settings {
            target: target::Settings { id: [7; 16], queue_depth: 4, channels: 2 },
            guid: 1,
            units: vec![vec![(1, 0)]],
            stores: vec![1],
            extent: 8,
            line: 4,
            max_transfer: 6144,
            epoch: 1,
        };
        let mut engine = se::Engine::<Vec<u8>>::new(settings, 0);
        let (mut now, out) = (0, se::OUTGOING);
        engine.tick(0);
        engine.connected(out);
        engine.message(out, &attached(1, 1));
        engine.message(out, &Message::Fenced { scope: Scope::All, member: 0, epoch: 1 }.build());
        engine.message(out, &Message::Done { status: Status::Good, id: 1, value: 64 }.build());
        prop_assert!(engine.open());
        engine.connected(1);
        engine.message(1, &attach(Role::Ce, 1, 0));
        for event in events {
            // Connection 0 is to the RS, 1 to 3 are from CEs.
            let peer = |p: u8| if p % 4 == 0 { out } else { u64::from(p % 4) };
            match event {
                Event::Message(p, m) => engine.message(peer(p), &m.build()),
                Event::Bytes(p, b) => {
                    engine.message(peer(p), &b);
                    engine.login(10 + u64::from(p % 4), &b);
                }
                Event::Closed(p) => engine.closed(peer(p)),
                Event::Connected(p) => engine.connected(peer(p)),
                Event::Completed(task) => engine.sent(task),
                Event::Tick(ms) => {
                    now += ms;
                    engine.tick(now);
                }
            }
            engine.actions();
        }
    }
}
