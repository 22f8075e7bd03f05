// SPDX-License-Identifier: GPL-2.0

//! Events of a reactor, made from those of the devices and the connection manager.

use std::io;

use verbs::{Buffer, CmEvent, Completion};

use super::{LinkId, Reactor};

/// An event. `T` identifies the purpose of a completion.
pub enum Event<T> {
    /// A connection request with this private data: call [`Reactor::accept`] or
    /// [`Reactor::reject`].
    Login {
        /// The connection.
        id: LinkId,
        /// Private data, at most 256 bytes. The transport may have padded it.
        data: Vec<u8>,
    },
    /// The receive buffers of an accepted connection cannot be registered: call
    /// [`Reactor::reject`] or [`Reactor::close`].
    Refused {
        /// The connection.
        id: LinkId,
        /// The error.
        why: String,
    },
    /// A connection made with [`Reactor::connect`] or [`Reactor::accept`] is established. An
    /// accepted connection may receive messages before this event. After [`Reactor::welcome`] it
    /// can be used from this event on. For a role with a key, both sides are proven, and nothing is
    /// received before.
    Connected {
        /// The connection.
        id: LinkId,
    },
    /// A message has arrived.
    Received {
        /// The connection.
        id: LinkId,
        /// The message.
        buffer: Buffer,
        /// Length of the message in bytes.
        len: usize,
    },
    /// A queued operation has completed.
    Done {
        /// The connection.
        id: LinkId,
        /// The token of the operation.
        token: T,
        /// The buffer of the operation; `None` for bytes of an arena.
        buffer: Option<Buffer>,
    },
    /// A buffer that [`Reactor::prepare`] asked for is registered, or cannot be.
    Memory {
        /// The connection.
        id: LinkId,
        /// Whether it is registered.
        registered: bool,
    },
    /// The connection has ended or failed. It has no further events.
    Ended {
        /// The connection.
        id: LinkId,
        /// The error, unless the peer disconnected.
        why: Option<String>,
    },
}

impl<T> Reactor<T> {
    /// Returns the next event. Call it until it returns `None`, at most [`EVENTS`] times before
    /// other work is done.
    pub fn poll(&mut self) -> io::Result<Option<Event<T>>> {
        loop {
            match self.happened.pop_front() {
                Some(Event::Ended { id, why }) => {
                    if self.forget(id) {
                        return Ok(Some(Event::Ended { id, why }));
                    }
                }
                Some(Event::Login { id, data }) => {
                    if self.waiting.contains_key(&id) {
                        return Ok(Some(Event::Login { id, data }));
                    }
                }
                Some(Event::Refused { id, why }) => {
                    if self.waiting.contains_key(&id) {
                        return Ok(Some(Event::Refused { id, why }));
                    }
                }
                Some(event) => {
                    let (Event::Connected { id }
                    | Event::Memory { id, .. }
                    | Event::Received { id, .. }
                    | Event::Done { id, .. }) = &event
                    else {
                        continue;
                    };
                    // Drop the events of a closed connection.
                    if self.links.contains_key(id) {
                        if let Some(event) = self.guarded(event) {
                            return Ok(Some(event));
                        }
                    }
                }
                None => {
                    self.gather()?;
                    if self.happened.is_empty() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn gather(&mut self) -> io::Result<()> {
        let ready = self.sources();
        // One at a time: of many requests each is a turn of the caller.
        if ready.cm {
            if let Some(event) = self.events.next()? {
                self.cm_event(event);
            }
        }
        if ready.connects {
            self.made();
        }
        if ready.offers {
            self.offered();
        }
        if ready.registrar {
            self.registered();
        }
        for (host, troubles) in ready.hosts {
            for id in self.ask(host, troubles) {
                self.drain(id);
            }
        }
        Ok(())
    }

    fn cm_event(&mut self, event: CmEvent) {
        match event {
            CmEvent::Request(incoming) => self.arrive(incoming),
            CmEvent::Established(key) => {
                if let Some(&id) = self.names.get(&key) {
                    let told = self.welcomed(id) && self.guard.is_none();
                    match self.connects.get(id) {
                        Some(making) => making.established = true,
                        None if told => {}
                        None => self.happened.push_back(Event::Connected { id }),
                    }
                }
            }
            CmEvent::Address(key) => {
                let id = self.names.get(&key).copied();
                let wanted = id.and_then(|id| self.wanted.get(&id).map(|w| (id, w)));
                if let Some((id, Err(e))) = wanted.map(|(id, w)| (id, w.outgoing.route())) {
                    self.end(id, Some(e.to_string()));
                }
            }
            CmEvent::Route(key) => {
                if let Some(&id) = self.names.get(&key) {
                    if let Err(e) = self.make(id) {
                        self.end(id, Some(e.to_string()));
                    }
                }
            }
            CmEvent::Ended(key) => {
                if let Some(&id) = self.names.get(&key) {
                    self.disconnected(id);
                }
            }
            CmEvent::Removed(key) => {
                if let Some(door) = self.doors.iter_mut().find(|d| d.is(key)) {
                    return door.close();
                }
                let mut hosts = self.hosts.iter();
                if let Some((&id, _)) = hosts.find(|(_, h)| h.device.key() == Some(key)) {
                    return self.lost(id, "removed");
                }
                if let Some(&id) = self.names.get(&key) {
                    self.broken(id, Some("its device is gone".into()));
                }
            }
        }
    }

    /// Handles the end of a connection by the peer. [`Event::Ended`] follows. Call it only for
    /// connections made with [`Reactor::join`]; the reactor detects the end of all others.
    pub fn disconnected(&mut self, id: LinkId) {
        self.broken(id, None);
    }

    /// Ends a connection.
    pub(super) fn broken(&mut self, id: LinkId, why: Option<String>) {
        // Deliver the completions that precede the end.
        self.drain(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.disconnect();
        }
        self.end(id, why);
    }

    pub(super) fn drain(&mut self, id: LinkId) {
        while let Some(link) = self.links.get_mut(&id) {
            let Some(completion) = link.connection.poll() else {
                return;
            };
            match completion {
                Completion::Received { buffer, len } => {
                    self.happened.push_back(Event::Received { id, buffer, len });
                }
                Completion::Done { token, buffer } => {
                    let last = link.last.take_if(|last| *last == token);
                    let token = link.tokens.remove(token as usize).flatten();
                    if last.is_some() {
                        link.connection.disconnect();
                    }
                    match token {
                        Some(token) => self.happened.push_back(Event::Done { id, token, buffer }),
                        None => self.give(id, buffer),
                    }
                }
                Completion::Failed(why) => return self.end(id, Some(why)),
            }
        }
    }
}
