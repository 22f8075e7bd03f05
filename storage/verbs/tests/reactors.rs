// SPDX-License-Identifier: GPL-2.0

//! Several reactors of a process that share devices and a listener, on the made-up rdma-core of
//! `fake.h`.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use srp_target::reactor::{Event, LinkId, Reactor};
use verbs::Incoming;

use crate::pair::*;

/// A listener that gives its requests to reactors in turn, and clients.
struct Shared {
    door: Reactor<()>,
    sides: Vec<Side>,
    client: Side,
    requests: Vec<Incoming>,
    turn: usize,
}

impl Shared {
    fn new(listen: &str) -> Self {
        let parts = Reactor::parts(2).unwrap();
        Self {
            door: Reactor::new(listen.parse().unwrap()).unwrap(),
            sides: parts.into_iter().map(Side::with).collect(),
            client: Side::new(&[]),
            requests: Vec::new(),
            turn: 0,
        }
    }

    /// Takes the requests, as their reactors get them.
    fn take(&mut self) {
        self.door.wait(&[], 0).unwrap();
        while let Some(event) = self.door.poll().unwrap() {
            let Event::Login { id, .. } = event else {
                continue;
            };
            let to = self.sides[(self.turn + self.requests.len()) % 2]
                .reactor
                .events();
            self.requests.push(self.door.hand_over(id, &to).unwrap());
            assert!(self.door.is_empty());
        }
    }

    /// Gives the requests to their reactors.
    fn give(&mut self) {
        for incoming in std::mem::take(&mut self.requests) {
            self.sides[self.turn % 2].reactor.arrive(incoming);
            self.turn += 1;
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            assert!(Instant::now() < until, "{what}");
            self.take();
            self.give();
            self.sides.iter_mut().for_each(Side::turn);
            self.client.turn();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn connect(&mut self, to: &str) -> LinkId {
        let id = self.client.connect(to);
        self.until(to, |all| {
            let count: usize = all.sides.iter().map(|s| s.connected.len()).sum();
            all.client.connected.contains(&id) && count == all.client.connected.len()
        });
        id
    }

    fn send(&mut self, id: LinkId) {
        let received = |all: &Self| all.sides.iter().map(Side::all_received).sum::<usize>();
        let before = received(self);
        self.client.reactor.send(id, None, b"a message").unwrap();
        self.until("a message", |all| received(all) > before);
    }

    fn ended(&self) -> usize {
        self.sides.iter().map(|s| s.ended.len()).sum()
    }
}

#[test]
fn requests_go_to_reactors_in_turn() {
    let _alone = alone();
    let mut shared = Shared::new("0.0.0.0:5030");
    let to = [
        "192.0.2.1:5030",
        "192.0.2.1:5030",
        "192.0.2.2:5030",
        "192.0.2.2:5030",
    ];
    let links = to.map(|to| shared.connect(to));
    for side in &shared.sides {
        assert_eq!(side.connected.len(), 2);
    }
    let numbers = shared.sides.iter().flat_map(|s| &s.connected);
    assert_eq!(numbers.collect::<BTreeSet<_>>().len(), 4);
    links.into_iter().for_each(|id| shared.send(id));
    // The made-up devices have three.
    assert_eq!(vectors(), 0b111);

    // The events of a request are for the reactor that has it.
    shared.client.reactor.close(links[0]);
    shared.until("the end", |all| all.sides[0].ended.len() == 1);

    remove(0, true);
    shared.until("the other of the device", |all| {
        all.ended() == 2 && all.client.ended.len() == 1
    });
    [links[2], links[3]]
        .into_iter()
        .for_each(|id| shared.send(id));
    add(0);
    let back = shared.connect(to[0]);
    shared.send(back);
    drop(shared);
    assert_eq!(misuse(), "");
    assert_eq!(open(), 2);
}

/// A peer may give up, or its device may go, between the listener and the reactor.
#[test]
fn a_request_may_end_on_its_way() {
    let _alone = alone();
    let mut shared = Shared::new("0.0.0.0:5031");
    let stays = shared.connect("192.0.2.2:5031");
    for gone in [false, true] {
        let id = shared.client.connect("192.0.2.1:5031");
        while shared.requests.is_empty() {
            shared.client.turn();
            shared.take();
        }
        match gone {
            true => remove(0, true),
            false => shared.client.reactor.close(id),
        }
        for _ in 0..9 {
            // The reactor reads the event of a request that it does not have.
            shared.sides.iter_mut().for_each(Side::turn);
        }
        let ended = shared.ended();
        shared.give();
        shared.until("the end", |all| all.ended() > ended);
        shared.send(stays);
    }
    add(0);
    drop(shared);
    assert_eq!(misuse(), "");
}

/// A device has one source of asynchronous events, which any of the reactors may read.
#[test]
fn the_event_of_a_connection_reaches_its_reactor() {
    let _alone = alone();
    let mut server = Side::new(&["0.0.0.0:5032", "0.0.0.0:5033"]);
    let mut sides = Shared::new("0.0.0.0:5034").sides;
    let before = registered();
    let connect = |side: &mut Side, server: &mut Side, port| {
        let id = side.connect(&format!("192.0.2.1:{port}"));
        while !side.connected.contains(&id) {
            side.turn();
            server.turn();
        }
        id
    };
    for (what, owner) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let broken = connect(&mut sides[owner], &mut server, 5032);
        let whole = connect(&mut sides[1 - owner], &mut server, 5033);
        event(what, 5032);
        sides[1 - owner].turn();
        let foreign = sides[1 - owner].reactor.foreign();
        assert_eq!(foreign.len(), 1);
        for (device, trouble) in &foreign {
            sides[owner].reactor.hear(device, trouble);
        }
        for side in &mut sides {
            side.turn();
            assert!(side.reactor.foreign().is_empty());
        }
        let why = sides[owner].ended[&broken].clone().unwrap();
        assert!(why.starts_with("event "), "{why}");
        sides[1 - owner]
            .reactor
            .send(whole, None, b"a message")
            .unwrap();
        sides[1 - owner].reactor.close(whole);
        // A thread releases the connections. The next event must not be of one of them.
        let until = Instant::now() + Duration::from_secs(10);
        while registered() > before {
            assert!(Instant::now() < until, "{} bytes", registered());
            sides.iter_mut().for_each(Side::turn);
            server.turn();
        }
    }
    assert_eq!(misuse(), "");
}
