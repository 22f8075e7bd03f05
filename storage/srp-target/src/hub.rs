// SPDX-License-Identifier: GPL-2.0

//! Connections on RDMA devices: [`Hub::poll`] returns events, methods start operations. One thread
//! owns all connections.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use verbs::{
    Arena, Buffer, CmEvent, Completion, Connection, Device, Events, Incoming, Key, Listener,
    Mapped, Op, Outgoing, Piece,
};

use crate::proto::cmd::DirectBuf;

/// Grace period of a disconnect. Short, because a new login waits for the end of the old session.
const LEAVING: Duration = Duration::from_millis(300);
/// Grace period of all connections when the program ends.
pub const ENDING: Duration = Duration::from_secs(5);
/// Maximum number of events before the caller checks timers, threads and signals.
pub const EVENTS: u32 = 64;
/// Maximum registered memory per device for messages and data, in bytes.
const MEMORY: usize = 512 << 20;
/// Share of `MEMORY` for receive buffers, so that some remains for data.
const MESSAGES: usize = MEMORY / 2;
/// Buffers up to this size are exempt from the limit, because a response needs one.
const SMALL: usize = 4096;

/// Number of a connection. Numbers are never reused.
pub type LinkId = u64;

/// An event. `T` identifies the purpose of a completion.
pub enum Event<T> {
    /// A connection request with this private data: call [`Hub::accept`] or [`Hub::reject`].
    Login {
        /// The connection.
        id: LinkId,
        /// At most 256 bytes; the transport may have padded it.
        data: Vec<u8>,
    },
    /// A connection made with [`Hub::connect`] or [`Hub::accept`] is established. Messages may have
    /// arrived before on the latter.
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
        /// Its length in bytes.
        len: usize,
    },
    /// A queued operation has completed.
    Done {
        /// The connection.
        id: LinkId,
        /// The token it was queued with.
        token: T,
        /// The buffer it was queued with; `None` for bytes of an arena.
        buffer: Option<Buffer>,
    },
    /// The connection has ended or could not be made. It has no further events.
    Ended {
        /// The connection.
        id: LinkId,
        /// The error, unless the peer disconnected.
        why: Option<String>,
    },
}

struct Link<T> {
    connection: Connection,
    device: usize,
    /// Maximum number of queued operations.
    most: usize,
    /// Length of all its receive buffers, in bytes.
    messages: usize,
    tokens: HashMap<u64, Option<T>>,
    next: u64,
    until: Option<Instant>,
    /// The operation after which to disconnect.
    last: Option<u64>,
}

impl<T> Link<T> {
    /// Registers an operation. Fails if too many are outstanding.
    fn token(&mut self, token: Option<T>) -> io::Result<u64> {
        if self.tokens.len() >= self.most {
            return Err(io::Error::other("the other side takes no answers"));
        }
        self.tokens.insert(self.next, token);
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// An outgoing connection, until its address and route are resolved.
struct Wanted {
    outgoing: Outgoing,
    receives: usize,
    len: usize,
    data: Vec<u8>,
}

/// A device with its free buffers.
struct Host {
    device: Device,
    free: HashMap<usize, Vec<Buffer>>,
    mapped: Option<Arc<Mapped>>,
}

impl Host {
    fn take(&mut self, len: usize) -> io::Result<Buffer> {
        let size = len.next_power_of_two().max(SMALL);
        if let Some(buffer) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(buffer);
        }
        if self.device.registered() + size > MEMORY {
            self.free.clear();
        }
        if size > SMALL && self.device.registered() + size > MEMORY {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut one = self.device.buffers(1, size)?;
        one.pop().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn give(&mut self, buffer: Buffer) {
        self.free.entry(buffer.len()).or_default().push(buffer);
    }
}

/// Converts descriptors to places in the peer's memory.
pub fn pieces(list: &[DirectBuf]) -> Vec<Piece> {
    list.iter().map(piece).collect()
}

/// Converts one descriptor.
pub fn piece(d: &DirectBuf) -> Piece {
    Piece {
        va: d.va(),
        key: d.key(),
        len: d.len(),
    }
}

/// All connections of a process.
pub struct Hub<T> {
    // Dropped in field order: connections before the devices, the listener and the events.
    links: HashMap<LinkId, Link<T>>,
    waiting: HashMap<LinkId, Incoming>,
    wanted: HashMap<LinkId, Wanted>,
    names: HashMap<Key, LinkId>,
    next: LinkId,
    happened: VecDeque<Event<T>>,
    hosts: Vec<Host>,
    devices: Vec<Device>,
    arena: Option<Arena>,
    listeners: Vec<Listener>,
    events: Events,
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<T> Hub<T> {
    /// Listens at an address. Returns the error of the failed system call.
    pub fn new(at: SocketAddr) -> io::Result<Self> {
        let mut this = Self::calling()?;
        this.listen(at)?;
        Ok(this)
    }

    /// Listens at one more address. Returns the error of the failed system call.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<()> {
        let (address, port) = (at.ip().to_string(), at.port().to_string());
        let listener = Listener::new(&self.events, &address, &port);
        let listener = listener.map_err(|e| io::Error::other(format!("{at}: {e}")))?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Which listener a connection request arrived at, in the order of their creation; `None` if it
    /// no longer waits for a decision.
    pub fn listener(&self, id: LinkId) -> Option<usize> {
        let key = self.waiting.get(&id)?.listener();
        self.listeners.iter().position(|l| l.key() == key)
    }

    /// Creates a hub without a listener. Returns the error of the failed system call.
    pub fn calling() -> io::Result<Self> {
        Ok(Self {
            links: HashMap::new(),
            waiting: HashMap::new(),
            wanted: HashMap::new(),
            names: HashMap::new(),
            next: 1,
            happened: VecDeque::new(),
            hosts: Vec::new(),
            devices: Vec::new(),
            arena: None,
            listeners: Vec::new(),
            events: Events::new()?,
        })
    }

    /// Grants the peers of all later connections access to this memory.
    pub fn share(&mut self, arena: Arena) {
        self.arena = Some(arena);
    }

    /// Descriptors that are readable when there are events.
    pub fn fds(&self) -> Vec<RawFd> {
        let devices = self.devices.iter().map(Device::fd);
        std::iter::once(self.events.fd()).chain(devices).collect()
    }

    /// Returns whether a connection is closing, so that [`Hub::late`] must be called.
    pub fn leaving(&self) -> bool {
        self.links.values().any(|l| l.until.is_some())
    }

    /// Returns whether there is no connection, established, incoming or outgoing.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.waiting.is_empty() && self.wanted.is_empty()
    }

    /// Returns the next event. Call it until it returns `None`, but at most [`EVENTS`] times before
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
                Some(event) => {
                    let (Event::Connected { id }
                    | Event::Received { id, .. }
                    | Event::Done { id, .. }) = &event
                    else {
                        continue;
                    };
                    // Drop the events of a closed connection.
                    if self.links.contains_key(id) {
                        return Ok(Some(event));
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
        if let Some(event) = self.events.next()? {
            self.cm_event(event);
        }
        let tokens: Vec<_> = self
            .devices
            .iter()
            .flat_map(|d| std::iter::from_fn(|| d.wakeup()))
            .collect();
        for id in tokens {
            self.drain(id);
        }
        Ok(())
    }

    fn cm_event(&mut self, event: CmEvent) {
        match event {
            CmEvent::Request(incoming) => {
                let id = self.number(incoming.key());
                let data = incoming.data().to_vec();
                self.waiting.insert(id, incoming);
                self.happened.push_back(Event::Login { id, data });
            }
            CmEvent::Established(key) => {
                if let Some(&id) = self.names.get(&key) {
                    self.happened.push_back(Event::Connected { id });
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
        }
    }

    /// The peer has ended a connection. [`Event::Ended`] follows. Only the owner of a connection
    /// made with [`Hub::join`] has to call it.
    pub fn disconnected(&mut self, id: LinkId) {
        // Deliver the completions that precede the disconnect.
        self.drain(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.disconnect();
        }
        self.end(id, None);
    }

    fn number(&mut self, key: Key) -> LinkId {
        let id = self.next;
        self.next += 1;
        self.names.insert(key, id);
        id
    }

    fn end(&mut self, id: LinkId, why: Option<String>) {
        self.happened.push_back(Event::Ended { id, why });
    }

    /// Removes a connection. Returns whether it existed.
    fn forget(&mut self, id: LinkId) -> bool {
        let known = self.names.len();
        self.names.retain(|_, name| *name != id);
        let linked = self.links.remove(&id).is_some();
        self.waiting.remove(&id);
        self.wanted.remove(&id);
        linked || self.names.len() < known
    }

    fn drain(&mut self, id: LinkId) {
        while let Some(link) = self.links.get_mut(&id) {
            let Some(completion) = link.connection.poll() else {
                return;
            };
            match completion {
                Completion::Received { buffer, len } => {
                    self.happened.push_back(Event::Received { id, buffer, len });
                }
                Completion::Done { token, buffer } => {
                    let last = link.last == Some(token);
                    let token = link.tokens.remove(&token).flatten();
                    if last {
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

    /// The index of a device in `devices`.
    fn host(&mut self, device: &Device) -> io::Result<usize> {
        for device in &self.devices[self.hosts.len()..] {
            let mapped = self.arena.as_ref().map(|a| device.map(a)).transpose()?;
            self.hosts.push(Host {
                device: device.clone(),
                free: HashMap::new(),
                mapped,
            });
        }
        let fd = device.fd();
        self.devices
            .iter()
            .position(|d| d.fd() == fd)
            .ok_or_else(gone)
    }

    /// Allocates receive buffers, within the limit for messages.
    fn buffers(&self, host: usize, receives: usize, len: usize) -> io::Result<Vec<Buffer>> {
        let same = self.links.values().filter(|l| l.device == host);
        let used: usize = same.map(|l| l.messages).sum();
        if used + receives * len > MESSAGES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.devices[host].buffers(receives, len)
    }

    fn add(
        &mut self,
        id: LinkId,
        connection: Connection,
        device: usize,
        [most, messages]: [usize; 2],
    ) {
        let link = Link {
            connection,
            device,
            most,
            messages,
            tokens: HashMap::new(),
            next: 0,
            until: None,
            last: None,
        };
        self.links.insert(id, link);
    }

    /// Accepts a connection with this private data and `receives` buffers of `len` bytes. At most
    /// `most` operations may be queued; one more is an error. After a failure the connection can
    /// still be rejected if [`Hub::waits`].
    pub fn accept(
        &mut self,
        id: LinkId,
        response: &[u8],
        receives: usize,
        len: usize,
        most: usize,
    ) -> io::Result<()> {
        let incoming = self.waiting.get(&id).ok_or_else(gone)?;
        let device = incoming.device(&mut self.devices)?;
        let host = self.host(&device)?;
        let buffers = self.buffers(host, receives, len)?;
        let incoming = self.waiting.remove(&id).ok_or_else(gone)?;
        match Connection::accept(incoming, &device, id, buffers, response) {
            Ok(connection) => self.add(id, connection, host, [most, receives * len]),
            Err(e) => {
                self.names.retain(|_, name| *name != id);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Adds a connection of another connection manager, which `make` makes on `device` with
    /// `receives` buffers of `len` bytes. `id` is a number that the hub does not use; one without a
    /// listener that connects to no peer uses none. `most` is as for [`Hub::accept`]. Returns the
    /// number of the queue pair.
    pub fn join(
        &mut self,
        id: LinkId,
        device: &Device,
        [receives, len, most]: [usize; 3],
        make: impl FnOnce(Vec<Buffer>) -> io::Result<Connection>,
    ) -> io::Result<u32> {
        if self.devices.iter().all(|d| d.fd() != device.fd()) {
            self.devices.push(device.clone());
        }
        let host = self.host(device)?;
        let connection = make(self.buffers(host, receives, len)?)?;
        let qpn = connection.qpn();
        self.add(id, connection, host, [most, receives * len]);
        Ok(qpn)
    }

    /// Returns whether a connection is established or being made.
    pub fn has(&self, id: LinkId) -> bool {
        self.links.contains_key(&id) || self.wanted.contains_key(&id)
    }

    /// Returns whether a connection request waits for a decision.
    pub fn waits(&self, id: LinkId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Rejects a connection request with this private data.
    pub fn reject(&mut self, id: LinkId, response: &[u8]) -> io::Result<()> {
        self.names.retain(|_, name| *name != id);
        match self.waiting.remove(&id) {
            Some(incoming) => incoming.reject(response),
            None => Ok(()),
        }
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
            receives,
            len,
            data: data.to_vec(),
        };
        self.wanted.insert(id, wanted);
        Ok(id)
    }

    fn make(&mut self, id: LinkId) -> io::Result<()> {
        let wanted = self.wanted.get(&id).ok_or_else(gone)?;
        let device = wanted.outgoing.device(&mut self.devices)?;
        let host = self.host(&device)?;
        let wanted = self.wanted.remove(&id).ok_or_else(gone)?;
        let buffers = self.buffers(host, wanted.receives, wanted.len)?;
        let made = Connection::connect(wanted.outgoing, &device, id, buffers, &wanted.data);
        // A peer of our choice is trusted, so there is no limit.
        self.add(id, made?, host, [usize::MAX, wanted.receives * wanted.len]);
        Ok(())
    }

    /// The address and rkey of the arena, for the peer of a connection.
    pub fn arena(&self, id: LinkId) -> Option<(u64, u32)> {
        let host = self.hosts.get(self.links.get(&id)?.device)?;
        host.mapped.as_ref().map(|m| (m.va(), m.key()))
    }

    /// Takes a buffer of at least `len` bytes for a connection.
    pub fn take(&mut self, id: LinkId, len: usize) -> io::Result<Buffer> {
        let link = self.links.get(&id).ok_or_else(gone)?;
        let host = self.hosts.get_mut(link.device).ok_or_else(gone)?;
        host.take(len)
    }

    /// Returns a buffer to the free list of the device.
    pub fn give(&mut self, id: LinkId, buffer: Option<Buffer>) {
        let host = self
            .links
            .get(&id)
            .and_then(|l| self.hosts.get_mut(l.device));
        if let (Some(host), Some(buffer)) = (host, buffer) {
            host.give(buffer);
        }
    }

    /// Posts a receive buffer.
    pub fn receive(&mut self, id: LinkId, buffer: Buffer) -> io::Result<()> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        link.connection.receive(buffer)
    }

    /// Queues an operation on a buffer. [`Event::Done`] follows if there is a token.
    pub fn queue(
        &mut self,
        id: LinkId,
        token: Option<T>,
        op: Op,
        buffer: Buffer,
        pieces: Vec<Piece>,
    ) -> io::Result<()> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        let token = link.token(token)?;
        link.connection.queue(token, op, buffer, pieces)
    }

    /// Like [`Hub::queue`], on bytes of the arena; each piece has its offset there.
    pub fn queue_arena(
        &mut self,
        id: LinkId,
        token: Option<T>,
        op: Op,
        pieces: Vec<(usize, Piece)>,
    ) -> io::Result<()> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        let host = self.hosts.get(link.device).ok_or_else(gone)?;
        let arena = host.mapped.clone().ok_or_else(gone)?;
        let token = link.token(token)?;
        link.connection.queue_arena(token, op, arena, pieces)
    }

    /// Sends a message.
    pub fn send(&mut self, id: LinkId, token: Option<T>, message: &[u8]) -> io::Result<()> {
        let mut buffer = self.take(id, message.len())?;
        buffer[..message.len()].copy_from_slice(message);
        let len = message.len() as u32;
        let piece = Piece { va: 0, key: 0, len };
        self.queue(id, token, Op::Send, buffer, vec![piece])
    }

    /// Sends a message, if any, and disconnects. [`Event::Ended`] follows, or [`Hub::late`] returns
    /// the connection.
    pub fn leave(&mut self, id: LinkId, message: Option<&[u8]>) -> io::Result<()> {
        if let Some(message) = message {
            self.send(id, None, message)?;
        }
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        link.until = Some(Instant::now() + LEAVING);
        match message {
            Some(_) => link.last = Some(link.next - 1),
            None => link.connection.disconnect(),
        }
        Ok(())
    }

    /// Closes a connection without waiting for the peer. It has no further events.
    pub fn close(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.disconnect();
        }
        self.forget(id);
    }

    /// Closes and returns the connections with an expired grace period.
    pub fn late(&mut self) -> Vec<LinkId> {
        let now = Instant::now();
        let late = |l: &Link<T>| l.until.is_some_and(|until| now > until);
        let all = self.links.iter().filter(|(_, l)| late(l));
        let late: Vec<_> = all.map(|(id, _)| *id).collect();
        for id in &late {
            self.forget(*id);
        }
        late
    }
}
