// SPDX-License-Identifier: GPL-2.0

//! Looking up a path to another port.
//!
//! On InfiniBand and Omni-Path the subnet administrator knows it. On RoCE there is none: the path
//! follows from the two GIDs, which are IP addresses, and from what the network says of them.

use super::{
    device::{
        Device,
        Fabric, //
    },
    path::{
        Path,
        PathRec, //
    },
    roce,
    sa, //
};
use crate::errno::EOPNOTSUPP;
use kernel::{
    prelude::*,
    time::Msecs, //
};

/// A path that is being looked up. Dropping it ends that, and sleeps.
pub enum Lookup {
    /// By the subnet administrator.
    Sa(Pin<KBox<sa::Query>>),
    /// By the IP network.
    Roce(Pin<KBox<roce::Query>>),
}

impl Lookup {
    /// Begins to look for a path from `port` of `device`, for at most `timeout` milliseconds. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if the port has no InfiniBand connection manager
    /// - `ENOENT` if the port has no such GID
    /// - `EAGAIN` if the port knows no subnet administrator
    /// - `EINVAL` if the GIDs are addresses of different families, on RoCE
    /// - otherwise what the network says, `ENETUNREACH` for instance
    pub fn start(device: &Device, port: u32, rec: &PathRec, timeout: Msecs) -> Result<Self> {
        match device.fabric(port) {
            fabric @ (Fabric::InfiniBand | Fabric::Opa) => {
                let opa = fabric == Fabric::Opa;
                sa::Query::start(device, port, rec, opa, timeout).map(Self::Sa)
            }
            Fabric::Roce => roce::Query::start(device, port, rec, timeout).map(Self::Roce),
            Fabric::Other => Err(EOPNOTSUPP),
        }
    }

    /// Waits for the path, at most `timeout` milliseconds. Sleeps.
    ///
    /// Returns `None` if there is no answer yet.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub fn wait(&self, timeout: Msecs) -> Result<Option<Result<Path>>> {
        match self {
            Self::Sa(query) => query.wait(timeout),
            Self::Roce(query) => query.wait(timeout),
        }
    }
}
