// SPDX-License-Identifier: GPL-2.0

//! Connection establishment, incoming and outgoing.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use verbs::{Buffer, Connection, Device, Events, Incoming, Key, Listener, Outgoing};

use super::{
    connect::Making,
    gone,
    registrar::{Accepting, Registered},
    Event, LinkId, Reactor,
};

/// Time between two tries to listen at an address whose device is gone.
const AGAIN: Duration = Duration::from_secs(1);

/// An address to listen at. Unless it is the wildcard address, the listener ends with its device.
pub(super) struct Door {
    at: SocketAddr,
    listener: Option<Listener>,
    next: Instant,
}

impl Door {
    pub(super) fn new(events: &Events, at: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            at,
            listener: Some(Self::listen(events, at)?),
            next: Instant::now(),
        })
    }

    fn listen(events: &Events, at: SocketAddr) -> io::Result<Listener> {
        let (address, port) = (at.ip().to_string(), at.port().to_string());
        let listener = Listener::new(events, &address, &port);
        listener.map_err(|e| io::Error::other(format!("{at}: {e}")))
    }

    pub(super) fn is(&self, key: Key) -> bool {
        self.listener.as_ref().is_some_and(|l| l.key() == key)
    }

    /// Returns whether the device is gone.
    pub(super) fn closed(&self) -> bool {
        self.listener.is_none()
    }

    pub(super) fn close(&mut self) {
        self.listener = None;
        let at = self.at;
        tracing::warn!("{at}: the device is gone; this process listens again when there is one");
    }

    /// Tries to listen again.
    pub(super) fn open(&mut self, events: &Events, now: Instant) {
        if self.closed() && now >= self.next {
            self.next = now + AGAIN;
            self.listener = Self::listen(events, self.at).ok();
            if !self.closed() {
                tracing::info!("{}: the device is back; listens again", self.at);
            }
        }
    }
}

/// An outgoing connection, until its address and route are resolved.
pub(super) struct Wanted {
    pub(super) outgoing: Outgoing,
    to: SocketAddr,
    receives: usize,
    len: usize,
    data: Vec<u8>,
}

impl<T> Reactor<T> {
    /// Returns the index of the listener that a connection request arrived at, in the order of
    /// creation; `None` if the request is no longer pending.
    pub fn listener(&self, id: LinkId) -> Option<usize> {
        let key = self.waiting.get(&id)?.listener();
        self.doors.iter().position(|d| d.is(key))
    }

    /// Gives a connection request away, to the reactor with these events:
    /// [`Reactor::arrive`] follows there. After a failure the request is rejected.
    pub fn hand_over(&mut self, id: LinkId, to: &Events) -> io::Result<Incoming> {
        let incoming = self.waiting.remove(&id).ok_or_else(gone)?;
        self.forget(id);
        incoming.migrate(to)
    }

    /// Takes a connection request of another reactor. [`Event::Login`] follows.
    pub fn arrive(&mut self, incoming: Incoming) {
        let id = self.number(incoming.key());
        let data = incoming.data().to_vec();
        self.waiting.insert(id, incoming);
        self.happened.push_back(Event::Login { id, data });
    }

    /// Returns whether a connection request waits for a decision.
    pub fn waits(&self, id: LinkId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Accepts a connection with this private data and `receives` buffers of `len` bytes. At most
    /// `most` operations may be queued; one more is an error. [`Event::Connected`] or
    /// [`Event::Ended`] follows, or [`Event::Refused`] if the kernel does not register the buffers.
    /// Until then the request waits. Fails with ENOMEM if they exceed the limit of the device, or
    /// with `NotConnected`; the request can still be rejected if [`Reactor::waits`] returns true.
    pub fn accept(
        &mut self,
        id: LinkId,
        response: &[u8],
        receives: usize,
        len: usize,
        most: usize,
    ) -> io::Result<()> {
        self.begin_to_accept(id, response, [receives, len, most], false)
    }

    pub(super) fn begin_to_accept(
        &mut self,
        id: LinkId,
        response: &[u8],
        [receives, len, most]: [usize; 3],
        welcome: bool,
    ) -> io::Result<()> {
        let incoming = self.waiting.get(&id).ok_or_else(gone)?;
        let device = incoming.device(self.hosts.values().map(|h| &h.device))?;
        let host = self.host(&device)?;
        let domain = self.domain(&device)?;
        let messages = receives * len;
        self.room(host, messages)?;
        let accepting = Accepting {
            host,
            domain,
            response: response.to_vec(),
            most,
            messages,
            welcome,
        };
        self.registrar.register(id, accepting, [receives, len]);
        Ok(())
    }

    /// Accepts the connections whose buffers are registered, and keeps buffers for data.
    pub(super) fn registered(&mut self) {
        for registered in self.registrar.registered() {
            match registered {
                Registered::Login(id, buffers) => {
                    if let Some(accepting) = self.registrar.accepting(id) {
                        self.accepted(id, accepting, buffers);
                    }
                }
                Registered::Data(id, size, buffers) => self.keep(id, size, buffers),
            }
        }
    }

    fn accepted(&mut self, id: LinkId, accepting: Accepting, buffers: io::Result<Vec<Buffer>>) {
        let buffers = match buffers {
            Ok(buffers) => buffers,
            Err(e) => {
                let why = e.to_string();
                return self.happened.push_back(Event::Refused { id, why });
            }
        };
        let Some(incoming) = self.waiting.remove(&id) else {
            return self.registrar.release(buffers);
        };
        let (host, domain, most) = (accepting.host, accepting.domain, accepting.most);
        let sizes = [most, accepting.messages];
        match Connection::accept(incoming, &domain, id, buffers, &accepting.response) {
            Ok(connection) => self.add(id, connection, (host, domain), sizes),
            Err(e) => self.end(id, Some(format!("cannot accept it: {e}"))),
        }
        if let (true, Some(link)) = (accepting.welcome, self.links.get_mut(&id)) {
            link.welcome = true;
            if self.guard.is_none() {
                self.happened.push_back(Event::Connected { id });
            }
        }
    }

    /// Returns whether [`Reactor::welcome`] has accepted a connection.
    pub fn welcomed(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.welcome)
    }

    /// Rejects a connection request with this private data.
    pub fn reject(&mut self, id: LinkId, response: &[u8]) -> io::Result<()> {
        let incoming = self.waiting.remove(&id);
        self.forget(id);
        incoming.map_or(Ok(()), |incoming| incoming.reject(response))
    }

    /// Adds a connection of another connection manager. `make` creates it in a domain of `device`
    /// with `receives` buffers of `len` bytes. `id` must not be in use by the reactor, which
    /// assigns numbers only to incoming and outgoing connections. `most` is as for
    /// [`Reactor::accept`]. Returns the number of the queue pair.
    pub fn join(
        &mut self,
        id: LinkId,
        device: &Device,
        [receives, len, most]: [usize; 3],
        make: impl FnOnce(&Device, Vec<Buffer>) -> io::Result<Connection>,
    ) -> io::Result<u32> {
        let host = self.host(device)?;
        let domain = device.domain()?;
        let connection = make(&domain, self.buffers(host, &domain, [receives, len])?)?;
        let qpn = connection.qpn();
        self.add(id, connection, (host, domain), [most, receives * len]);
        Ok(qpn)
    }

    /// Starts to connect, with this private data and `receives` buffers of `len` bytes.
    /// [`Event::Connected`] or [`Event::Ended`] follows.
    pub fn connect(
        &mut self,
        to: SocketAddr,
        data: &[u8],
        receives: usize,
        len: usize,
    ) -> io::Result<LinkId> {
        let (address, port) = (to.ip().to_string(), to.port().to_string());
        let outgoing = Outgoing::new(&self.events, &address, &port)?;
        let id = self.number(outgoing.key());
        let wanted = Wanted {
            outgoing,
            to,
            receives,
            len,
            data: data.to_vec(),
        };
        self.wanted.insert(id, wanted);
        Ok(id)
    }

    pub(super) fn make(&mut self, id: LinkId) -> io::Result<()> {
        let wanted = self.wanted.get(&id).ok_or_else(gone)?;
        let known = self.hosts.values().map(|h| &h.device);
        let device = wanted.outgoing.device(known)?;
        let host = self.host(&device)?;
        let domain = device.domain()?;
        let wanted = self.wanted.remove(&id).ok_or_else(gone)?;
        let messages = wanted.receives * wanted.len;
        self.room(host, messages)?;
        let making = Making {
            to: wanted.to,
            host,
            domain: domain.clone(),
            messages,
            established: false,
            wanted: true,
        };
        self.connects.start(id, making, move || {
            let buffers = domain.buffers(wanted.receives, wanted.len)?;
            let mut connection = Connection::call(wanted.outgoing, &domain, id, buffers)?;
            connection.connect(&wanted.data)?;
            Ok(connection)
        })
    }

    /// Adds the outgoing connections whose `connect` calls have returned, and drops those that
    /// failed.
    pub(super) fn made(&mut self) {
        for (id, making, made) in self.connects.made() {
            match made {
                Ok(connection) => {
                    // There is no limit: a peer that we connect to is trusted.
                    let place = (making.host, making.domain);
                    self.add(id, connection, place, [usize::MAX, making.messages]);
                    if making.established {
                        self.happened.push_back(Event::Connected { id });
                    }
                    // Its completions have woken nothing yet.
                    self.drain(id);
                }
                Err(e) => self.end(id, Some(e.to_string())),
            }
        }
    }
}
