// SPDX-License-Identifier: GPL-2.0

//! The layer above a session: the SCSI host of its disks.
//!
//! A session knows the host only by this trait, so that the host depends on the session, and not
//! vice versa. None of this is on the fast path.

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

/// What a session needs from its SCSI host.
pub trait SessionHost: Send + Sync {
    /// The number of the host.
    fn number(&self) -> u32;

    /// Adds the host, with the remote port of `session`. On error the host is removed.
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

    /// Scans for disks again, and keeps the existing ones.
    ///
    /// Context: as for [`SessionHost::scan`].
    fn rescan(&self);

    /// The longest request timeout of a disk, in milliseconds; 0 without a disk.
    ///
    /// Context: process.
    fn request_timeout(&self) -> Msecs;

    /// Removes the host with its disks, and waits for their commands, which must be able to end.
    /// May be called more than once; all calls wait.
    ///
    /// Context: process, may sleep.
    fn remove(&self);
}

impl<T: Driver<Transport = Transport<Session>>> SessionHost for Host<T> {
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
