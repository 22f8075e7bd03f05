// SPDX-License-Identifier: GPL-2.0

//! Flow control: each message finds a buffer, all arrive in order, and there is no deadlock.

use std::collections::VecDeque;

use seeded::Rng;
use wss::{
    flow::{Flow, RECEIVES, WAITING, WINDOW},
    message::{Message, LEN},
    peer::SILENCE,
};

/// One side of a connection. Each message in flight to this side has a buffer.
#[derive(Default)]
struct End {
    flow: Flow,
    arriving: VecDeque<Vec<u8>>,
    sent: u64,
    got: u64,
}

fn data(n: u64) -> Vec<u8> {
    let mut bytes = Message::Open { id: n, object: 0 }.build();
    bytes.resize(LEN, 0);
    bytes
}

fn flush(from: &mut End, to: &mut End) {
    while let Some(message) = from.flow.pop() {
        to.arriving.push_back(message);
        assert!(to.arriving.len() <= RECEIVES, "there is no buffer");
    }
}

fn take(this: &mut End, other: &mut End) {
    let Some(bytes) = this.arriving.front().cloned() else {
        return;
    };
    match Message::parse(&bytes) {
        // Queued messages are sent before the buffer of the GRANT is free.
        Ok(Message::Grant { count }) => {
            assert!(this.flow.granted(count));
            flush(this, other);
            this.arriving.pop_front();
        }
        Ok(Message::Open { id, .. }) => {
            assert_eq!(id, this.got, "out of order");
            this.got += 1;
            this.arriving.pop_front();
            if let Some(grant) = this.flow.free() {
                other.arriving.push_back(grant.build());
                assert!(other.arriving.len() <= RECEIVES, "there is no buffer");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_message_without_a_buffer() {
    for seed in 1..=50u64 {
        let mut rng = Rng(seed);
        let mut random = move |n| rng.below(n);
        let mut ends = [End::default(), End::default()];
        for _ in 0..3000 {
            let side = random(2) as usize;
            let [a, b] = &mut ends;
            let (this, other) = if side == 0 { (a, b) } else { (b, a) };
            // In bursts.
            let count = random(8).pow(3);
            match random(3) {
                0 => {
                    for _ in 0..count {
                        assert!(this.flow.queue(data(this.sent), 0));
                        this.sent += 1;
                    }
                    flush(this, other);
                }
                _ => (0..count).for_each(|_| take(this, other)),
            }
        }
        // At the end all messages arrive.
        while ends.iter().any(|e| !e.arriving.is_empty()) {
            let [a, b] = &mut ends;
            take(a, b);
            take(b, a);
        }
        assert_eq!(ends[0].sent, ends[1].got, "seed {seed}");
        assert_eq!(ends[1].sent, ends[0].got, "seed {seed}");
        assert!(ends[0].sent > u64::from(WINDOW));
    }
}

#[test]
fn more_than_there_can_be() {
    let mut flow = Flow::default();
    assert!(!flow.granted(1));
    assert!(flow.queue(data(0), 0));
    assert!(flow.pop().is_some());
    assert!(!flow.granted(2));
    assert!(!flow.granted(u32::MAX));
    assert!(flow.granted(1));
}

/// A flow without credits that has a queued message.
fn stuck(now: u64) -> Flow {
    let mut flow = Flow::default();
    for n in 0..=u64::from(WINDOW) {
        assert!(flow.queue(data(n), now));
        assert_eq!(flow.pop().is_some(), n < u64::from(WINDOW));
    }
    flow
}

/// The connection to a peer that grants nothing is closed after the liveness timeout, not earlier.
#[test]
fn a_peer_that_grants_nothing() {
    // The timeout starts when the next message, such as an ALIVE, is queued.
    let mut flow = stuck(500);
    assert!(flow.queue(data(0), 1000));
    assert!(flow.queue(data(0), 1000 + SILENCE - 1));
    assert!(!flow.queue(data(0), 1000 + SILENCE));
    // After a GRANT the timeout starts again.
    assert!(flow.granted(1));
    assert!(flow.pop().is_some() && flow.pop().is_none());
    let now = 1000 + SILENCE;
    assert!(flow.queue(data(0), now));
    assert!(flow.queue(data(0), now + SILENCE - 1));
    assert!(!flow.queue(data(0), now + SILENCE));
}

/// The connection to a peer that grants too little is closed when too many messages wait.
#[test]
fn a_peer_that_grants_too_little() {
    let (mut flow, mut sent, mut queued) = (stuck(0), 0, 1);
    while flow.queue(data(0), sent) {
        queued += 1;
        sent += 1;
        if sent % 4 == 0 {
            assert!(flow.granted(1));
            assert!(flow.pop().is_some());
            queued -= 1;
        }
        assert!(queued <= WAITING, "it grows without bound");
    }
    assert_eq!(queued, WAITING);
}
