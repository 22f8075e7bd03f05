// SPDX-License-Identifier: GPL-2.0

//! The protection domain of a connection and its memory.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::Arc,
};

use verbs::{Buffer, Device, Mapped};

use super::{gone, host::HostId, link::Link, Event, LinkId, Reactor};

/// Maximum registered memory per device for messages and data, of all reactors of the process, in
/// bytes. Receive buffers may use half of it. The rest is for data.
const MEMORY: usize = 512 << 20;
/// If there are connections with roles, the data of others leaves them one part of so many.
const PARTS: usize = 8;
/// Buffers up to this size are exempt from the limit, because each response needs one.
const SMALL: usize = 4096;

/// Maximum number of threads that register or release an arena: the peers may come again and again.
const OFFERS: usize = 16;

/// An arena that a thread has registered for the peer of a connection, and the token for that.
pub(super) type Offer<T> = (LinkId, T, io::Result<Arc<Mapped>>);

/// Free buffers by their size.
type Free = HashMap<usize, Vec<Buffer>>;

/// A protection domain with its free buffers.
pub(super) struct Domain {
    domain: Device,
    free: Free,
    /// The sizes of which a buffer is being registered.
    registering: BTreeSet<usize>,
    /// The arena, if the peer may access it.
    mapped: Option<Arc<Mapped>>,
}

/// The size of a buffer for `len` bytes.
fn size(len: usize) -> usize {
    len.next_power_of_two().max(SMALL)
}

impl Domain {
    pub(super) fn new(domain: Device) -> Self {
        Self {
            domain,
            free: HashMap::new(),
            registering: BTreeSet::new(),
            mapped: None,
        }
    }

    /// Ends the domain. Returns the arena and the free buffers, which take long to release.
    pub(super) fn end(self) -> (Option<Arc<Mapped>>, impl Send) {
        (self.mapped, self.free)
    }

    /// Registers a buffer if the device then has no more than `most` bytes. `None` if this limit or
    /// the kernel's forbids that.
    fn register(&self, size: usize, most: usize) -> io::Result<Option<Buffer>> {
        if size > SMALL && self.domain.registered() + size > most {
            return Ok(None);
        }
        match self.domain.buffers(1, size) {
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => Ok(None),
            buffers => Ok(buffers?.pop()),
        }
    }

    fn give(&mut self, buffer: Buffer) {
        self.free.entry(buffer.len()).or_default().push(buffer);
    }
}

impl<T> Reactor<T> {
    /// The domain of a connection that another side makes. Those that share an arena have one for
    /// all, with the arena.
    pub(super) fn domain(&self, device: &Device) -> io::Result<Device> {
        match self.arena {
            Some(_) => Ok(device.clone()),
            None => device.domain(),
        }
    }

    /// Fails with ENOMEM if receive buffers of this total length exceed the limit for messages of a
    /// device.
    pub(super) fn room(&self, host: HostId, len: usize) -> io::Result<()> {
        let same = self.links.values().filter(|l| l.device == host);
        let linked: usize = same.map(|l| l.messages).sum();
        let making: usize = self.connects.on(host).map(|(_, m)| m.messages).sum();
        let accepting: usize = self.registrar.on(host).map(|(_, a)| a.messages).sum();
        if linked + making + accepting + len > MEMORY / self.of / 2 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }

    /// Allocates receive buffers in a domain of a device, within the limit for messages.
    pub(super) fn buffers(
        &self,
        host: HostId,
        domain: &Device,
        [receives, len]: [usize; 2],
    ) -> io::Result<Vec<Buffer>> {
        self.room(host, receives * len)?;
        domain.buffers(receives, len)
    }

    /// Registers the arena for the peer of a connection, and for no other, in a thread: this takes
    /// seconds for many GiB. [`Event::Done`] follows with the token, or [`Event::Ended`].
    pub fn offer(&mut self, id: LinkId, token: T) -> io::Result<()>
    where
        T: Send + 'static,
    {
        let domain = self.links.get(&id).ok_or_else(gone)?.domain.domain.clone();
        let arena = self.arena.clone().ok_or_else(gone)?;
        self.releases.results();
        if self.offers.running() + self.releases.running() >= OFFERS {
            let why = format!("{OFFERS} other connections have the memory registered");
            return Err(io::Error::other(why));
        }
        self.offers.start("register", move || {
            let mapped = domain.map(&arena, true);
            (id, token, mapped)
        })
    }

    /// Takes the arenas that are registered.
    pub(super) fn offered(&mut self) {
        for (id, token, mapped) in self.offers.results() {
            match (self.links.get_mut(&id), mapped) {
                (Some(link), Ok(mapped)) => {
                    let earlier = link.domain.mapped.replace(mapped);
                    self.release(earlier);
                    let buffer = None;
                    self.happened.push_back(Event::Done { id, token, buffer });
                }
                (Some(_), Err(e)) => {
                    let why = format!("cannot register the memory, see `ulimit -l`: {e}");
                    self.end(id, Some(why));
                }
                (None, mapped) => self.release(mapped.ok()),
            }
        }
    }

    /// Deregisters an arena in a thread, as it takes long. Without a thread the caller does it.
    pub(super) fn release(&mut self, mapped: Option<Arc<Mapped>>) {
        if let Some(mapped) = mapped {
            let _ = self.releases.start("release", move || drop(mapped));
        }
    }

    /// Address and rkey of the arena for the peer of a connection, once it is registered.
    pub fn arena(&self, id: LinkId) -> Option<(u64, u32)> {
        let mapped = self.links.get(&id)?.domain.mapped.as_ref()?;
        Some((mapped.va(), mapped.key()))
    }

    /// The arena for operations of this side on a connection.
    pub(super) fn local(&self, id: LinkId) -> io::Result<Arc<Mapped>> {
        let link = self.links.get(&id).ok_or_else(gone)?;
        let known = || self.hosts.get(&link.device)?.local.as_ref();
        let mapped = link.domain.mapped.as_ref().or_else(known);
        mapped.cloned().ok_or_else(gone)
    }

    /// Maximum registered memory of a connection's device, in bytes.
    fn most(&self, link: &Link<T>) -> usize {
        let all = MEMORY / self.of;
        let mut same = self.links.values().filter(|l| l.device == link.device);
        match link.is_role() || !same.any(Link::is_role) {
            true => all,
            false => all - all / PARTS,
        }
    }

    /// Takes the free buffers of all connections of a connection's device, as they count. Those of
    /// roles are only for roles.
    fn free(&mut self, id: LinkId) -> Vec<Free> {
        let link = self.links.get(&id);
        let (device, role) = (link.map(|l| l.device), link.is_some_and(Link::is_role));
        let same = |l: &&mut Link<T>| Some(l.device) == device && (role || !l.is_role());
        let same = self.links.values_mut().filter(same);
        same.map(|l| std::mem::take(&mut l.domain.free)).collect()
    }

    /// Takes a buffer of at least `len` bytes for a connection.
    pub fn take(&mut self, id: LinkId, len: usize) -> io::Result<Buffer> {
        let size = size(len);
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        if let Some(buffer) = link.domain.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(buffer);
        }
        let register = |this: &Self| {
            let link = this.links.get(&id).ok_or_else(gone)?;
            link.domain.register(size, this.most(link))
        };
        if let Some(buffer) = register(self)? {
            return Ok(buffer);
        }
        self.free(id);
        register(self)?.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Returns whether [`Reactor::take`] has a buffer of at least `len` bytes for a connection, or
    /// fails, without registering a large one. If it returns false, a thread registers one, and
    /// [`Event::Memory`] follows, or [`Event::Ended`].
    pub fn prepare(&mut self, id: LinkId, len: usize) -> bool {
        let size = size(len);
        if size <= SMALL {
            return true;
        }
        let Some(link) = self.links.get_mut(&id) else {
            return true;
        };
        if link.domain.free.get(&size).is_some_and(|b| !b.is_empty()) {
            return true;
        }
        if !link.domain.registering.insert(size) {
            return false;
        }
        let domain = link.domain.domain.clone();
        let most = self.links.get(&id).map_or(0, |link| self.most(link));
        if domain.registered() + size > most {
            let free = self.free(id);
            self.registrar.release_data(free);
        }
        self.registrar.register_data(id, domain, [size, most]);
        false
    }

    /// Keeps a buffer that is registered for [`Reactor::prepare`].
    pub(super) fn keep(&mut self, id: LinkId, size: usize, buffers: io::Result<Vec<Buffer>>) {
        let Some(link) = self.links.get_mut(&id) else {
            return self.registrar.release_data(buffers);
        };
        link.domain.registering.remove(&size);
        let registered = buffers.is_ok();
        for buffer in buffers.into_iter().flatten() {
            link.domain.give(buffer);
        }
        self.happened.push_back(Event::Memory { id, registered });
    }

    /// Returns the buffer, or a copy in the protection domain of this connection if it is of
    /// another one.
    pub fn adopt(&mut self, id: LinkId, buffer: Buffer) -> io::Result<Buffer> {
        let link = self.links.get(&id).ok_or_else(gone)?;
        if buffer.is_in(&link.domain.domain) {
            return Ok(buffer);
        }
        let mut own = self.take(id, buffer.len())?;
        own[..buffer.len()].copy_from_slice(&buffer);
        Ok(own)
    }

    /// Returns a buffer to the free list of its connection. If it is of another one, or that has
    /// ended, a thread deregisters it.
    pub fn give(&mut self, id: LinkId, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else {
            return;
        };
        match self.links.get_mut(&id) {
            Some(link) if buffer.is_in(&link.domain.domain) => link.domain.give(buffer),
            _ => self.registrar.release_data(buffer),
        }
    }
}
