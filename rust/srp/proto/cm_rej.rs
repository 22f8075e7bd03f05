// SPDX-License-Identifier: GPL-2.0

//! Why a connection was rejected below SRP: `IB_CM_REJ_*` of `include/rdma/ib_cm.h`, or the errno
//! that iWARP reports instead.

use core::fmt;

/// The status of a rejected connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CmRej {
    /// A reject reason of the InfiniBand connection manager, also used on RoCE.
    Ib(u16),
    /// A positive errno, from iWARP.
    Errno(i32),
}

/// Reason in [`CmRej::Ib`] if the target's SRP layer refuses; the private data is then a
/// [`LoginRej`](super::login_rej::LoginRej).
pub const CONSUMER_DEFINED: u16 = 28;

/// Reason in [`CmRej::Ib`] that redirects to another port, see
/// [`Redirect`](super::redirect::Redirect).
pub const PORT_CM_REDIRECT: u16 = 24;
/// Reason in [`CmRej::Ib`] with which Topspin and Cisco targets redirect.
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

impl CmRej {
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

    /// The reject reason, or the errno as a positive number.
    pub const fn number(self) -> i32 {
        match self {
            Self::Ib(reason) => reason as i32,
            Self::Errno(errno) => errno,
        }
    }

    /// The reason in words.
    pub const fn name(self) -> &'static str {
        self.text().0
    }

    /// What an administrator should check.
    pub const fn advice(self) -> &'static str {
        self.text().1
    }

    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Ib(reason) => ib_text(reason),
            Self::Errno(ECONNREFUSED) => ("connection refused", LISTENER),
            Self::Errno(ECONNRESET) => ("connection reset", "see the target's log"),
            Self::Errno(ETIMEDOUT) => ("timed out", ADDRESSES),
            Self::Errno(EHOSTUNREACH) => ("host unreachable", ADDRESSES),
            Self::Errno(_) => ("connection error", "see the target's log"),
        }
    }
}

const fn ib_text(reason: u16) -> (&'static str, &'static str) {
    match reason {
        1 => ("no QP", RESOURCES),
        2 => ("no EEC", RESOURCES),
        3 => ("no resources", RESOURCES),
        4 => (
            "timeout",
            "check that the target answers and that the path is not overloaded",
        ),
        5 => ("unsupported request", VERSIONS),
        6 => ("invalid communication ID", RETRY),
        7 => ("invalid communication instance", RETRY),
        8 => ("invalid service ID", LISTENER),
        9 => ("invalid transport type", VERSIONS),
        10 => (
            "stale connection",
            "the target still holds an old connection; try again in a minute",
        ),
        11 => ("RDC does not exist", VERSIONS),
        12 => ("invalid GID", ADDRESSES),
        13 => ("invalid LID", ADDRESSES),
        14 => ("invalid SL", "check the QoS settings of the subnet manager"),
        15 => (
            "invalid traffic class",
            "check the QoS settings of the subnet manager",
        ),
        16 => ("invalid hop limit", ADDRESSES),
        17 => ("invalid packet rate", "check the link speeds on the path"),
        18 => ("invalid alternate GID", ADDRESSES),
        19 => ("invalid alternate LID", ADDRESSES),
        20 => ("invalid alternate SL", ADDRESSES),
        21 => ("invalid alternate traffic class", ADDRESSES),
        22 => ("invalid alternate hop limit", ADDRESSES),
        23 => ("invalid alternate packet rate", ADDRESSES),
        PORT_CM_REDIRECT => (
            "port and CM redirect",
            "log in at the port that the target redirects to",
        ),
        PORT_REDIRECT => (
            "port redirect",
            "log in at the port that the target redirects to",
        ),
        26 => ("invalid MTU", "check the MTU of both ports"),
        27 => ("insufficient responder resources", RESOURCES),
        CONSUMER_DEFINED => ("refused by the target's SRP layer", "see the target's log"),
        29 => ("invalid RNR retry count", VERSIONS),
        30 => ("duplicate local communication ID", RETRY),
        31 => ("invalid class version", VERSIONS),
        32 => ("invalid flow label", ADDRESSES),
        33 => ("invalid alternate flow label", ADDRESSES),
        35 => ("vendor option not supported", VERSIONS),
        _ => ("unknown reason", "see the target's log"),
    }
}

/// Name, number and advice in one line.
impl fmt::Display for CmRej {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Ib(_) => "reason",
            Self::Errno(_) => "errno",
        };
        write!(
            f,
            "connection rejected: {} ({kind} {}); {}",
            self.name(),
            self.number(),
            self.advice()
        )
    }
}
