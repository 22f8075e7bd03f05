// SPDX-License-Identifier: GPL-2.0

//! The attacks on a role of `wss` that has a key. Each may end its own connection and nothing else.
//! The handshake is written here again from docs/access.md.

use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use srp_target::{
    proto::ids::PortId,
    reactor::{Event, LinkId},
};
use wss::{
    fabric::{KEYED, PRIVATE},
    message::{Message, Role, Scope, Status, Transfer, Zero},
    peer::{CE, RS, SE},
};

use crate::peer::{Fault, Peer};

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
/// Number of the CE that the attacker is. The system has none of this number.
const NUMBER: u32 = 9;
/// The role and number that the attacker claims.
const OURS: Who = (CE, NUMBER);
/// Receive buffers of a connection.
const RECEIVES: usize = 64;
/// Unproven connections that a role keeps.
const PENDING: usize = 32;

type Key = [u8; 32];

/// Kind and number of a role.
type Who = (u8, u32);

/// A role under attack.
pub(crate) struct Attack {
    pub(crate) peer: Peer,
    pub(crate) called: Who,
    pub(crate) key: Key,
    /// An initiator that may log in.
    pub(crate) listed: PortId,
}

/// Name and function of a case.
type Case = (&'static str, fn(&mut Attack) -> Result<String, Fault>);

const CASES: &[Case] = &[
    ("no key", Attack::no_key),
    ("a wrong key", Attack::wrong_key),
    ("a recorded handshake", Attack::replay),
    ("an initiator of the list", Attack::initiator),
    ("malformed messages with the key", Attack::malformed),
    ("a CE with the key", Attack::attached),
];

fn handshake(kind: u8, who: Who, nonce: &[u8; 32], mac: &[u8; 32]) -> Vec<u8> {
    let mut bytes = vec![0; 80];
    (bytes[0], bytes[1]) = (kind, who.0);
    bytes[2..6].copy_from_slice(&who.1.to_be_bytes());
    bytes[16..48].copy_from_slice(nonce);
    bytes[48..].copy_from_slice(mac);
    bytes
}

fn mac(key: &Key, kind: u8, roles: [Who; 2], nonces: [&[u8]; 2]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(KEYED);
    mac.update(&[kind]);
    for (role, number) in roles {
        mac.update(&[role]);
        mac.update(&number.to_be_bytes());
    }
    nonces.iter().for_each(|nonce| mac.update(nonce));
    mac.finalize().into_bytes().into()
}

/// The caller's messages of a valid handshake.
type Recorded = [Vec<u8>; 2];

impl Attack {
    /// Runs all cases. Prints a line for each.
    pub(crate) fn run(mut self) -> Result<(), Fault> {
        for (name, case) in CASES {
            let said = case(&mut self).map_err(|e| format!("{name}: {e}"))?;
            // The role still takes others.
            let link = self.proven().map_err(|e| format!("after {name}: {e}"))?.0;
            self.peer.reactor.close(link);
            println!("{name}: {said}");
        }
        println!("ended");
        Ok(())
    }

    fn nonce(&mut self) -> [u8; 32] {
        let mut nonce = [0; 32];
        for part in nonce.chunks_mut(8) {
            part.copy_from_slice(&self.peer.random().to_be_bytes());
        }
        nonce
    }

    fn connect(&mut self) -> Result<LinkId, Fault> {
        let link = self.peer.connect(KEYED, RECEIVES)?;
        link.ok_or_else(|| "a connection of a role was refused".into())
    }

    /// The next message of a connection; `None` if it ends.
    fn next(&mut self, link: LinkId) -> Result<Option<Vec<u8>>, Fault> {
        self.peer.until("a message", |reactor, event| match event {
            Event::Received { id, buffer, len } if id == link => {
                let message = buffer[..len].to_vec();
                let _ = reactor.receive(id, buffer);
                Some(Some(message))
            }
            Event::Ended { id, .. } if id == link => Some(None),
            _ => None,
        })
    }

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

    /// Sends a message, after which the connection has to end.
    fn last(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Fault> {
        self.peer.send(link, bytes)?;
        let ended = self.peer.ends(link, false);
        ended.map_err(|e| format!("{e}, after {bytes:02x?}"))
    }

    /// Sends HELLO. Returns the connection, HELLO and CHALLENGE, which has to be right.
    fn challenged(&mut self, who: Who) -> Result<(LinkId, Vec<u8>, Vec<u8>), Fault> {
        let (link, nonce) = (self.connect()?, self.nonce());
        let hello = handshake(HELLO, who, &nonce, &[0; 32]);
        self.peer.send(link, &hello)?;
        let challenge = self.next(link)?.ok_or("HELLO ended the connection")?;
        let nonces = [&nonce[..], &challenge[16..48]];
        let right = mac(&self.key, CHALLENGE, [who, self.called], nonces);
        let same = handshake(CHALLENGE, self.called, &[0; 32], &right);
        if challenge.len() != 80 || challenge[..16] != same[..16] || challenge[48..] != right {
            return Err(format!("it proves nothing: {challenge:02x?}"));
        }
        Ok((link, hello, challenge))
    }

    /// The PROOF for a CHALLENGE.
    fn proof(&self, key: &Key, who: Who, hello: &[u8], challenge: &[u8]) -> Vec<u8> {
        let nonces = [&hello[16..48], &challenge[16..48]];
        let mac = mac(key, PROOF, [who, self.called], nonces);
        handshake(PROOF, who, &[0; 32], &mac)
    }

    /// A connection with a right PROOF, and what it has sent.
    fn proves(&mut self) -> Result<(LinkId, Recorded), Fault> {
        let (link, hello, challenge) = self.challenged(OURS)?;
        let proof = self.proof(&self.key, OURS, &hello, &challenge);
        self.peer.send(link, &proof)?;
        Ok((link, [hello, proof]))
    }

    /// The same, when the other side has taken it.
    fn proven(&mut self) -> Result<(LinkId, Recorded), Fault> {
        let (link, sent) = self.proves()?;
        // Only a role that is proven gets this.
        match self.next(link)?.map(|bytes| Message::parse(&bytes)) {
            Some(Ok(Message::Alive)) => Ok((link, sent)),
            other => Err(format!("the right key is not taken: {other:?}")),
        }
    }

    fn no_key(&mut self) -> Result<String, Fault> {
        let mut close = *KEYED;
        close[14] ^= 1;
        for data in [
            &PRIVATE[..],
            &close,
            &KEYED[..15],
            b"xorset-auth-001 ",
            b"x",
            b"",
        ] {
            if self.peer.connect(data, RECEIVES)?.is_some() {
                return Err(format!("{data:02x?} was let in"));
            }
        }
        let (nonce, none) = (self.nonce(), [0; 32]);
        let hello = handshake(HELLO, OURS, &nonce, &none);
        let attach = Message::Attach {
            role: Role::Ce,
            member: NUMBER,
            epoch: 0,
        };
        let mut all = vec![b"x".to_vec(), vec![0; 80], vec![0xff; 80], attach.build()];
        all.extend([
            hello[..79].to_vec(),
            [&hello[..], &[0]].concat(),
            vec![1; 4096],
        ]);
        for kind in [0, CHALLENGE, PROOF, 4, 0xff] {
            all.push(handshake(kind, OURS, &nonce, &none));
        }
        for role in [0, RS, 4, 0xff] {
            all.push(handshake(HELLO, (role, NUMBER), &nonce, &none));
        }
        for at in [6, 15, 48, 79] {
            let mut bytes = hello.clone();
            bytes[at] = 1;
            all.push(bytes);
        }
        for bytes in &all {
            let link = self.connect()?;
            self.last(link, bytes)?;
        }
        // A second HELLO.
        let (link, hello, _) = self.challenged(OURS)?;
        self.last(link, &hello)?;
        // Those that say nothing end, and they keep no other out.
        let begin = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..PENDING {
            silent.push(self.connect()?);
        }
        let link = self.proven()?.0;
        self.peer.reactor.close(link);
        let last = silent.pop().ok_or("none")?;
        self.peer.ends(last, false)?;
        let time = begin.elapsed();
        silent
            .into_iter()
            .for_each(|link| self.peer.reactor.close(link));
        if time < Duration::from_secs(2) {
            return Err(format!("{PENDING} connections ended within {time:?}"));
        }
        Ok(format!(
            "6 refused, {} ended, {PENDING} by themselves",
            all.len() + 1
        ))
    }

    fn wrong_key(&mut self) -> Result<String, Fault> {
        let who = OURS;
        let mut close = self.key;
        close[31] ^= 1;
        let wrong = [[0; 32], [0xff; 32], close];
        for key in &wrong {
            let (link, hello, challenge) = self.challenged(who)?;
            let proof = self.proof(key, who, &hello, &challenge);
            self.last(link, &proof)?;
        }
        // The HMAC of the other side, sent back.
        let (link, _, challenge) = self.challenged(who)?;
        let mut mac = [0; 32];
        mac.copy_from_slice(&challenge[48..]);
        self.last(link, &handshake(PROOF, who, &[0; 32], &mac))?;
        // A proof of another role than that of HELLO.
        let others = [(CE, 1), (SE, 0), (RS, NUMBER)];
        for other in others {
            let (link, hello, challenge) = self.challenged(who)?;
            let proof = self.proof(&self.key, other, &hello, &challenge);
            self.last(link, &proof)?;
        }
        Ok(format!("{} ended", wrong.len() + 1 + others.len()))
    }

    fn replay(&mut self) -> Result<String, Fault> {
        let (link, [hello, proof]) = self.proven()?;
        self.peer.reactor.close(link);
        for n in 0..8 {
            let link = self.connect()?;
            self.peer.send(link, &hello)?;
            // Also without a look at the challenge.
            if n % 2 == 0 {
                self.next(link)?.ok_or("HELLO ended the connection")?;
            }
            self.last(link, &proof)?;
        }
        Ok("8 ended".into())
    }

    fn initiator(&mut self) -> Result<String, Fault> {
        let who = OURS;
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
