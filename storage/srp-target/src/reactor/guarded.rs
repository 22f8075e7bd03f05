// SPDX-License-Identifier: GPL-2.0

//! Connections between roles with keys: the reactor carries out the handshake, and the role gets no
//! event of a connection until both sides are proven.

use std::{io, net::SocketAddr};

use super::{Event, LinkId, Reactor};
use crate::auth::{Guard, Identity, Verdict, Wanted};

impl<T> Reactor<T> {
    /// Guards connections to other roles, which [`Reactor::call`] and [`Reactor::welcome`] make.
    pub fn guard(&mut self, guard: Option<Guard>) {
        self.guard = guard;
    }

    /// The proven identity of the other side.
    pub fn peer(&self, id: LinkId) -> Option<Identity> {
        self.guard.as_ref()?.peer(id)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Connects to a role, which has to be `wanted` if this side has a guard. Otherwise `data` is
    /// the private data.
    pub fn call(
        &mut self,
        to: SocketAddr,
        wanted: Wanted,
        data: &[u8],
        [receives, len]: [usize; 2],
    ) -> io::Result<LinkId> {
        let system = self.guard.as_ref().map(|g| *g.system());
        let data = system.as_ref().map_or(data, |s| &s[..]);
        let id = self.connect(to, data, receives, len)?;
        if let Some(guard) = &mut self.guard {
            guard.calls(id, wanted);
        }
        Ok(id)
    }

    /// Accepts a connection request from another role. Its private data is `plain` without a key,
    /// and `keyed` with one. [`Event::Connected`], [`Event::Ended`] or [`Event::Refused`] follows.
    /// Returns whether the request is from a role.
    pub fn welcome(
        &mut self,
        id: LinkId,
        data: &[u8],
        [plain, keyed]: [&[u8; 16]; 2],
        [receives, len]: [usize; 2],
    ) -> bool {
        let guarded = self.guard.is_some();
        let result = match (data.starts_with(keyed), data.starts_with(plain)) {
            (false, false) => return false,
            (true, _) if !guarded => Err(io::Error::other("it has a key, there is no --key here")),
            (_, true) if guarded => Err(io::Error::other("it has no key")),
            _ => self.begin_to_accept(id, &[], [receives, len, usize::MAX], true),
        };
        if let Err(e) = result {
            self.refuse(id, &e.to_string());
            return true;
        }
        let now = self.now();
        if let Some(oldest) = self.guard.as_mut().and_then(|g| g.called(id, now)) {
            self.end(oldest, Some("others began too many handshakes".into()));
        }
        true
    }

    /// Closes a connection that cannot be accepted.
    pub fn refuse(&mut self, id: LinkId, why: &str) {
        tracing::warn!("connection {id}: cannot accept it: {why}");
        self.close(id);
    }

    pub(super) fn end_late_handshakes(&mut self) {
        let now = self.now();
        for id in self.guard.as_ref().map_or(Vec::new(), |g| g.late(now)) {
            self.end(id, Some("its handshake takes too long".into()));
        }
    }

    /// Returns the event that the role gets.
    pub(super) fn guarded(&mut self, event: Event<T>) -> Option<Event<T>> {
        let now = self.now();
        let Some(guard) = &mut self.guard else {
            return Some(event);
        };
        let (id, verdict) = match &event {
            Event::Connected { id } => (*id, guard.connected(*id, now)),
            Event::Received { id, buffer, len } => (*id, guard.message(*id, &buffer[..*len])),
            _ => return Some(event),
        };
        for line in guard.says() {
            tracing::warn!("{line}");
        }
        if verdict == Verdict::Pass {
            return Some(event);
        }
        let mut result = Ok(());
        if let Event::Received { buffer, .. } = event {
            result = self.receive(id, buffer);
        }
        let mut proven = false;
        let message = match verdict {
            Verdict::Pass | Verdict::Wait => None,
            Verdict::Send(message) => Some(message),
            Verdict::Proven(message) => {
                proven = true;
                message
            }
            Verdict::End(why) => {
                result = Err(io::Error::other(why));
                None
            }
        };
        if let Some(message) = message {
            result = result.and_then(|()| self.send(id, None, &message));
        }
        match result {
            Ok(()) => proven.then_some(Event::Connected { id }),
            // Nothing that has arrived meanwhile is for the role.
            Err(e) => self.forget(id).then(|| Event::Ended {
                id,
                why: Some(e.to_string()),
            }),
        }
    }
}
