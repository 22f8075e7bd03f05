// SPDX-License-Identifier: GPL-2.0

//! The destination of a session, and the data that its logins share.

use super::{
    channel_login::{
        no_identifier,
        ChannelLogin, //
    },
    events::Events,
    ib_cm::{
        IbCm,
        Service, //
    },
    rdma_cm::{
        Address,
        RdmaCm, //
    },
    Throttle, //
};
use crate::{
    net::SocketAddr,
    srp::{
        error::LoginFailure,
        proto::{
            guid::Gid,
            ids::PortId, //
        },
        status::{
            Owner,
            Status, //
        }, //
    },
    workqueue::TimedInterrupt, //
};
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// Maximum number of concurrent RDMA reads that we serve, if the device can.
const RESPONDER_RESOURCES: u8 = 16;

/// The address of the target, for one of the connection managers.
pub enum Destination {
    /// By `rdma_cm`.
    Rdma(Address),
    /// By `ib_cm`.
    Ib(Service),
}

impl Destination {
    /// Whether both are the same port of the target.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rdma(one), Self::Rdma(two)) => one.dest == two.dest,
            (Self::Ib(one), Self::Ib(two)) => one.dgid == two.dgid,
            _ => false,
        }
    }

    /// Returns a login of one channel for `owner`; all logins at this destination share `throttle`.
    pub(super) fn channel_login(
        &self,
        logins: &Arc<LoginContext>,
        owner: &Arc<dyn Owner>,
        throttle: &Arc<Throttle>,
    ) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        let topspin = matches!(self, Self::Ib(service) if service.topspin);
        let events = Events::new(owner.clone(), throttle.clone(), topspin);
        let events = events.map_err(no_identifier)?;
        match self {
            Self::Rdma(address) => RdmaCm::begin(logins, events, address),
            Self::Ib(service) => IbCm::begin(logins, events, service),
        }
    }
}

/// The address, or the port's GID.
impl core::fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma(address) => fmt::Display::fmt(&address.dest, f),
            Self::Ib(service) => core::fmt::Display::fmt(&service.dgid, f),
        }
    }
}

/// Another node of the target, which responds in its place.
pub struct AnswerNode {
    /// The address of the node.
    pub destination: Destination,
    /// The throttle of the node, which can be silent while the target is not.
    pub(super) throttle: Arc<Throttle>,
}

impl AnswerNode {
    /// Describes the node at this destination, with a throttle of its own.
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

/// The parameters of all logins of a session.
pub struct LoginParams {
    /// The target's address.
    pub destination: Destination,
    /// Nodes that respond in place of the target.
    pub answers_from: KVec<AnswerNode>,
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

/// What all logins of a session share: one of our ports and one target port, an I_T nexus in SAM's
/// terms.
#[pin_data]
pub struct LoginContext {
    /// The parameters of all logins.
    pub params: LoginParams,
    /// Status of the session.
    pub status: Arc<Status>,
    /// Throttle of all logins to the same destination.
    pub throttle: Arc<Throttle>,
    /// Interrupts the thread that connects.
    pub waiting: Arc<TimedInterrupt>,
    /// See [`Self::need_descriptors`].
    descriptors: Atomic<u32>,
    /// See [`Self::time_allowed`].
    time_allowed: Atomic<u32>,
    /// Our address in the first channel's last request by `rdma_cm`.
    #[pin]
    pub bound: Mutex<Option<SocketAddr>>,
    /// GID of the port of the first channel by `ib_cm`, which differs from that of the service
    /// after a redirection.
    #[pin]
    pub reached: Mutex<Option<Gid>>,
}

impl LoginContext {
    /// Returns the context of a session without a login.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(
        params: LoginParams,
        status: Arc<Status>,
        throttle: Arc<Throttle>,
        waiting: Arc<TimedInterrupt>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                params,
                status,
                throttle,
                waiting,
                descriptors: Atomic::new(0),
                time_allowed: Atomic::new(0),
                bound <- new_mutex!(None, "LoginContext::bound"),
                reached <- new_mutex!(None, "LoginContext::reached"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the number of descriptors that a midlayer command may take. Later logins need as many.
    pub fn need_descriptors(&self, descriptors: u32) {
        self.descriptors.store(descriptors, Relaxed);
    }

    pub(super) fn needed_descriptors(&self) -> u32 {
        self.descriptors.load(Relaxed)
    }

    /// Maximum number of concurrent RDMA reads that the target may send.
    pub(super) fn responder_resources(&self) -> u8 {
        let device = &self.status.geometry.device;
        device.max_qp_rd_atom.min(RESPONDER_RESOURCES)
    }

    /// Records that a channel may take this many milliseconds to end a command.
    pub(super) fn allow_time(&self, msecs: Msecs) {
        // Logins of one session are serialized.
        if msecs > self.time_allowed() {
            self.time_allowed.store(msecs, Relaxed);
        }
    }

    /// Milliseconds after which the transport has certainly ended a command; 0 if unknown.
    pub fn time_allowed(&self) -> Msecs {
        self.time_allowed.load(Relaxed)
    }
}
