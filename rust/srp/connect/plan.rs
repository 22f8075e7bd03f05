// SPDX-License-Identifier: GPL-2.0

//! Where to log in.

use super::{
    attempt::Attempt,
    ib::{
        Ib,
        Service, //
    },
    rdma::{
        Address,
        Rdma, //
    },
    Nexus, //
};
use crate::srp::{
    error::LoginFailure,
    owner::Owner,
    proto::{
        guid::Gid,
        ids::PortId, //
    }, //
};
use kernel::{
    fmt,
    sync::Arc, //
};

/// Where the target is, and the connection manager that asks it.
pub enum Destination {
    /// By `rdma_cm`.
    Rdma(Address),
    /// By `ib_cm`.
    Ib(Service),
}

impl Destination {
    /// The address, if it is reached by `rdma_cm`.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Self::Rdma(address) => Some(address),
            Self::Ib(_) => None,
        }
    }

    /// The service, if it is reached by `ib_cm`.
    pub fn service(&self) -> Option<&Service> {
        match self {
            Self::Ib(service) => Some(service),
            Self::Rdma(_) => None,
        }
    }

    /// The same port of the target.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rdma(one), Self::Rdma(two)) => one.dest == two.dest,
            (Self::Ib(one), Self::Ib(two)) => one.dgid == two.dgid,
            _ => false,
        }
    }

    pub(super) fn attempt(
        &self,
        nexus: &Arc<Nexus>,
        owner: &Arc<dyn Owner>,
    ) -> Result<Arc<dyn Attempt>, LoginFailure> {
        match self {
            Self::Rdma(address) => Rdma::begin(nexus, owner, address),
            Self::Ib(service) => Ib::begin(nexus, owner, service),
        }
    }
}

/// The address, or the port's GID.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma(address) => fmt::Display::fmt(&address.dest, f),
            Self::Ib(service) => core::fmt::Display::fmt(&service.dgid, f),
        }
    }
}

/// Where to log in, and as whom.
pub struct Plan {
    /// Where the target is.
    pub destination: Destination,
    /// GID of our port.
    pub sgid: Gid,
    /// Our port identifier.
    pub initiator: PortId,
    /// The target's port identifier.
    pub target: PortId,
    /// Retries of the transport.
    pub retry_count: u8,
    /// How long it waits for an acknowledgement, as n in 4.096 us * 2^n, if somebody said.
    pub ack_timeout: Option<u8>,
    /// Type of service with `rdma_cm`, if somebody said.
    pub tos: Option<u8>,
}
