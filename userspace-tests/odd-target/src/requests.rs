// SPDX-License-Identifier: GPL-2.0

//! The target's side of the InfiniBand CM. It follows scripts instead of the protocol.
//!
//! Calls report datagrams and decisions, and leave a list of [`Deed`]s.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use srp_target::target::ChannelId;
use verbs::ib_cm::{Kind, Mad, Request, CONSUMER_DEFINED};

use crate::orders::Step;

/// Work for the caller, in list order. `R` is where a datagram came from, to reply to.
#[derive(Debug, Eq, PartialEq)]
pub enum Deed<R> {
    /// Send a datagram.
    Send {
        /// The address.
        to: R,
        /// The datagram.
        mad: Box<Mad>,
    },
    /// Decide about a login with this private data; then call [`Requests::accepted`] or
    /// [`Requests::refused`].
    Login {
        /// The channel.
        channel: ChannelId,
        /// Private data of the REQ.
        data: Vec<u8>,
    },
    /// The connection of a channel is established.
    Established(ChannelId),
    /// The peer has ended the connection of a channel, or its login.
    Ended(ChannelId),
    /// Log a line.
    Say(String),
}

/// The state of the login of a request.
enum Answer {
    None,
    /// [`Deed::Login`] is pending; the reply will have these bytes changed.
    Asked(Option<(usize, Vec<u8>)>),
    /// The reply.
    Rep(Box<Mad>),
}

/// The sender of a connection request. Our communication ID is the number of its channel.
struct Peer<R> {
    local: u32,
    id: u32,
    back: R,
    req: Mad,
    answer: Answer,
    /// Whether the reply was confirmed by an RTU.
    heard: bool,
    /// Whether the channel is in use.
    channel: bool,
    script: VecDeque<Step>,
    due: Option<Instant>,
}

impl<R: Clone> Peer<R> {
    fn begin(&self, kind: Kind) -> Mad {
        Mad::new(kind, self.req.tid(), self.local, self.id)
    }

    fn send(&self, mad: Mad) -> Deed<R> {
        Deed::Send {
            to: self.back.clone(),
            mad: Box::new(mad),
        }
    }

    fn rej(&self, reason: u16, info: &[u8], data: &[u8]) -> Deed<R> {
        let of = u8::from(matches!(self.answer, Answer::Rep(_)));
        self.send(self.begin(Kind::Rej).rej(of, reason, info, data))
    }

    fn dreq(&self) -> Deed<R> {
        self.send(self.begin(Kind::Dreq).dreq(self.req.request().qpn))
    }
}

/// Converts the private data of a REQ, 92 bytes, to that of a login by RDMA/CM: the same fields in
/// another order.
pub fn for_rdma(data: &[u8]) -> Vec<u8> {
    // Tag, buffer formats, flags, opcode, length, identifiers, offset of immediate data.
    let parts = [8..16, 24..26, 26..27, 0..1, 16..20, 32..64, 28..30];
    let mut bytes: Vec<u8> = parts
        .into_iter()
        .flat_map(|part| data[part].to_vec())
        .collect();
    bytes.resize(56, 0);
    bytes
}

/// All requests and their scripts.
pub struct Requests<R> {
    peers: Vec<Peer<R>>,
    /// Scripts for future requests, each with the remaining number of them.
    scripts: VecDeque<(u32, Vec<Step>)>,
    last: u32,
    deeds: Vec<Deed<R>>,
}

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            scripts: VecDeque::new(),
            last: 0,
            deeds: Vec::new(),
        }
    }
}

impl<R: Clone> Requests<R> {
    /// Takes the pending deeds.
    pub fn deeds(&mut self) -> Vec<Deed<R>> {
        std::mem::take(&mut self.deeds)
    }

    /// Sets the script of the next `count` requests without one.
    pub fn script(&mut self, count: u32, steps: Vec<Step>) {
        self.scripts.push_back((count, steps));
    }

    /// Removes all scripts.
    pub fn forget(&mut self) {
        self.scripts.clear();
    }

    /// The request of a channel and where it came from.
    pub fn request(&self, channel: ChannelId) -> Option<(Request, R)> {
        let peer = self.peers.get(self.index(channel)?)?;
        Some((peer.req.request(), peer.back.clone()))
    }

    fn index(&self, channel: ChannelId) -> Option<usize> {
        let mut all = self.peers.iter();
        all.position(|p| u64::from(p.local) == channel)
    }

    fn say(&mut self, what: String) {
        self.deeds.push(Deed::Say(what));
    }

    /// Forgets a peer.
    fn leave(&mut self, index: usize) {
        let peer = self.peers.swap_remove(index);
        if peer.channel {
            self.deeds.push(Deed::Ended(peer.local.into()));
        }
    }

    /// A login is accepted, on this queue pair, with this private data.
    pub fn accepted(&mut self, channel: ChannelId, qpn: u32, data: &[u8], now: Instant) {
        let Some(index) = self.index(channel) else {
            return;
        };
        let peer = &mut self.peers[index];
        let rep = peer.begin(Kind::Rep);
        let rep = rep.rep(qpn, peer.req.request().depth(), data);
        let asked = std::mem::replace(&mut peer.answer, Answer::Rep(Box::new(rep)));
        if let Answer::Asked(change) = asked {
            self.reply(index, change);
            self.go_on(index, now);
        }
    }

    /// A login is refused with this private data.
    pub fn refused(&mut self, channel: ChannelId, data: &[u8]) {
        if let Some(index) = self.index(channel) {
            let peer = &mut self.peers[index];
            peer.channel = false;
            let rej = peer.rej(CONSUMER_DEFINED, &[], data);
            self.deeds.push(rej);
            self.leave(index);
        }
    }

    /// The channel of a request has ended here.
    pub fn closed(&mut self, channel: ChannelId) {
        if let Some(index) = self.index(channel) {
            self.peers[index].channel = false;
        }
    }

    /// Asks the peer of a channel to disconnect.
    pub fn disconnect(&mut self, channel: ChannelId) {
        if let Some(index) = self.index(channel) {
            self.deeds.push(self.peers[index].dreq());
        }
    }

    /// Sends the reply, with changed bytes.
    fn reply(&mut self, index: usize, change: Option<(usize, Vec<u8>)>) {
        let peer = &self.peers[index];
        if let Answer::Rep(rep) = &peer.answer {
            let mut rep = **rep;
            if let Some((at, bytes)) = change {
                rep.put(at, &bytes);
            }
            self.deeds.push(peer.send(rep));
        }
    }

    /// Runs the script of a peer until it waits or ends.
    fn go_on(&mut self, index: usize, now: Instant) {
        self.peers[index].due = None;
        while let Some(step) = self.peers[index].script.pop_front() {
            let peer = &mut self.peers[index];
            match step {
                Step::Nothing => {}
                Step::Wait(ms) => {
                    peer.due = Some(now + Duration::from_millis(ms));
                    return;
                }
                Step::Rep(change) => match peer.answer {
                    Answer::Rep(_) => self.reply(index, change),
                    Answer::Asked(_) => return,
                    Answer::None => {
                        peer.answer = Answer::Asked(change);
                        peer.channel = true;
                        self.deeds.push(Deed::Login {
                            channel: peer.local.into(),
                            data: peer.req.request_data().to_vec(),
                        });
                        return;
                    }
                },
                Step::Rej { reason, info, data } => {
                    let rej = peer.rej(reason, &info, &data);
                    self.deeds.push(rej);
                    return self.leave(index);
                }
                Step::Mra(timeout) => {
                    let mra = peer.send(peer.begin(Kind::Mra).mra(timeout));
                    self.deeds.push(mra);
                }
                Step::Dreq => {
                    let dreq = peer.dreq();
                    self.deeds.push(dreq);
                }
            }
        }
    }

    /// Selects the script for a new request.
    fn next_script(&mut self) -> VecDeque<Step> {
        let Some((left, steps)) = self.scripts.front_mut() else {
            return [Step::Rep(None)].into();
        };
        let script = steps.clone().into();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.scripts.pop_front();
        }
        script
    }

    /// Continues scripts that have waited long enough. Returns when the next one is due.
    pub fn attend(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let due = |p: &Peer<R>| p.due.is_some_and(|due| due <= now);
            let Some(index) = self.peers.iter().position(due) else {
                return self.peers.iter().filter_map(|p| p.due).min();
            };
            self.go_on(index, now);
        }
    }

    fn asked(&mut self, at: &str, mad: Mad, back: R, now: Instant) {
        let same = |p: &Peer<R>| p.id == mad.from() && p.req.message() == mad.message();
        let index = match self.peers.iter().position(same) {
            Some(index) => {
                let peer = &self.peers[index];
                let answered = matches!(peer.answer, Answer::Rep(_));
                let after = if answered { " after the answer" } else { "" };
                let busy = peer.due.is_some() || matches!(peer.answer, Answer::Asked(_));
                self.say(format!("req again{after}"));
                if answered {
                    // Apparently the peer has not received the reply.
                    self.reply(index, None);
                }
                if answered || busy {
                    return;
                }
                index
            }
            None => {
                self.last += 1;
                self.peers.push(Peer {
                    local: self.last,
                    id: mad.from(),
                    back,
                    req: mad,
                    answer: Answer::None,
                    heard: false,
                    channel: false,
                    script: VecDeque::new(),
                    due: None,
                });
                self.say(format!("req at={at} {}", mad.request()));
                self.peers.len() - 1
            }
        };
        self.peers[index].script = self.next_script();
        self.go_on(index, now);
    }

    /// A datagram has arrived at the agent with this name.
    pub fn heard(&mut self, at: &str, mad: Mad, back: R, now: Instant) {
        let Some(kind) = mad.kind() else {
            let (class, attribute) = (mad.class(), mad.attribute());
            return self.say(format!(
                "FAILED: a datagram of class {class}, attribute {attribute:#x}"
            ));
        };
        if kind == Kind::Req {
            return self.asked(at, mad, back, now);
        }
        if kind == Kind::Rej {
            self.say(format!("rej reason={} of={}", mad.reason(), mad.of()));
        }
        if kind == Kind::Rej && mad.to() == 0 {
            // The peer gives up a request without a reply.
            let given_up = |p: &Peer<R>| p.id == mad.from() && !matches!(p.answer, Answer::Rep(_));
            while let Some(index) = self.peers.iter().position(given_up) {
                self.leave(index);
            }
            return;
        }
        let Some(index) = self.index(mad.to().into()) else {
            self.say(format!("message {:02x} for no channel", mad.attribute()));
            if kind == Kind::Dreq {
                // The peer ends its connection only after this confirmation.
                let mad = Mad::new(Kind::Drep, mad.tid(), mad.to(), mad.from()).into();
                self.deeds.push(Deed::Send { to: back, mad });
            }
            return;
        };
        let peer = &mut self.peers[index];
        match kind {
            Kind::Rtu => {
                let again = if peer.heard { " again" } else { "" };
                let first = !std::mem::replace(&mut peer.heard, true) && peer.channel;
                let channel = peer.local.into();
                self.say(format!("rtu{again}"));
                if first {
                    self.deeds.push(Deed::Established(channel));
                }
            }
            Kind::Mra => self.say(format!("mra of={} timeout={}", mad.of(), mad.timeout())),
            Kind::Rej => self.leave(index),
            Kind::Dreq => {
                let drep = peer.send(peer.begin(Kind::Drep));
                self.say("dreq".into());
                self.deeds.push(drep);
                self.leave(index);
            }
            Kind::Drep => {
                self.say("drep".into());
                self.leave(index);
            }
            Kind::Req | Kind::Rep => {
                self.say(format!("FAILED: message {:02x}", mad.attribute()));
            }
        }
    }
}
