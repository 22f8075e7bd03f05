// SPDX-License-Identifier: GPL-2.0

//! The client of a set, with five made-up nodes, on the made-up rdma-core of `fake.h`.

use std::{
    collections::HashMap,
    os::{fd::AsRawFd, unix::net::UnixStream},
};

use srp_target::reactor::{Event, LinkId, Reactor};
use wss::etcd::Cluster;
use xorset::{
    coordinator::TTL,
    fabric::{run_client, KEYED, PRIVATE},
    layout::{Size, Span},
    message::{Message, Status, LEN, PAYLOAD},
    options::{Options, Set},
};

use crate::{
    pair::*,
    target::{large_data, login, test, too_large_data, transfer, until, Running, TARGET},
};

#[path = "../../xorset/tests/world/etcd.rs"]
mod etcd;

/// The answer of a node, and the length of its payload.
fn answer(node: usize, message: &Message, payload: usize) -> Option<(Message, usize)> {
    let (status, len) = (Status::Good, |span: Span| usize::from(span.blocks) * 512);
    let number = node as u8;
    match *message {
        Message::Attach { .. } => {
            let Size { cell, stripes } = Size {
                cell: 128,
                stripes: 1000,
            };
            let attached = Message::Attached {
                number,
                since: 0,
                epoch: 0,
                cell,
                stripes,
                set: 0,
            };
            Some((attached, 0))
        }
        Message::Epoch { epoch } => Some((Message::Settled { epoch }, 0)),
        Message::Read { id, span, .. } => {
            let node = 0;
            Some((Message::Data { status, id, node }, len(span)))
        }
        Message::Write { id, span, .. } => {
            assert_eq!(payload, len(span));
            let node = 0;
            Some((Message::Done { status, id, node }, 0))
        }
        Message::Alive { .. } => Some((Message::Alive { floor: 0 }, 0)),
        Message::Open { .. } => None,
        ref other => panic!("{other:?}"),
    }
}

/// Serves five nodes, each at an address, without files.
fn nodes(mut reactor: Reactor<()>, stop: &UnixStream) {
    let mut numbers: HashMap<LinkId, usize> = HashMap::new();
    while reactor.wait(&[stop.as_raw_fd()], 100).unwrap() == [false] {
        while let Some(event) = reactor.poll().unwrap() {
            match event {
                Event::Login { id, data } => {
                    numbers.insert(id, reactor.listener(id).unwrap());
                    let sizes = [48, LEN + PAYLOAD];
                    assert!(reactor.welcome(id, &data, [PRIVATE, KEYED], sizes));
                }
                Event::Received { id, buffer, len } => {
                    let message = Message::parse(&buffer[..LEN]).unwrap();
                    if let Some((message, len)) = answer(numbers[&id], &message, len - LEN) {
                        let mut bytes = message.build().to_vec();
                        bytes.resize(LEN + len, 0);
                        reactor.send(id, None, &bytes).unwrap();
                    }
                    reactor.receive(id, buffer).unwrap();
                }
                Event::Done { id, buffer, .. } => reactor.give(id, buffer),
                // It needs no more later.
                Event::Connected { id } => {
                    let buffers = [(); 8].map(|()| reactor.take(id, LEN + PAYLOAD).unwrap());
                    buffers.map(|buffer| reactor.give(id, Some(buffer)));
                }
                Event::Memory { .. } | Event::Ended { .. } => {}
                Event::Refused { why, .. } => panic!("{why}"),
            }
        }
        reactor.late();
    }
}

/// The client of a set and its nodes, with a session of initiator 1. The connections between them
/// have the memory for one WRITE.
fn with_session(port: u16) -> ([Running; 2], Side, LinkId) {
    let at = |n: usize| format!("192.0.2.1:{}", usize::from(port) + n);
    let mut reactor = Reactor::calling().unwrap();
    let nodes_at = [1, 2, 3, 4, 5].map(|n| at(n).parse().unwrap());
    for at in nodes_at {
        reactor.listen(at).unwrap();
    }
    let serves = Running::start(move |stop| nodes(reactor, &stop));
    let options = Options::Client {
        set: Set {
            nodes: nodes_at,
            etcd: Cluster::plain(Vec::new()),
            name: "set".into(),
        },
        listen: format!("0.0.0.0:{port}").parse().unwrap(),
        id: TARGET.0,
        guid: 1,
        queue_depth: 64,
        channels: 16,
        pause: 0,
        lease: TTL,
        key: None,
        allow: None,
    };
    let etcd = etcd::Etcd::default();
    let client = Running::start(move |stop| run_client(options, etcd, &stop, None).unwrap());
    let mut side = Side::new(&[]);
    let id = loop {
        let id = login(&mut side, &at(0), 1, 260);
        let over = |s: &Side| s.connected.contains(&id) || s.ended.contains_key(&id);
        until(&mut side, "the session", over);
        // It may not listen yet.
        if side.ended.is_empty() {
            break id;
        }
        side.ended.clear();
    };
    // It gets a unit attention.
    test(&mut side, id);
    transfer(&mut side, id, 1..2);
    until(&mut side, "the response", |s| s.all_received() == 2);
    ([client, serves], side, id)
}

/// Data of initiators is registered beside the client's thread.
#[test]
fn large_data_of_a_set_delays_no_session() {
    let _alone = alone();
    let (set, mut side, id) = with_session(5050);
    large_data(&mut side, "192.0.2.1:5050", id);
    drop(set);
    drop(side);
    assert_eq!(misuse(), "");
}

#[test]
fn a_command_of_a_set_without_memory_is_refused() {
    let _alone = alone();
    let (set, mut side, _) = with_session(5060);
    let id = login(&mut side, "192.0.2.1:5060", 2, 260);
    until(&mut side, "a session", |s| s.connected.contains(&id));
    too_large_data(&mut side, id);
    drop(set);
    drop(side);
    assert_eq!(misuse(), "");
}
