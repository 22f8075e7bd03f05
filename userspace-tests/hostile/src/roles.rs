// SPDX-License-Identifier: GPL-2.0

//! The attacks on a role of `wss` that has a key.

use std::time::Duration;

use wss::{
    fabric::{KEYED, PRIVATE},
    message::{Message, Role, Scope, Status, Transfer, Zero},
    peer::{CE, RS, SE},
};

use crate::{
    handshake::{Attack, Case, Protocol},
    peer::Fault,
};
use srp_target::reactor::LinkId;

/// Number of the CE that the attacker is. The system has none of this number.
const NUMBER: u32 = 9;

const CASES: &[Case] = &[
    ("no key", Attack::no_key),
    ("a wrong key", Attack::wrong_key),
    ("a recorded handshake", Attack::replay),
    ("an initiator of the list", Attack::initiator),
    ("malformed messages with the key", Attack::malformed),
    ("a CE with the key", Attack::attached),
];

/// The protocol of wss.
pub(crate) fn protocol() -> Protocol {
    let attach = Message::Attach {
        role: Role::Ce,
        member: NUMBER,
        epoch: 0,
    };
    Protocol {
        keyed: KEYED,
        plain: PRIVATE,
        other: xorset::fabric::KEYED,
        ours: (CE, NUMBER),
        uncalled: &[RS],
        others: [(CE, 1), (SE, 0), (RS, NUMBER)],
        attach: attach.build(),
        alive: |bytes| matches!(Message::parse(bytes), Ok(Message::Alive)),
        cases: CASES,
    }
}

impl Attack {
    /// The next message that is not for the connection itself.
    fn answer(&mut self, link: LinkId) -> Result<Option<Message>, Fault> {
        while let Some(bytes) = self.next(link)? {
            match Message::parse(&bytes) {
                Ok(Message::Alive | Message::Grant { .. }) => {}
                Ok(message) => return Ok(Some(message)),
                Err(e) => return Err(format!("{e}: {bytes:02x?}")),
            }
        }
        Ok(None)
    }

    fn initiator(&mut self) -> Result<String, Fault> {
        let who = self.protocol.ours;
        let mut key = [0; 32];
        key[..16].copy_from_slice(&self.listed.0);
        let (link, hello, challenge) = self.challenged(who)?;
        let proof = self.proof(&key, who, &hello, &challenge);
        self.last(link, &proof)?;
        let mut login = self.peer.requested();
        login.initiator = self.listed;
        let fence = Message::Fence {
            scope: Scope::All,
            member: 0,
            epoch: u64::MAX,
        };
        match (self.called.0, self.peer.try_login(&login)?) {
            (SE, Some(link)) => {
                self.peer.send(link, &fence.build())?;
                self.peer.ends(link, true)?;
                Ok("its connection and its session ended".into())
            }
            (SE, None) => Err("its login was refused".into()),
            (_, None) => Ok("its connection ended, its login is refused".into()),
            _ => Err("a login at a role that is no target".into()),
        }
    }

    /// Messages of a role that has not attached.
    fn malformed(&mut self) -> Result<String, Fault> {
        let alive = Message::Alive.build();
        let with = |at: usize, byte: u8| {
            let mut bytes = alive.clone();
            bytes[at] = byte;
            bytes
        };
        let mut all: Vec<_> = [1, 63].map(|len| alive[..len].to_vec()).into();
        all.extend([65, 127, 128].map(|len| [&alive[..], &vec![0; len - 64]].concat()));
        all.extend([0, 19, 0x7f, 0xff].map(|code| with(0, code)));
        all.extend([1, 4, 8, 16, 24, 63].map(|at| with(at, 1)));
        let transfer = self.transfer(0, 0, 8);
        let attach = |role, member| Message::Attach {
            role,
            member,
            epoch: u64::MAX,
        };
        let good = [
            attach(Role::Se, 0),
            attach(Role::Ce, 1),
            Message::Attached {
                status: Status::Good,
                number: 0,
                epoch: u64::MAX,
                boot: 0,
            },
            Message::Join {
                id: 1,
                initiator: self.listed.0,
            },
            Message::Left {
                status: Status::Lost,
                id: 1,
                session: 1,
            },
            Message::Done {
                status: Status::Good,
                id: 1,
                value: 0,
            },
            Message::Cancel { id: 1 },
            Message::Cancelled { id: 1 },
            Message::Fence {
                scope: Scope::All,
                member: 0,
                epoch: u64::MAX,
            },
            Message::Fenced {
                scope: Scope::Member,
                member: 1,
                epoch: u64::MAX,
            },
            Message::Get(transfer),
            Message::Put(transfer),
            Message::Zero(
                Transfer {
                    va: 0,
                    key: 0,
                    ..transfer
                },
                Zero::Write,
            ),
            Message::Open { id: 1, object: 0 },
            Message::Flush { id: 1, object: 0 },
            Message::Grant { count: u32::MAX },
        ];
        all.extend(good.iter().map(Message::build));
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

    fn transfer(&self, object: u32, at: u64, blocks: u32) -> Transfer {
        Transfer {
            id: 1,
            object,
            at,
            blocks,
            stable: false,
            va: 0x1000,
            key: 0x0bad_0bad,
        }
    }

    /// At an RS: a CE that no SE knows, with an epoch that it learns from the RS.
    fn attached(&mut self) -> Result<String, Fault> {
        if self.called.0 != RS {
            return Ok("the SE is not asked".into());
        }
        let attach = |epoch| Message::Attach {
            role: Role::Ce,
            member: NUMBER,
            epoch,
        };
        let link = self.proves()?.0;
        self.peer.send(link, &attach(0).build())?;
        let Some(Message::Attached { epoch, .. }) = self.answer(link)? else {
            return Err("no epoch".into());
        };
        self.peer.reactor.close(link);
        let zero = |t| Message::Zero(Transfer { va: 0, key: 0, ..t }, Zero::Unmap);
        let (mut ended, mut refused) = (0, 0);
        for t in [
            self.transfer(99, 0, 8),
            self.transfer(0, u64::MAX, 8),
            self.transfer(0, 1 << 60, 8),
            self.transfer(0, 0, u32::MAX),
            self.transfer(0, 0, 0),
        ] {
            for message in [Message::Get(t), Message::Put(t), zero(t)] {
                match self.tried(&attach(epoch), &message)? {
                    None => ended += 1,
                    Some(Message::Done {
                        status: Status::Invalid,
                        ..
                    }) => refused += 1,
                    other => return Err(format!("{other:?}, after {message:?}")),
                }
            }
        }
        // Keys of no memory, and what only the SE may send.
        let t = self.transfer(0, 0, 8);
        for message in [
            Message::Get(t),
            Message::Put(t),
            Message::Open { id: 1, object: 0 },
            Message::Flush { id: 1, object: 0 },
            Message::Fence {
                scope: Scope::Member,
                member: 1,
                epoch: u64::MAX,
            },
        ] {
            match self.tried(&attach(epoch), &message)? {
                None => ended += 1,
                other => return Err(format!("{other:?}, after {message:?}")),
            }
        }
        Ok(format!("{ended} ended, {refused} requests refused"))
    }

    /// Attaches and sends a message. Returns the answer, if there is one.
    fn tried(&mut self, attach: &Message, message: &Message) -> Result<Option<Message>, Fault> {
        let link = self.proves()?.0;
        self.peer.send(link, &attach.build())?;
        match self.answer(link)? {
            Some(Message::Attached {
                status: Status::Good,
                ..
            }) => {}
            other => return Err(format!("{other:?}, after {attach:?}")),
        }
        self.peer.send(link, &message.build())?;
        let answer = self.answer(link)?;
        self.peer.reactor.close(link);
        Ok(answer)
    }
}
