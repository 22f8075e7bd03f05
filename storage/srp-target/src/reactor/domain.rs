// SPDX-License-Identifier: GPL-2.0

//! The protection domain of a connection and its memory.

use std::{collections::HashMap, io, sync::Arc};

use verbs::{Buffer, Device, Mapped};

use super::{gone, host::HostId, LinkId, Reactor};

/// Maximum registered memory per device for messages and data, in bytes.
const MEMORY: usize = 512 << 20;
/// Part of `MEMORY` that receive buffers may use. The rest is for data.
const MESSAGES: usize = MEMORY / 2;
/// Buffers up to this size are exempt from the limit, because each response needs one.
const SMALL: usize = 4096;

/// A protection domain with its free buffers.
pub(super) struct Domain {
    domain: Device,
    free: HashMap<usize, Vec<Buffer>>,
    /// The arena, if the peer may access it.
    mapped: Option<Arc<Mapped>>,
}

impl Domain {
    pub(super) fn new(domain: Device) -> Self {
        Self {
            domain,
            free: HashMap::new(),
            mapped: None,
        }
    }

    /// Takes a free buffer of at least `len` bytes, or registers one. `None` if a limit, ours or
    /// the kernel's, forbids that.
    fn take(&mut self, len: usize) -> io::Result<Option<Buffer>> {
        let size = len.next_power_of_two().max(SMALL);
        if let Some(buffer) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(Some(buffer));
        }
        if size > SMALL && self.domain.registered() + size > MEMORY {
            return Ok(None);
        }
        match self.domain.buffers(1, size) {
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => Ok(None),
            buffers => Ok(buffers?.pop()),
        }
    }

    /// A buffer of another domain is deregistered.
    fn give(&mut self, buffer: Buffer) {
        if !buffer.is_in(&self.domain) {
            return;
        }
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

    /// Allocates receive buffers in a domain of a device, within the limit for messages.
    pub(super) fn buffers(
        &self,
        host: HostId,
        domain: &Device,
        [receives, len]: [usize; 2],
    ) -> io::Result<Vec<Buffer>> {
        let same = self.links.values().filter(|l| l.device == host);
        let linked: usize = same.map(|l| l.messages).sum();
        let making: usize = self.connects.on(host).map(|(_, m)| m.messages).sum();
        if linked + making + receives * len > MESSAGES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        domain.buffers(receives, len)
    }

    /// Registers the arena for the peer of a connection, and for no other. Returns its address and
    /// rkey.
    pub fn arena(&mut self, id: LinkId) -> io::Result<(u64, u32)> {
        let domain = &mut self.links.get_mut(&id).ok_or_else(gone)?.domain;
        if let Some(mapped) = &domain.mapped {
            return Ok((mapped.va(), mapped.key()));
        }
        let arena = self.arena.as_ref().ok_or_else(gone)?;
        let mapped = domain.domain.map(arena, true)?;
        let place = (mapped.va(), mapped.key());
        domain.mapped = Some(mapped);
        Ok(place)
    }

    /// The arena for operations of this side on a connection.
    pub(super) fn local(&self, id: LinkId) -> io::Result<Arc<Mapped>> {
        let link = self.links.get(&id).ok_or_else(gone)?;
        let known = || self.hosts.get(&link.device)?.local.as_ref();
        let mapped = link.domain.mapped.as_ref().or_else(known);
        mapped.cloned().ok_or_else(gone)
    }

    /// Takes a buffer of at least `len` bytes for a connection.
    pub fn take(&mut self, id: LinkId, len: usize) -> io::Result<Buffer> {
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        if let Some(buffer) = link.domain.take(len)? {
            return Ok(buffer);
        }
        // Free buffers of all connections of the device count.
        let device = link.device;
        for link in self.links.values_mut().filter(|l| l.device == device) {
            link.domain.free.clear();
        }
        let link = self.links.get_mut(&id).ok_or_else(gone)?;
        let buffer = link.domain.take(len)?;
        buffer.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
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

    /// Returns a buffer to the free list of its connection, or deregisters it if it is of another
    /// one.
    pub fn give(&mut self, id: LinkId, buffer: Option<Buffer>) {
        if let (Some(link), Some(buffer)) = (self.links.get_mut(&id), buffer) {
            link.domain.give(buffer);
        }
    }
}
