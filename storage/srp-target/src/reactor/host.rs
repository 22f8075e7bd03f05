// SPDX-License-Identifier: GPL-2.0

//! A device: its arena for operations of this side, its events and its loss.

use std::{io, sync::Arc};

use verbs::{Device, Mapped, Trouble};

use super::{LinkId, Reactor};

/// Number of a device. Numbers are never reused.
pub(super) type HostId = u64;

/// A device.
pub(super) struct Host {
    pub(super) device: Device,
    /// The arena in the first domain of the device, for operations of this side. Peers may not
    /// access it, except with iWARP those that serve an RDMA READ. It stays registered: this takes
    /// long, and later registrations are faster.
    pub(super) local: Option<Arc<Mapped>>,
}

impl<T> Reactor<T> {
    /// Returns the number of a device.
    pub(super) fn host(&mut self, device: &Device) -> io::Result<HostId> {
        if let Some((&id, _)) = self.hosts.iter().find(|(_, h)| h.device.is(device)) {
            return Ok(id);
        }
        let arena = self.arena.as_ref();
        let local = arena.map(|a| device.map(a, false)).transpose()?;
        let id = self.count();
        let host = Host {
            device: device.clone(),
            local,
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
        tracing::error!("device {name}: {why}; its connections end, those of other devices go on");
        let links = self.links.iter().filter(|(_, l)| l.device == id);
        let making = self.connects.on(id).map(|(link, _)| *link);
        let accepting = self.registrar.on(id).map(|(link, _)| *link);
        let links = links.map(|(link, _)| *link);
        let all: Vec<_> = links.chain(making).chain(accepting).collect();
        for link in all {
            self.end(link, Some(format!("the device {name} is gone")));
        }
    }

    /// Handles the events of a device, asynchronous ones only if there may be some, and returns the
    /// connections with completions.
    pub(super) fn ask(&mut self, id: HostId, troubles: bool) -> Vec<LinkId> {
        let mut links = Vec::new();
        let Some(host) = self.hosts.get(&id) else {
            return links;
        };
        let device = host.device.clone();
        let mut result = Ok(());
        while troubles && result.is_ok() {
            match device.trouble() {
                Ok(Some(trouble)) => {
                    if !self.trouble(id, &trouble) && self.of > 1 {
                        self.foreign.push((device.clone(), trouble));
                    }
                }
                Ok(None) => break,
                Err(e) => result = Err(e),
            }
        }
        while result.is_ok() {
            match device.wakeup() {
                Ok(Some(link)) => links.push(link),
                Ok(None) => break,
                Err(e) => result = Err(e),
            }
        }
        if let Err(e) = result {
            self.lost(id, &e.to_string());
        }
        links
    }

    /// Takes the asynchronous events that this reactor has read, and that may be of connections of
    /// others: [`Reactor::hear`] is for them. A device has one source of such events in a process.
    pub fn foreign(&mut self) -> Vec<(Device, Trouble)> {
        std::mem::take(&mut self.foreign)
    }

    /// Handles an asynchronous event that another reactor has read.
    pub fn hear(&mut self, device: &Device, trouble: &Trouble) {
        let mut hosts = self.hosts.iter();
        if let Some((&id, _)) = hosts.find(|(_, h)| h.device.shares(device)) {
            self.trouble(id, trouble);
        }
    }

    /// Handles an asynchronous event. Returns whether it concerns this reactor alone.
    fn trouble(&mut self, id: HostId, trouble: &Trouble) -> bool {
        let Some(host) = self.hosts.get(&id) else {
            return false;
        };
        let on = |l: &super::Link<T>| l.device == id;
        let (link, what) = match trouble {
            Trouble::Port(port, what) => {
                tracing::warn!("device {}, port {port}: {what}", host.device.name());
                return true;
            }
            Trouble::Fatal(what) => {
                self.lost(id, what);
                return false;
            }
            Trouble::Queue(link, what) => (self.links.get(link).map(|_| *link), what),
            Trouble::Pair(number, what) => {
                let mut links = self.links.iter();
                let link = links.find(|(_, l)| on(l) && l.connection.qpn() == *number);
                (link.map(|(id, _)| *id), what)
            }
        };
        if let Some(link) = link {
            self.broken(link, Some(what.clone()));
        }
        link.is_some()
    }
}
