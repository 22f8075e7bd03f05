// SPDX-License-Identifier: GPL-2.0

//! The attacks on a node of `xorset` that has a key.

use std::time::Duration;

use xorset::{
    fabric::{CLIENT, KEYED, NODE, PRIVATE},
    layout::{Cell, Span},
    message::{Message, Role, Status, LEN},
};

use crate::{
    handshake::{Attack, Case, Protocol},
    peer::Fault,
};

const CASES: &[Case] = &[
    ("no key", Attack::no_key),
    ("a wrong key", Attack::wrong_key),
    ("a recorded handshake", Attack::replay),
    ("malformed messages with the key", Attack::spoken),
    ("a node with the key", Attack::node),
];

/// The protocol of xorset. The attacker is this node.
pub(crate) fn protocol(ours: u32) -> Protocol {
    let role = Role::Node(ours as u8);
    Protocol {
        keyed: KEYED,
        plain: PRIVATE,
        other: wss::fabric::KEYED,
        ours: (NODE, ours),
        uncalled: &[3],
        others: [(CLIENT, 0), (NODE, ours + 1), (3, ours)],
        attach: Message::Attach { role }.build().to_vec(),
        alive: |bytes| matches!(Message::parse(bytes), Ok(Message::Alive { .. })),
        cases: CASES,
    }
}

/// The first blocks of a data cell of a stripe.
fn span(stripe: u64, block: u16, blocks: u16) -> Span {
    Span {
        stripe,
        cell: Cell::data(0),
        block,
        blocks,
    }
}

fn with(message: Message, payload: &[u8]) -> Vec<u8> {
    [&message.build()[..], payload].concat()
}

impl Attack {
    /// What only the client or a node may send.
    fn of_others(&self, epoch: u64) -> Vec<Vec<u8>> {
        let (id, lost, good) = (1, 0, span(0, 0, 1));
        let number = self.called.1 as u8;
        let status = Status::Good;
        let write = Message::Write {
            epoch,
            id,
            span: good,
            lost,
        };
        let rebuild = Message::Rebuild {
            epoch,
            id,
            stripe: 0,
            lost: 1 << number,
            rest: true,
        };
        let data = Message::Data {
            status,
            id,
            node: 0,
        };
        let done = Message::Done {
            status,
            id,
            node: 0,
        };
        let ack = Message::Ack {
            status,
            owner: number,
            seq: epoch << 32,
        };
        let attached = Message::Attached {
            number,
            since: epoch,
            epoch: u64::MAX,
            cell: 1,
            stripes: 1,
            set: 1,
        };
        let messages = [
            Message::Open { epoch },
            Message::Settled { epoch },
            Message::Complain { epoch, number },
            Message::Spoilt { epoch, stripe: 0 },
            rebuild,
            done,
            ack,
            attached,
        ];
        let mut all: Vec<_> = messages.map(|m| m.build().to_vec()).into();
        all.push(with(write, &[0xbd; 512]));
        all.push(with(data, &[0xbd; 512]));
        let map = b"epoch 99 of no set";
        all.push(with(Message::Epoch { epoch: 99 }, map));
        all
    }

    /// Messages of a role that has not attached.
    fn spoken(&mut self) -> Result<String, Fault> {
        let alive = Message::Alive { floor: 0 }.build();
        let byte = |at: usize, byte: u8| {
            let mut bytes = alive.to_vec();
            bytes[at] = byte;
            bytes
        };
        let mut all: Vec<_> = [1, LEN - 1].map(|len| alive[..len].to_vec()).into();
        all.extend([1, 64, 1000].map(|more| [&alive[..], &vec![0; more]].concat()));
        all.extend([0, 17, 0x7f, 0xff].map(|code| byte(0, code)));
        all.extend([1, 2, 3, 4, 8, 16, 24, 63].map(|at| byte(at, 0xff)));
        // As itself, as another node, and as the client: only the first one is what it has proven.
        for role in [
            Role::Node(self.called.1 as u8),
            Role::Node((self.protocol.ours.1 as u8 + 1) % 5),
            Role::Client,
        ] {
            all.push(Message::Attach { role }.build().to_vec());
        }
        let delta = Message::Delta {
            epoch: 1,
            owner: self.protocol.ours.1 as u8,
            seq: 1 << 32,
            span: span(0, 0, 1),
            lost: 0,
            floor: 0,
        };
        all.push(with(delta, &[0xbd; 512]));
        // A payload of another length.
        all.push(with(delta, &[0xbd; 511]));
        all.extend(self.of_others(1));
        for bytes in &all {
            let link = self.proves()?.0;
            self.last(link, bytes)?;
        }
        // More messages than the role has buffers for.
        let link = self.proves()?.0;
        for _ in 0..4000 {
            if self.peer.send(link, &alive).is_err() {
                break;
            }
        }
        self.peer.pass(Duration::from_millis(300))?;
        self.peer.reactor.close(link);
        Ok(format!("{} ended", all.len()))
    }

    /// A node that asks for what there is not, and for what only the client may ask.
    fn node(&mut self) -> Result<String, Fault> {
        let epoch = self.joins()?.1;
        let mut ended = 0;
        for bytes in self.of_others(epoch) {
            let link = self.joins()?.0;
            self.last(link, &bytes)?;
            ended += 1;
        }
        // The second ATTACH of a connection.
        let link = self.joins()?.0;
        let attach = self.protocol.attach.clone();
        self.last(link, &attach)?;
        // A delta outside of the set, and one of the node itself.
        let (ours, called) = (self.protocol.ours.1 as u8, self.called.1 as u8);
        for (owner, span) in [
            (ours, span(u64::MAX, 0, 1)),
            (ours, span(0, u16::MAX, 1)),
            (called, span(0, 0, 1)),
        ] {
            let delta = Message::Delta {
                epoch,
                owner,
                seq: epoch << 32,
                span,
                lost: 0,
                floor: 0,
            };
            let link = self.joins()?.0;
            self.last(link, &with(delta, &[0xbd; 512]))?;
            ended += 1;
        }
        let mut refused = 0;
        for (epoch, span, wanted) in [
            (epoch, span(u64::MAX, 0, 1), Status::Invalid),
            (epoch, span(0, u16::MAX, 1), Status::Invalid),
            (epoch + 1, span(0, 0, 1), Status::Stale),
            (0, span(0, 0, 1), Status::Stale),
        ] {
            let read = Message::Read {
                epoch,
                id: 1,
                span,
                lost: 0,
            };
            let link = self.joins()?.0;
            self.peer.send(link, &read.build())?;
            match self.reply(link)? {
                Some(Message::Data { status, id: 1, .. }) if status == wanted => refused += 1,
                other => return Err(format!("{other:?}, after {read:?}")),
            }
            self.peer.reactor.close(link);
        }
        Ok(format!("{} ended, {refused} requests refused", ended + 1))
    }

    /// Attaches as a node. Returns the connection and the epoch of the set.
    fn joins(&mut self) -> Result<(srp_target::reactor::LinkId, u64), Fault> {
        let link = self.proves()?.0;
        let attach = self.protocol.attach.clone();
        self.peer.send(link, &attach)?;
        match self.reply(link)? {
            Some(Message::Attached { epoch, .. }) => Ok((link, epoch)),
            other => Err(format!("{other:?}, after ATTACH")),
        }
    }

    /// The next message that is not for the connection itself.
    fn reply(&mut self, link: srp_target::reactor::LinkId) -> Result<Option<Message>, Fault> {
        while let Some(bytes) = self.next(link)? {
            match Message::parse(&bytes) {
                Ok(Message::Alive { .. }) => {}
                Ok(message) => return Ok(Some(message)),
                Err(e) => return Err(format!("{e}: {bytes:02x?}")),
            }
        }
        Ok(None)
    }
}
