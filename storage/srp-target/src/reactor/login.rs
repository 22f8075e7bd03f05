// SPDX-License-Identifier: GPL-2.0

//! Connection establishment, incoming and outgoing.

use std::{io, net::SocketAddr};

use verbs::{Buffer, Connection, Device, Outgoing};

use super::{gone, LinkId, Reactor};

/// An outgoing connection, until its address and route are resolved.
pub(super) struct Wanted {
    pub(super) outgoing: Outgoing,
    receives: usize,
    len: usize,
    data: Vec<u8>,
}

impl<T> Reactor<T> {
    /// Returns the index of the listener that a connection request arrived at, in the order of
    /// creation; `None` if the request is no longer pending.
    pub fn listener(&self, id: LinkId) -> Option<usize> {
        let key = self.waiting.get(&id)?.listener();
        self.listeners.iter().position(|l| l.key() == key)
    }

    /// Returns whether a connection request waits for a decision.
    pub fn waits(&self, id: LinkId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Accepts a connection with this private data and `receives` buffers of `len` bytes. At most
    /// `most` operations may be queued; one more is an error. After a failure the request can still
    /// be rejected if [`Reactor::waits`] returns true.
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

    /// Rejects a connection request with this private data.
    pub fn reject(&mut self, id: LinkId, response: &[u8]) -> io::Result<()> {
        self.names.retain(|_, name| *name != id);
        match self.waiting.remove(&id) {
            Some(incoming) => incoming.reject(response),
            None => Ok(()),
        }
    }

    /// Adds a connection of another connection manager. `make` creates it on `device` with
    /// `receives` buffers of `len` bytes. `id` must not be in use by the reactor, which assigns
    /// numbers only to incoming and outgoing connections. `most` is as for [`Reactor::accept`].
    /// Returns the number of the queue pair.
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

    pub(super) fn make(&mut self, id: LinkId) -> io::Result<()> {
        let wanted = self.wanted.get(&id).ok_or_else(gone)?;
        let device = wanted.outgoing.device(&mut self.devices)?;
        let host = self.host(&device)?;
        let wanted = self.wanted.remove(&id).ok_or_else(gone)?;
        let buffers = self.buffers(host, wanted.receives, wanted.len)?;
        let made = Connection::connect(wanted.outgoing, &device, id, buffers, &wanted.data);
        // There is no limit: a peer that we connect to is trusted.
        self.add(id, made?, host, [usize::MAX, wanted.receives * wanted.len]);
        Ok(())
    }
}
