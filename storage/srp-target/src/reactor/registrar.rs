// SPDX-License-Identifier: GPL-2.0

//! The two threads that register memory for all reactors of a process: one the receive buffers of
//! incoming connections, one buffers for data. The first one also releases ended connections with
//! their memory. Each of these pins or unpins many pages, so connections do not wait for it, nor
//! data for logins. Receive buffers are registered when those of all connections that ended before
//! are released.

use std::{
    any::Any,
    collections::HashMap,
    io,
    os::fd::RawFd,
    sync::{
        mpsc::{channel, Sender},
        Arc,
    },
};

use verbs::{Buffer, Device};

use super::{host::HostId, LinkId};
use crate::{
    pool::Pool,
    results::{ResultSender, Results},
};

/// An incoming connection whose buffers the thread registers.
pub(super) struct Accepting {
    pub(super) host: HostId,
    pub(super) domain: Device,
    /// Private data.
    pub(super) response: Vec<u8>,
    /// Maximum number of queued operations.
    pub(super) most: usize,
    /// Total length of the receive buffers, in bytes.
    pub(super) messages: usize,
    /// Whether it is of a role.
    pub(super) welcome: bool,
}

type Buffers = io::Result<Vec<Buffer>>;

/// What is registered, or cannot be.
pub(super) enum Registered {
    /// The receive buffers of a connection.
    Login(LinkId, Buffers),
    /// A buffer of this size for data.
    Data(LinkId, usize, Buffers),
}

enum Job {
    Login {
        id: LinkId,
        domain: Device,
        sizes: [usize; 2],
        to: ResultSender<Registered>,
    },
    Data {
        id: LinkId,
        domain: Device,
        size: usize,
        most: usize,
        to: ResultSender<Registered>,
    },
    Release(#[allow(dead_code)] Box<dyn Any + Send>),
    /// Tells a reactor that its earlier jobs are done.
    Last(Sender<()>),
}

fn work(job: Job) {
    match job {
        Job::Login {
            id,
            domain,
            sizes: [receives, len],
            to,
        } => to.send(Registered::Login(id, domain.buffers(receives, len))),
        Job::Data {
            id,
            domain,
            size,
            most,
            to,
        } => {
            let buffers = match domain.registered() + size > most {
                true => Err(io::ErrorKind::OutOfMemory.into()),
                false => domain.buffers(1, size),
            };
            to.send(Registered::Data(id, size, buffers));
        }
        Job::Release(_) => {}
        Job::Last(to) => {
            let _ = to.send(());
        }
    }
}

/// The threads. They end with the last clone.
#[derive(Clone)]
pub(super) struct Pools {
    logins: Arc<Pool<Job>>,
    data: Arc<Pool<Job>>,
}

impl Pools {
    /// Starts the threads. Returns the error of the failed system call.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            logins: Arc::new(Pool::new("logins", 1, work)?),
            data: Arc::new(Pool::new("data", 1, work)?),
        })
    }
}

/// What the threads do for one reactor. Drop waits for it.
pub(super) struct Registrar {
    pools: Pools,
    accepting: HashMap<LinkId, Accepting>,
    results: Results<Registered>,
    sender: ResultSender<Registered>,
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let (done, last) = channel();
        self.pools.logins.give(Job::Last(done.clone()));
        self.pools.data.give(Job::Last(done));
        last.into_iter().for_each(drop);
    }
}

impl Registrar {
    pub(super) fn new(pools: Pools) -> io::Result<Self> {
        let (results, sender) = Results::new()?;
        Ok(Self {
            pools,
            accepting: HashMap::new(),
            results,
            sender,
        })
    }

    /// Descriptor that is readable when something is registered.
    pub(super) fn fd(&self) -> RawFd {
        self.results.fd()
    }

    /// Begins to register `receives` buffers of `len` bytes.
    pub(super) fn register(&mut self, id: LinkId, accepting: Accepting, sizes: [usize; 2]) {
        let (domain, to) = (accepting.domain.clone(), self.sender.clone());
        self.accepting.insert(id, accepting);
        self.pools.logins.give(Job::Login {
            id,
            domain,
            sizes,
            to,
        });
    }

    /// Begins to register a buffer of `size` bytes for data, if the device then has no more than
    /// `most` bytes.
    pub(super) fn register_data(&self, id: LinkId, domain: Device, [size, most]: [usize; 2]) {
        let to = self.sender.clone();
        self.pools.data.give(Job::Data {
            id,
            domain,
            size,
            most,
            to,
        });
    }

    /// Begins to release what takes long to drop.
    pub(super) fn release(&self, what: impl Send + 'static) {
        self.pools.logins.give(Job::Release(Box::new(what)));
    }

    /// Begins to release buffers for data, before others are registered.
    pub(super) fn release_data(&self, what: impl Send + 'static) {
        self.pools.data.give(Job::Release(Box::new(what)));
    }

    /// All connections on a device, also those whose requests have ended meanwhile.
    pub(super) fn on(&self, host: HostId) -> impl Iterator<Item = (&LinkId, &Accepting)> {
        self.accepting.iter().filter(move |(_, a)| a.host == host)
    }

    /// Takes what is registered, or cannot be.
    pub(super) fn registered(&self) -> Vec<Registered> {
        self.results.take()
    }

    /// Takes an incoming connection whose buffers are registered, or cannot be.
    pub(super) fn accepting(&mut self, id: LinkId) -> Option<Accepting> {
        self.accepting.remove(&id)
    }
}
