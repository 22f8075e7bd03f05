// SPDX-License-Identifier: GPL-2.0

//! Connections on RDMA devices: [`Reactor::poll`] returns events, methods start operations. One
//! thread owns all connections.

mod connect;
mod domain;
mod event;
mod guarded;
mod host;
mod link;
mod login;
mod parked;
mod ready;
mod registrar;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use verbs::{Arena, Device, Events, Incoming, Key, Piece, Trouble};

use crate::{auth::Guard, proto::cmd::DirectBuf, threads::Threads};

pub use event::Event;
pub use parked::Parked;

use connect::Connects;
use domain::Offer;
use host::{Host, HostId};
use link::Link;
use login::{Door, Wanted};
use ready::Ready;
use registrar::{Pools, Registrar};

/// Grace period of all connections when the program ends.
pub const ENDING: Duration = Duration::from_secs(5);
/// Maximum number of events before the caller checks timers, threads and signals.
pub const EVENTS: u32 = 64;

/// Number of a connection. Numbers are never reused.
pub type LinkId = u64;

/// Converts descriptors to pieces of the peer's memory.
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
pub struct Reactor<T> {
    // Dropped in field order: connections before the devices, the listener and the events.
    registrar: Registrar,
    links: BTreeMap<LinkId, Link<T>>,
    waiting: HashMap<LinkId, Incoming>,
    wanted: HashMap<LinkId, Wanted>,
    connects: Connects,
    offers: Threads<Offer<T>>,
    releases: Threads<()>,
    names: HashMap<Key, LinkId>,
    /// Connections whose end is not reported yet, with their keys. `names` does not show that: a
    /// destroyed identifier may have given its key to another connection.
    open: HashMap<LinkId, Option<Key>>,
    /// Connections that disconnect, and the ends of their grace periods.
    leaving: BTreeMap<LinkId, Instant>,
    next: LinkId,
    /// Number of reactors of the process.
    of: usize,
    happened: VecDeque<Event<T>>,
    /// `None` before the first wait.
    ready: Option<Ready>,
    hosts: BTreeMap<HostId, Host>,
    /// Asynchronous events that may be of connections of other reactors.
    foreign: Vec<(Device, Trouble)>,
    arena: Option<Arena>,
    guard: Option<Guard>,
    begin: Instant,
    doors: Vec<Door>,
    events: Events,
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<T> Reactor<T> {
    /// Listens at an address. Returns the error of the failed system call.
    pub fn new(at: SocketAddr) -> io::Result<Self> {
        let mut this = Self::calling()?;
        this.listen(at)?;
        Ok(this)
    }

    /// Listens at one more address. Returns the error of the failed system call.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<()> {
        self.doors.push(Door::new(&self.events, at)?);
        Ok(())
    }

    /// Creates a reactor without a listener. Returns the error of the failed system call.
    pub fn calling() -> io::Result<Self> {
        Self::part(Registrar::new(Pools::new()?)?, 0, 1)
    }

    /// Creates `of` reactors of a process without a listener. They have different numbers for
    /// connections, a part each of the memory of a device, and the same threads that register and
    /// release memory. Returns the error of the failed system call.
    pub fn parts(of: usize) -> io::Result<Vec<Self>> {
        let pools = Pools::new()?;
        let part = |number| Self::part(Registrar::new(pools.clone())?, number, of);
        (0..of).map(part).collect()
    }

    fn part(registrar: Registrar, number: usize, of: usize) -> io::Result<Self> {
        Ok(Self {
            registrar,
            links: BTreeMap::new(),
            waiting: HashMap::new(),
            wanted: HashMap::new(),
            connects: Connects::new()?,
            offers: Threads::new()?,
            releases: Threads::new()?,
            names: HashMap::new(),
            open: HashMap::new(),
            leaving: BTreeMap::new(),
            next: 1 + number as LinkId,
            of,
            happened: VecDeque::new(),
            ready: None,
            hosts: BTreeMap::new(),
            foreign: Vec::new(),
            arena: None,
            guard: None,
            begin: Instant::now(),
            doors: Vec::new(),
            events: Events::new()?,
        })
    }

    /// Where connection requests for this reactor go, see [`Reactor::hand_over`].
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// Shares this memory. The peer of a connection has access after [`Reactor::offer`]. Call it
    /// before any connection is made.
    pub fn share(&mut self, arena: Arena) {
        self.arena = Some(arena);
    }

    /// Returns whether there is no established, incoming or outgoing connection.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
            && self.waiting.is_empty()
            && self.wanted.is_empty()
            && self.connects.is_empty()
    }

    /// The next number, of a connection or a device.
    fn count(&mut self) -> LinkId {
        let id = self.next;
        self.next += self.of as LinkId;
        id
    }

    fn number(&mut self, key: Key) -> LinkId {
        let id = self.count();
        self.names.insert(key, id);
        self.open.insert(id, Some(key));
        id
    }

    fn end(&mut self, id: LinkId, why: Option<String>) {
        self.happened.push_back(Event::Ended { id, why });
    }

    /// Removes a connection. Returns whether it existed.
    fn forget(&mut self, id: LinkId) -> bool {
        let open = self.open.remove(&id);
        if let Some(Some(key)) = open {
            if self.names.get(&key) == Some(&id) {
                self.names.remove(&key);
            }
        }
        self.leaving.remove(&id);
        if let Some(Link {
            mut connection,
            domain,
            ..
        }) = self.links.remove(&id)
        {
            // The device stops using its memory now.
            connection.disconnect();
            let (mapped, free) = domain.end();
            self.registrar.release((connection, free));
            self.release(mapped);
        }
        self.waiting.remove(&id);
        self.wanted.remove(&id);
        if let Some(making) = self.connects.get(id) {
            making.wanted = false;
        }
        if let Some(guard) = &mut self.guard {
            guard.ended(id);
        }
        open.is_some()
    }

    /// Returns whether a connection is established or being made.
    pub fn has(&self, id: LinkId) -> bool {
        self.links.contains_key(&id) || self.wanted.contains_key(&id) || self.connects.has(id)
    }
}
