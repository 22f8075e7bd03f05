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
    Nexus,
    Throttle, //
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
    prelude::*,
    sync::Arc, //
};

/// Where the target is, and the connection manager to reach it.
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

    /// Whether both are the same port of the target.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rdma(one), Self::Rdma(two)) => one.dest == two.dest,
            (Self::Ib(one), Self::Ib(two)) => one.dgid == two.dgid,
            _ => false,
        }
    }

    /// Returns an attempt for `owner`; all attempts at this destination share `throttle`.
    pub(super) fn attempt(
        &self,
        nexus: &Arc<Nexus>,
        owner: &Arc<dyn Owner>,
        throttle: &Arc<Throttle>,
    ) -> Result<Arc<dyn Attempt>, LoginFailure> {
        match self {
            Self::Rdma(address) => Rdma::begin(nexus, owner, throttle, address),
            Self::Ib(service) => Ib::begin(nexus, owner, throttle, service),
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

/// A peer that answers in place of the target.
pub struct AnswersFrom {
    /// Where the peer is.
    pub destination: Destination,
    /// A throttle of its own, because the peer can be silent while the target is not.
    pub(super) throttle: Arc<Throttle>,
}

impl AnswersFrom {
    /// Returns the peer at this destination.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(destination: Destination) -> Result<Self> {
        let throttle = Throttle::new()?;
        Ok(Self {
            destination,
            throttle,
        })
    }
}

/// Where to log in, and as which initiator.
pub struct Plan {
    /// Where the target is.
    pub destination: Destination,
    /// Peers that answer in place of the target.
    pub answers_from: KVec<AnswersFrom>,
    /// GID of our port.
    pub sgid: Gid,
    /// Our port identifier.
    pub initiator: PortId,
    /// The target's port identifier.
    pub target: PortId,
    /// Retry count of the transport.
    pub retry_count: u8,
    /// ACK timeout of the transport, as n in 4.096 us * 2^n, if given.
    pub ack_timeout: Option<u8>,
    /// Type of service with `rdma_cm`, if given.
    pub tos: Option<u8>,
}
