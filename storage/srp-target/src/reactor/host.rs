// SPDX-License-Identifier: GPL-2.0

//! A device and its memory.

use std::{collections::HashMap, io, sync::Arc};

use verbs::{Buffer, Device, Mapped, Trouble};

use super::{gone, LinkId, Reactor};

/// Maximum registered memory per device for messages and data, in bytes.
const MEMORY: usize = 512 << 20;
/// Part of `MEMORY` that receive buffers may use. The rest is for data.
const MESSAGES: usize = MEMORY / 2;
/// Buffers up to this size are exempt from the limit, because each response needs one.
const SMALL: usize = 4096;

/// Number of a device. Numbers are never reused.
pub(super) type HostId = u64;

/// A device with its free buffers.
pub(super) struct Host {
    pub(super) device: Device,
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
    /// Returns the number of a device.
    pub(super) fn host(&mut self, device: &Device) -> io::Result<HostId> {
        if let Some((&id, _)) = self.hosts.iter().find(|(_, h)| h.device.is(device)) {
            return Ok(id);
        }
        let mapped = self.arena.as_ref().map(|a| device.map(a)).transpose()?;
        let id = self.next;
        self.next += 1;
        let host = Host {
            device: device.clone(),
            free: HashMap::new(),
            mapped,
        };
        self.hosts.insert(id, host);
        Ok(id)
    }

    /// Drops a device that is gone or broken, and ends its connections. The device is released when
    /// the last of them and of their buffers is dropped.
    pub(super) fn lost(&mut self, id: HostId, why: &str) {
        let Some(host) = self.hosts.remove(&id) else {
            return;
        };
        let name = host.device.name();
        println!("device {name}: {why}; its connections end, those of other devices go on");
        let links = self.links.iter().filter(|(_, l)| l.device == id);
        let making = self.connects.on(id).map(|(link, _)| *link);
        let all: Vec<_> = links.map(|(link, _)| *link).chain(making).collect();
        for link in all {
            self.end(link, Some(format!("the device {name} is gone")));
        }
    }

    /// Handles the events of a device, and returns the connections with completions.
    pub(super) fn ask(&mut self, id: HostId) -> Vec<LinkId> {
        let mut links = Vec::new();
        let Some(host) = self.hosts.get(&id) else {
            return links;
        };
        let device = host.device.clone();
        let result = loop {
            match device.trouble() {
                Ok(Some(trouble)) => self.trouble(id, trouble),
                Ok(None) => match device.wakeup() {
                    Ok(Some(link)) => links.push(link),
                    Ok(None) => break Ok(()),
                    Err(e) => break Err(e),
                },
                Err(e) => break Err(e),
            }
        };
        if let Err(e) = result {
            self.lost(id, &e.to_string());
        }
        links
    }

    fn trouble(&mut self, id: HostId, trouble: Trouble) {
        let Some(host) = self.hosts.get(&id) else {
            return;
        };
        let on = |l: &super::Link<T>| l.device == id;
        let (link, what) = match trouble {
            Trouble::Port(port, what) => {
                return println!("device {}, port {port}: {what}", host.device.name());
            }
            Trouble::Fatal(what) => return self.lost(id, &what),
            Trouble::Queue(link, what) => (self.links.get(&link).map(|_| link), what),
            Trouble::Pair(number, what) => {
                let mut links = self.links.iter();
                let link = links.find(|(_, l)| on(l) && l.connection.qpn() == number);
                (link.map(|(id, _)| *id), what)
            }
        };
        if let Some(link) = link {
            self.broken(link, Some(what));
        }
    }

    /// Allocates receive buffers, within the limit for messages.
    pub(super) fn buffers(
        &self,
        host: HostId,
        receives: usize,
        len: usize,
    ) -> io::Result<Vec<Buffer>> {
        let same = self.links.values().filter(|l| l.device == host);
        let used: usize = same.map(|l| l.messages).sum();
        let used = used
            + self
                .connects
                .on(host)
                .map(|(_, m)| m.messages)
                .sum::<usize>();
        if used + receives * len > MESSAGES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let host = self.hosts.get(&host).ok_or_else(gone)?;
        host.device.buffers(receives, len)
    }

    /// The address and rkey of the arena, for the peer of a connection.
    pub fn arena(&self, id: LinkId) -> Option<(u64, u32)> {
        let host = self.hosts.get(&self.links.get(&id)?.device)?;
        host.mapped.as_ref().map(|m| (m.va(), m.key()))
    }

    /// Takes a buffer of at least `len` bytes for a connection.
    pub fn take(&mut self, id: LinkId, len: usize) -> io::Result<Buffer> {
        let link = self.links.get(&id).ok_or_else(gone)?;
        let host = self.hosts.get_mut(&link.device).ok_or_else(gone)?;
        host.take(len)
    }

    /// Returns a buffer to the free list of the device.
    pub fn give(&mut self, id: LinkId, buffer: Option<Buffer>) {
        let host = self
            .links
            .get(&id)
            .and_then(|l| self.hosts.get_mut(&l.device));
        if let (Some(host), Some(buffer)) = (host, buffer) {
            host.give(buffer);
        }
    }
}
