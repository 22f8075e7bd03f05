// SPDX-License-Identifier: GPL-2.0

//! The attacks on the handshake of a role that has a key. Each may end its own connection and
//! nothing else. The handshake is written here again from docs/access.md.

use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use srp_target::{
    proto::ids::PortId,
    reactor::{Event, LinkId},
};

use crate::peer::{Fault, Peer};

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
/// Receive buffers of a connection.
pub(crate) const RECEIVES: usize = 64;
/// Unproven connections that a role keeps.
const PENDING: usize = 32;

pub(crate) type Key = [u8; 32];

/// Kind and number of a role.
pub(crate) type Who = (u8, u32);

/// Name and function of a case.
pub(crate) type Case = (&'static str, fn(&mut Attack) -> Result<String, Fault>);

/// The program of the role.
pub(crate) struct Protocol {
    /// Private data with a key, and without.
    pub(crate) keyed: &'static [u8; 16],
    pub(crate) plain: &'static [u8; 16],
    /// Private data of another program.
    pub(crate) other: &'static [u8; 16],
    /// The role and number that the attacker claims. The system has none of this number.
    pub(crate) ours: Who,
    /// Kinds of roles that do not connect to this one.
    pub(crate) uncalled: &'static [u8],
    /// What the attacker is not.
    pub(crate) others: [Who; 3],
    /// A first message of a role.
    pub(crate) attach: Vec<u8>,
    /// Whether this is ALIVE, which only a role that is proven gets.
    pub(crate) alive: fn(&[u8]) -> bool,
    pub(crate) cases: &'static [Case],
}

/// A role under attack.
pub(crate) struct Attack {
    pub(crate) peer: Peer,
    pub(crate) called: Who,
    pub(crate) key: Key,
    /// An initiator that may log in.
    pub(crate) listed: PortId,
    pub(crate) protocol: Protocol,
}

fn handshake(kind: u8, who: Who, nonce: &[u8; 32], mac: &[u8; 32]) -> Vec<u8> {
    let mut bytes = vec![0; 80];
    (bytes[0], bytes[1]) = (kind, who.0);
    bytes[2..6].copy_from_slice(&who.1.to_be_bytes());
    bytes[16..48].copy_from_slice(nonce);
    bytes[48..].copy_from_slice(mac);
    bytes
}

fn mac(keyed: &[u8; 16], key: &Key, kind: u8, roles: [Who; 2], nonces: [&[u8]; 2]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(keyed);
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
        for (name, case) in self.protocol.cases {
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
        let link = self.peer.connect(self.protocol.keyed, RECEIVES)?;
        link.ok_or_else(|| self.peer.refused("a connection of a role"))
    }

    /// The next message of a connection; `None` if it ends.
    pub(crate) fn next(&mut self, link: LinkId) -> Result<Option<Vec<u8>>, Fault> {
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

    /// Sends a message, after which the connection has to end.
    pub(crate) fn last(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Fault> {
        self.peer.send(link, bytes)?;
        let ended = self.peer.ends(link, false);
        ended.map_err(|e| format!("{e}, after {bytes:02x?}"))
    }

    /// Sends HELLO. Returns the connection, HELLO and CHALLENGE, which has to be right.
    pub(crate) fn challenged(&mut self, who: Who) -> Result<(LinkId, Vec<u8>, Vec<u8>), Fault> {
        let (link, nonce) = (self.connect()?, self.nonce());
        let hello = handshake(HELLO, who, &nonce, &[0; 32]);
        self.peer.send(link, &hello)?;
        let challenge = self.next(link)?.ok_or("HELLO ended the connection")?;
        let nonces = [&nonce[..], &challenge[16..48]];
        let right = mac(
            self.protocol.keyed,
            &self.key,
            CHALLENGE,
            [who, self.called],
            nonces,
        );
        let same = handshake(CHALLENGE, self.called, &[0; 32], &right);
        if challenge.len() != 80 || challenge[..16] != same[..16] || challenge[48..] != right {
            return Err(format!("it proves nothing: {challenge:02x?}"));
        }
        Ok((link, hello, challenge))
    }

    /// The PROOF for a CHALLENGE.
    pub(crate) fn proof(&self, key: &Key, who: Who, hello: &[u8], challenge: &[u8]) -> Vec<u8> {
        let nonces = [&hello[16..48], &challenge[16..48]];
        let mac = mac(self.protocol.keyed, key, PROOF, [who, self.called], nonces);
        handshake(PROOF, who, &[0; 32], &mac)
    }

    /// A connection with a right PROOF, and what it has sent.
    pub(crate) fn proves(&mut self) -> Result<(LinkId, Recorded), Fault> {
        let ours = self.protocol.ours;
        let (link, hello, challenge) = self.challenged(ours)?;
        let proof = self.proof(&self.key, ours, &hello, &challenge);
        self.peer.send(link, &proof)?;
        Ok((link, [hello, proof]))
    }

    /// The same, when the other side has taken it.
    pub(crate) fn proven(&mut self) -> Result<(LinkId, Recorded), Fault> {
        let (link, sent) = self.proves()?;
        // Only a role that is proven gets this.
        match self.next(link)? {
            Some(bytes) if (self.protocol.alive)(&bytes) => Ok((link, sent)),
            other => Err(format!("the right key is not taken: {other:02x?}")),
        }
    }

    pub(crate) fn no_key(&mut self) -> Result<String, Fault> {
        let Protocol {
            keyed, plain, ours, ..
        } = self.protocol;
        let mut close = *keyed;
        close[14] ^= 1;
        for data in [
            &plain[..],
            &close,
            &keyed[..15],
            self.protocol.other,
            b"x",
            b"",
        ] {
            if self.peer.connect(data, RECEIVES)?.is_some() {
                return Err(format!("{data:02x?} was let in"));
            }
        }
        let (nonce, none) = (self.nonce(), [0; 32]);
        let hello = handshake(HELLO, ours, &nonce, &none);
        let mut all = vec![
            b"x".to_vec(),
            vec![0; 80],
            vec![0xff; 80],
            self.protocol.attach.clone(),
        ];
        all.extend([
            hello[..79].to_vec(),
            [&hello[..], &[0]].concat(),
            vec![1; 4096],
        ]);
        for kind in [0, CHALLENGE, PROOF, 4, 0xff] {
            all.push(handshake(kind, ours, &nonce, &none));
        }
        for role in [0, 4, 0xff].iter().chain(self.protocol.uncalled) {
            all.push(handshake(HELLO, (*role, ours.1), &nonce, &none));
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
        let (link, hello, _) = self.challenged(ours)?;
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

    pub(crate) fn wrong_key(&mut self) -> Result<String, Fault> {
        let who = self.protocol.ours;
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
        let others = self.protocol.others;
        for other in others {
            let (link, hello, challenge) = self.challenged(who)?;
            let proof = self.proof(&self.key, other, &hello, &challenge);
            self.last(link, &proof)?;
        }
        Ok(format!("{} ended", wrong.len() + 1 + others.len()))
    }

    pub(crate) fn replay(&mut self) -> Result<String, Fault> {
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
}
