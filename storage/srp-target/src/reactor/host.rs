// SPDX-License-Identifier: GPL-2.0

//! A device and its memory.

use std::{collections::HashMap, io, sync::Arc};

use verbs::{Buffer, Device, Mapped};

use super::{gone, LinkId, Reactor};

/// Maximum registered memory per device for messages and data, in bytes.
const MEMORY: usize = 512 << 20;
/// Part of `MEMORY` that receive buffers may use. The rest is for data.
const MESSAGES: usize = MEMORY / 2;
/// Buffers up to this size are exempt from the limit, because each response needs one.
const SMALL: usize = 4096;

/// A device with its free buffers.
pub(super) struct Host {
    device: Device,
    free: HashMap<usize, Vec<Buffer>>,
    pub(super) mapped: Option<Arc<Mapped>>,
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

impl<T> Reactor<T> {
    /// Returns the index of a device in `devices`.
    pub(super) fn host(&mut self, device: &Device) -> io::Result<usize> {
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
    pub(super) fn buffers(
        &self,
        host: usize,
        receives: usize,
        len: usize,
    ) -> io::Result<Vec<Buffer>> {
        let same = self.links.values().filter(|l| l.device == host);
        let used: usize = same.map(|l| l.messages).sum();
        if used + receives * len > MESSAGES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.devices[host].buffers(receives, len)
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
}
