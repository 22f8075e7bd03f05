// SPDX-License-Identifier: GPL-2.0

//! Outgoing connections. Each is made in a thread of its own: to register its receive buffers takes
//! long, also if nothing listens there, and with iWARP `connect` waits for TCP, for minutes if the
//! peer's host does not answer.

use std::{collections::HashMap, io, net::SocketAddr, os::fd::RawFd};

use verbs::{Connection, Device};

use super::{host::HostId, LinkId};
use crate::threads::Threads;

/// Maximum number of threads for the same address.
const TRIES: usize = 16;

/// A connection that a thread establishes.
pub(super) struct Making {
    pub(super) to: SocketAddr,
    pub(super) host: HostId,
    pub(super) domain: Device,
    /// Total length of the receive buffers, in bytes.
    pub(super) messages: usize,
    /// Whether the connection is established.
    pub(super) established: bool,
    /// Whether the caller still has it.
    pub(super) wanted: bool,
}

type Made = (LinkId, io::Result<Connection>);

pub(super) struct Connects {
    making: HashMap<LinkId, Making>,
    threads: Threads<Made>,
}

impl Connects {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            making: HashMap::new(),
            threads: Threads::new()?,
        })
    }

    /// Descriptor that is readable when a thread has ended.
    pub(super) fn fd(&self) -> RawFd {
        self.threads.fd()
    }

    /// Starts a thread that makes a connection.
    pub(super) fn start(
        &mut self,
        id: LinkId,
        making: Making,
        make: impl FnOnce() -> io::Result<Connection> + Send + 'static,
    ) -> io::Result<()> {
        if self.making.values().filter(|m| m.to == making.to).count() >= TRIES {
            let why = format!("the kernel has not answered {TRIES} earlier tries");
            return Err(io::Error::other(why));
        }
        self.threads.start("connect", move || (id, make()))?;
        self.making.insert(id, making);
        Ok(())
    }

    /// A connection that a thread has, and the caller still wants.
    pub(super) fn get(&mut self, id: LinkId) -> Option<&mut Making> {
        self.making.get_mut(&id).filter(|m| m.wanted)
    }

    /// Returns whether a thread has a connection that the caller still wants.
    pub(super) fn has(&self, id: LinkId) -> bool {
        self.making.get(&id).is_some_and(|m| m.wanted)
    }

    /// Returns whether no thread has a connection that the caller wants.
    pub(super) fn is_empty(&self) -> bool {
        self.making.values().all(|m| !m.wanted)
    }

    /// All connections on a device.
    pub(super) fn on(&self, host: HostId) -> impl Iterator<Item = (&LinkId, &Making)> {
        self.making.iter().filter(move |(_, m)| m.host == host)
    }

    /// The connections whose threads have ended. Those that the caller has closed are dropped.
    pub(super) fn made(&mut self) -> Vec<(LinkId, Making, io::Result<Connection>)> {
        let all = self.threads.results().into_iter();
        let making = &mut self.making;
        let with = all.filter_map(|(id, made)| Some((id, making.remove(&id)?, made)));
        with.filter(|(_, making, _)| making.wanted).collect()
    }
}
