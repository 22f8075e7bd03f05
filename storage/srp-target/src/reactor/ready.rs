// SPDX-License-Identifier: GPL-2.0

//! Waiting for events. Each source that is asked takes a system call, so after a wait only those
//! are asked that are readable.

use std::{io, os::fd::RawFd};

use super::{host::HostId, Reactor};

/// The sources of events to ask.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) cm: bool,
    pub(super) connects: bool,
    pub(super) offers: bool,
    pub(super) registrar: bool,
    /// Devices with completions, and whether they have asynchronous events.
    pub(super) hosts: Vec<(HostId, bool)>,
}

impl<T> Reactor<T> {
    /// Descriptors that are readable when there are events.
    pub fn fds(&self) -> Vec<RawFd> {
        let devices = self.hosts.values().map(|h| &h.device);
        let devices = devices.flat_map(|d| [d.fd(), d.trouble_fd()]);
        let [connects, offers] = [self.connects.fd(), self.offers.fd()];
        let own = [self.events.fd(), connects, offers, self.registrar.fd()];
        own.into_iter().chain(devices).collect()
    }

    /// Waits until there are events or one of the other descriptors is readable, or for `ms`
    /// milliseconds (-1: no timeout). Returns for each of the others whether it is readable. From
    /// then on [`Reactor::poll`] returns only the events up to this wait. A caller that never waits
    /// here gets all.
    pub fn wait(&mut self, others: &[RawFd], ms: i32) -> io::Result<Vec<bool>> {
        let mut fds = self.fds();
        let own = fds.len();
        fds.extend(others);
        let ms = if self.happened.is_empty() { ms } else { 0 };
        let mut ready = verbs::os::wait(&fds, ms)?;
        let others = ready.split_off(own);
        let devices = ready.split_off(4);
        let hosts = self.hosts.keys().zip(devices.chunks(2));
        let hosts = hosts.filter(|(_, device)| device.contains(&true));
        self.ready = Some(Ready {
            cm: ready[0],
            connects: ready[1],
            offers: ready[2],
            registrar: ready[3],
            hosts: hosts.map(|(id, device)| (*id, device[1])).collect(),
        });
        Ok(others)
    }

    /// Takes the sources that are to be asked.
    pub(super) fn sources(&mut self) -> Ready {
        match &mut self.ready {
            Some(ready) => std::mem::take(ready),
            None => Ready {
                cm: true,
                connects: true,
                offers: true,
                registrar: true,
                hosts: self.hosts.keys().map(|id| (*id, true)).collect(),
            },
        }
    }
}
