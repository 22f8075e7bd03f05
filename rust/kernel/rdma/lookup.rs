// SPDX-License-Identifier: GPL-2.0

//! Looking up a path to another port.
//!
//! On InfiniBand and Omni-Path the subnet administrator provides the path. RoCE has none: the path
//! follows from the two GIDs, which are IP addresses, and from routes and neighbours.

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

/// A path lookup. Dropping it cancels the lookup, and sleeps.
pub enum Lookup {
    /// By the subnet administrator.
    Sa(Pin<KBox<sa::Query>>),
    /// By the IP network.
    Roce(Pin<KBox<roce::Query>>),
}

impl Lookup {
    /// Looks up a path from `port` of `device`, for at most `timeout` milliseconds. May sleep.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP` if the port has no InfiniBand connection manager
    /// - `ENOENT` if the port has no such GID, on RoCE
    /// - `ENODEV` if the port has no subnet administrator, `EAGAIN` if it is not known yet
    /// - `EINVAL` if the GIDs are addresses of different families, on RoCE
    /// - otherwise the error of the network, such as `ENETUNREACH`
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
    /// Returns `None` if there is no result yet.
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
