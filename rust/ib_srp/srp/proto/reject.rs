// SPDX-License-Identifier: GPL-2.0

//! Why a connection or a login was rejected.

use core::fmt;

/// A reason, with the layer that it comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reject {
    /// The InfiniBand connection manager, also used on RoCE: `IB_CM_REJ_*` of
    /// `include/rdma/ib_cm.h`.
    Ib(u16),
    /// iWARP: a positive errno.
    Errno(i32),
    /// The target's SRP layer: the `reason` of a [`LoginRej`](super::login_iu::LoginRej).
    Srp(u32),
}

/// Reason in [`Reject::Ib`] if the target's SRP layer refuses; the private data is then a
/// [`LoginRej`](super::login_iu::LoginRej).
pub const CONSUMER_DEFINED: u16 = 28;

/// Reason in [`Reject::Ib`] that redirects to another port, see
/// [`Redirect`](super::redirect::Redirect).
pub const PORT_CM_REDIRECT: u16 = 24;
/// Reason in [`Reject::Ib`] with which Topspin and Cisco targets redirect.
pub const PORT_REDIRECT: u16 = 25;

const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

const ADDRESSES: &str = "check src, dest or dgid, and the routes between the hosts";
const VERSIONS: &str =
    "the two hosts do not understand each other; check driver and firmware versions";
const RETRY: &str = "try again";
const LISTENER: &str =
    "check that the target listens at this address and port (LIO: rdma_cm_port set, port enabled)";
const RESOURCES: &str = "check that the target has connections, memory and QPs left";
const REDIRECTED: &str = "log in at the port that the target redirects to";
const QOS: &str = "check the QoS settings of the subnet manager";
const LOG: &str = "see the target's log";

/// Reasons of SRP.
impl Reject {
    /// Any other cause.
    pub const UNABLE_ESTABLISH_CHANNEL: Self = Self::Srp(0x0001_0000);
    /// No memory or queue pairs, or the target port is disabled.
    pub const INSUFFICIENT_RESOURCES: Self = Self::Srp(0x0001_0001);
    /// The initiator requests longer messages than the target accepts.
    pub const REQ_IT_IU_LENGTH_TOO_LARGE: Self = Self::Srp(0x0001_0002);
    /// Not the identifier of this target port.
    pub const UNABLE_ASSOCIATE_CHANNEL: Self = Self::Srp(0x0001_0003);
    /// A buffer format that the target lacks.
    pub const UNSUPPORTED_DESCRIPTOR_FORMAT: Self = Self::Srp(0x0001_0004);
    /// The target has one channel for each initiator.
    pub const MULTI_CHANNEL_UNSUPPORTED: Self = Self::Srp(0x0001_0005);
    /// Too many channels, or the initiator is not allowed.
    pub const CHANNEL_LIMIT_REACHED: Self = Self::Srp(0x0001_0006);
}

impl Reject {
    /// Converts the status of an `RDMA_CM_EVENT_REJECTED`, or an IB/CM reject reason.
    pub const fn from_status(status: i32) -> Self {
        if status < 0 {
            Self::Errno(status.saturating_neg())
        } else {
            Self::Ib(if status > u16::MAX as i32 {
                u16::MAX
            } else {
                status as u16
            })
        }
    }

    /// Whether the private data may hold an SRP reject reason, which is more specific.
    pub const fn is_consumer_defined(self) -> bool {
        matches!(self, Self::Ib(CONSUMER_DEFINED) | Self::Errno(ECONNREFUSED))
    }

    /// The reason, or the errno as a positive number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Ib(reason) => reason as u32,
            Self::Errno(errno) => errno.unsigned_abs(),
            Self::Srp(reason) => reason,
        }
    }

    /// The reason in words, and what an administrator should check.
    pub const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Ib(1) => ("no QP", RESOURCES),
            Self::Ib(2) => ("no EEC", RESOURCES),
            Self::Ib(3) => ("no resources", RESOURCES),
            Self::Ib(4) => (
                "timeout",
                "check that the target answers and that the path is not overloaded",
            ),
            Self::Ib(5) => ("unsupported request", VERSIONS),
            Self::Ib(6) => ("invalid communication ID", RETRY),
            Self::Ib(7) => ("invalid communication instance", RETRY),
            Self::Ib(8) => ("invalid service ID", LISTENER),
            Self::Ib(9) => ("invalid transport type", VERSIONS),
            Self::Ib(10) => (
                "stale connection",
                "the target still holds an old connection; try again in a minute",
            ),
            Self::Ib(11) => ("RDC does not exist", VERSIONS),
            Self::Ib(12) => ("invalid GID", ADDRESSES),
            Self::Ib(13) => ("invalid LID", ADDRESSES),
            Self::Ib(14) => ("invalid SL", QOS),
            Self::Ib(15) => ("invalid traffic class", QOS),
            Self::Ib(16) => ("invalid hop limit", ADDRESSES),
            Self::Ib(17) => ("invalid packet rate", "check the link speeds on the path"),
            Self::Ib(18) => ("invalid alternate GID", ADDRESSES),
            Self::Ib(19) => ("invalid alternate LID", ADDRESSES),
            Self::Ib(20) => ("invalid alternate SL", ADDRESSES),
            Self::Ib(21) => ("invalid alternate traffic class", ADDRESSES),
            Self::Ib(22) => ("invalid alternate hop limit", ADDRESSES),
            Self::Ib(23) => ("invalid alternate packet rate", ADDRESSES),
            Self::Ib(PORT_CM_REDIRECT) => ("port and CM redirect", REDIRECTED),
            Self::Ib(PORT_REDIRECT) => ("port redirect", REDIRECTED),
            Self::Ib(26) => ("invalid MTU", "check the MTU of both ports"),
            Self::Ib(27) => ("insufficient responder resources", RESOURCES),
            Self::Ib(CONSUMER_DEFINED) => ("refused by the target's SRP layer", LOG),
            Self::Ib(29) => ("invalid RNR retry count", VERSIONS),
            Self::Ib(30) => ("duplicate local communication ID", RETRY),
            Self::Ib(31) => ("invalid class version", VERSIONS),
            Self::Ib(32) => ("invalid flow label", ADDRESSES),
            Self::Ib(33) => ("invalid alternate flow label", ADDRESSES),
            Self::Ib(35) => ("vendor option not supported", VERSIONS),

            Self::Errno(ECONNREFUSED) => ("connection refused", LISTENER),
            Self::Errno(ECONNRESET) => ("connection reset", LOG),
            Self::Errno(ETIMEDOUT) => ("timed out", ADDRESSES),
            Self::Errno(EHOSTUNREACH) => ("host unreachable", ADDRESSES),
            Self::Errno(_) => ("connection error", LOG),

            Self::UNABLE_ESTABLISH_CHANNEL => ("unable to establish the channel", LOG),
            Self::INSUFFICIENT_RESOURCES => (
                "insufficient resources",
                "check that the target port is enabled and has memory and QPs left",
            ),
            Self::REQ_IT_IU_LENGTH_TOO_LARGE => (
                "requested message length too large",
                "set max_it_iu_size to the target's limit, \
                 or lower cmd_sg_entries and max_imm_data",
            ),
            Self::UNABLE_ASSOCIATE_CHANNEL => (
                "unable to associate the channel with an I_T nexus",
                "check id_ext and ioc_guid against the target's service GUID",
            ),
            Self::UNSUPPORTED_DESCRIPTOR_FORMAT => (
                "unsupported data buffer descriptor format",
                "the target lacks direct or indirect buffers and cannot be used",
            ),
            Self::MULTI_CHANNEL_UNSUPPORTED => {
                ("multiple channels not supported", "set ch_count=1")
            }
            Self::CHANNEL_LIMIT_REACHED => (
                "channel limit reached or initiator not allowed",
                "check that the target's ACL has this initiator's port, and lower ch_count",
            ),

            Self::Ib(_) | Self::Srp(_) => ("unknown reason", LOG),
        }
    }
}

/// Reason in words, its number, and advice, in one line.
impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, advice) = self.text();
        match self {
            Self::Ib(n) => write!(f, "connection rejected: {what} (reason {n}); {advice}"),
            Self::Errno(n) => write!(f, "connection rejected: {what} (errno {n}); {advice}"),
            Self::Srp(n) => write!(f, "SRP login rejected: {what} ({n:#010x}); {advice}"),
        }
    }
}
