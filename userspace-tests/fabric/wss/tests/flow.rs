// SPDX-License-Identifier: GPL-2.0

//! Flow control: no message arrives where there is no buffer, all of them arrive in their order, and it never stands still.

use std::collections::VecDeque;

use wss::{
    flow::{Flow, RECEIVES, WAITING, WINDOW},
    message::{Message, LEN},
    peer::SILENCE,
};

/// One end: what is on its way to it has a buffer each.
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

/// Sends what can be sent.
fn flush(from: &mut End, to: &mut End) {
    while let Some(message) = from.flow.pop() {
        to.arriving.push_back(message);
        assert!(to.arriving.len() <= RECEIVES, "there is no buffer");
    }
}

/// Takes one message.
fn take(this: &mut End, other: &mut End) {
    let Some(bytes) = this.arriving.front().cloned() else {
        return;
    };
    match Message::parse(&bytes) {
        // What it lets go is sent before its own buffer is free.
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
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut ends = [End::default(), End::default()];
        for _ in 0..3000 {
            let side = random(2) as usize;
            let [a, b] = &mut ends;
            let (this, other) = if side == 0 { (a, b) } else { (b, a) };
            // In bursts, as there are calm times and others.
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
        // In the end all of it arrives.
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

/// A flow without credits, and with a message that waits.
fn stuck(now: u64) -> Flow {
    let mut flow = Flow::default();
    for n in 0..=u64::from(WINDOW) {
        assert!(flow.queue(data(n), now));
        assert_eq!(flow.pop().is_some(), n < u64::from(WINDOW));
    }
    flow
}

/// Whoever grants nothing is at its end when it would be so for silence, and not before.
#[test]
fn a_peer_that_grants_nothing() {
    // ALIVE is what is queued next, a while later.
    let mut flow = stuck(500);
    assert!(flow.queue(data(0), 1000));
    assert!(flow.queue(data(0), 1000 + SILENCE - 1));
    assert!(!flow.queue(data(0), 1000 + SILENCE));
    // A GRANT, and it goes on for as long.
    assert!(flow.granted(1));
    assert!(flow.pop().is_some() && flow.pop().is_none());
    let now = 1000 + SILENCE;
    assert!(flow.queue(data(0), now));
    assert!(flow.queue(data(0), now + SILENCE - 1));
    assert!(!flow.queue(data(0), now + SILENCE));
}

/// Whoever grants less than it is sent is at its end when too many messages wait.
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
