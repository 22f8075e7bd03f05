// SPDX-License-Identifier: GPL-2.0

//! What is above a session: the SCSI host that its disks are below.
//!
//! A session knows no more of it, so that whatever the host does with its commands depends on the session, and
//! not the other way round. None of this is on the way of a command.

use super::Session;
use crate::scsi::{
    transport::srp::{
        Rport,
        Transport, //
    },
    Driver,
    Host, //
};
use kernel::{
    device::Device,
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// What a session needs of its host.
pub trait Upper: Send + Sync {
    /// The number of the host.
    fn number(&self) -> u32;

    /// Adds the host, with the remote port that `session` stands behind. Nothing of the host is left if that fails.
    ///
    /// # Errors
    ///
    /// Those of [`Host::add`] and [`Rport::add`].
    ///
    /// Context: process, may sleep.
    fn add(
        self: Arc<Self>,
        parent: Option<&Device>,
        port_id: &[u8; 16],
        session: &Arc<Session>,
    ) -> Result<Rport<Session>>;

    /// Scans for disks.
    ///
    /// Context: process, may sleep, for as long as commands take.
    fn scan(&self);

    /// Scans for disks once more, and keeps those that are there.
    ///
    /// Context: as for [`Upper::scan`].
    fn rescan(&self);

    /// The longest time that a disk gives a request, in milliseconds; 0 without a disk.
    ///
    /// Context: process.
    fn request_timeout(&self) -> Msecs;

    /// Removes the host with its disks, and waits for their commands, which must be able to end. It may be called
    /// more than once; all calls wait.
    ///
    /// Context: process, may sleep.
    fn remove(&self);
}

impl<T: Driver<Transport = Transport<Session>>> Upper for Host<T> {
    fn number(&self) -> u32 {
        Host::number(self)
    }

    fn add(
        self: Arc<Self>,
        parent: Option<&Device>,
        port_id: &[u8; 16],
        session: &Arc<Session>,
    ) -> Result<Rport<Session>> {
        Host::add(&self, parent)?;
        Rport::add(&self, port_id, session.clone())
    }

    fn scan(&self) {
        Host::scan(self);
    }

    fn rescan(&self) {
        Host::rescan(self);
    }

    fn request_timeout(&self) -> Msecs {
        Host::request_timeout(self)
    }

    fn remove(&self) {
        Host::remove(self);
    }
}
