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
    layout::{Size, Span, NODES},
    message::{Message, Status, LEN, PAYLOAD},
    options::{Options, Set},
};

use crate::{
    pair::*,
    target::{large_data, login, test, too_large_data, transfer, until, Running, TARGET},
};

#[path = "../../xorset/tests/world/etcd.rs"]
pub(crate) mod etcd;

pub(crate) const SIZE: Size = Size {
    cell: 128,
    stripes: 1000,
};

/// A made-up node, which has blocks in memory and no parities.
#[derive(Default)]
struct Node {
    /// The first epoch.
    since: u64,
    blocks: HashMap<(u64, u8, u16), Vec<u8>>,
}

impl Node {
    /// The blocks of a range. A block that was never written is empty.
    fn range(&mut self, span: Span) -> impl Iterator<Item = &mut Vec<u8>> {
        let all = span.block..span.block + span.blocks;
        for block in all.clone() {
            let place = (span.stripe, span.cell.number(), block);
            self.blocks.entry(place).or_default();
        }
        let here = move |(stripe, cell, block): &(u64, u8, u16)| {
            (*stripe, *cell) == (span.stripe, span.cell.number()) && all.contains(block)
        };
        let mut found: Vec<_> = self.blocks.iter_mut().filter(|(k, _)| here(k)).collect();
        found.sort_by_key(|(place, _)| **place);
        found.into_iter().map(|(_, block)| block)
    }

    /// The answer to a message, and its payload.
    fn answer(
        &mut self,
        number: u8,
        message: &Message,
        payload: &[u8],
    ) -> Option<(Message, Vec<u8>)> {
        let (status, none) = (Status::Good, Vec::new());
        match *message {
            Message::Attach { .. } => {
                let attached = Message::Attached {
                    number,
                    since: self.since,
                    epoch: 0,
                    cell: SIZE.cell,
                    stripes: SIZE.stripes,
                    set: 0,
                };
                Some((attached, none))
            }
            Message::Epoch { epoch } => {
                if self.since == 0 {
                    self.since = epoch;
                }
                Some((Message::Settled { epoch }, none))
            }
            Message::Read { id, span, .. } => {
                let mut data = Vec::new();
                for block in self.range(span) {
                    block.resize(512, 0);
                    data.extend_from_slice(block);
                }
                let node = 0;
                Some((Message::Data { status, id, node }, data))
            }
            Message::Write { id, span, .. } => {
                assert_eq!(payload.len(), span.len());
                for (block, data) in self.range(span).zip(payload.chunks(512)) {
                    *block = data.to_vec();
                }
                let node = 0;
                Some((Message::Done { status, id, node }, none))
            }
            Message::Alive { .. } => Some((Message::Alive { floor: 0 }, none)),
            Message::Open { .. } => None,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Serves five nodes, each at an address.
fn nodes(mut reactor: Reactor<()>, stop: &UnixStream) {
    let mut numbers: HashMap<LinkId, usize> = HashMap::new();
    let mut all: [Node; NODES] = Default::default();
    while reactor.wait(&[stop.as_raw_fd()], 100).unwrap() == [false] {
        while let Some(event) = reactor.poll().unwrap() {
            match event {
                Event::Login { id, data } => {
                    numbers.insert(id, reactor.listener(id).unwrap());
                    let sizes = [48, LEN + PAYLOAD];
                    assert!(reactor.welcome(id, &data, [PRIVATE, KEYED], sizes));
                }
                Event::Received { id, buffer, len } => {
                    let (head, payload) = buffer[..len].split_at(LEN);
                    let message = Message::parse(head).unwrap();
                    let n = numbers[&id];
                    if let Some((message, data)) = all[n].answer(n as u8, &message, payload) {
                        let mut bytes = message.build().to_vec();
                        bytes.extend(data);
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

fn at(port: u16, n: usize) -> String {
    format!("192.0.2.1:{}", usize::from(port) + n)
}

/// Starts five nodes at the ports after this one.
pub(crate) fn start_nodes(port: u16) -> (Running, Set) {
    let mut reactor = Reactor::calling().unwrap();
    let nodes_at = [1, 2, 3, 4, 5].map(|n| at(port, n).parse().unwrap());
    for at in nodes_at {
        reactor.listen(at).unwrap();
    }
    let set = Set {
        nodes: nodes_at,
        etcd: Cluster::plain(Vec::new()),
        name: "set".into(),
    };
    (Running::start(move |stop| nodes(reactor, &stop)), set)
}

/// The client of a set and its nodes, with a session of initiator 1. The connections between them
/// have the memory for one WRITE.
fn with_session(port: u16) -> ([Running; 2], Side, LinkId) {
    let (serves, set) = start_nodes(port);
    let options = Options::Client {
        set,
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
        let id = login(&mut side, &at(port, 0), 1, 260);
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
