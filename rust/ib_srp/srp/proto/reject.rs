// SPDX-License-Identifier: GPL-2.0

//! Reasons for a rejected connection or login, and redirections.
//!
//! The additional information of a REJ with reason 24 is a `ClassPortInfo` (`struct
//! ib_class_port_info`, IBTA 13.4.8.1). Topspin and Cisco gateways use reason 25 and send only the
//! GID.

use core::fmt;

use zerocopy::{
    network_endian::{
        U16,
        U32, //
    },
    FromBytes, //
};

use super::{
    guid::Gid,
    message_error::wire,
    texts::texts, //
};

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

/// Reason in [`Reject::Ib`] that redirects to another port, see [`Redirect`].
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
    /// The target port has another identifier.
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
    pub fn from_status(status: i32) -> Self {
        match status {
            ..0 => Self::Errno(status.saturating_neg()),
            0.. => Self::Ib(u16::try_from(status).unwrap_or(u16::MAX)),
        }
    }

    /// Whether the private data may hold an SRP reject reason, which is more specific.
    pub const fn is_consumer_defined(self) -> bool {
        matches!(self, Self::Ib(CONSUMER_DEFINED) | Self::Errno(ECONNREFUSED))
    }

    /// The reason in words, and the advice to an administrator.
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

wire! {
    /// `struct ib_class_port_info`.
    struct ClassPortInfo[72] {
        versions_and_capabilities: [u8; 8],
        redirect_gid: [u8; 16],
        redirect_tcslfl: U32,
        redirect_lid: U16,
        redirect_pkey: U16,
        redirect_qp: U32,
        redirect_qkey: U32,
        traps: [u8; 32],
    }
}

/// Maximum number of redirections per login.
pub const MAX_REDIRECTS: u8 = 3;

/// The bits of a P_Key that name the partition.
const PARTITION: u16 = 0x7fff;
/// The bits of a 32-bit field that hold a queue pair number.
const QPN: u32 = 0x00ff_ffff;

/// The port to connect to instead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// GID of the other port; `None` if only its LID is given.
    pub gid: Option<Gid>,
    /// LID of the other connection manager; `None` if the subnet administrator must be queried.
    pub lid: Option<u16>,
    /// P_Key, if given.
    pub pkey: Option<u16>,
    /// Queue pair number of the other connection manager, if given.
    pub qpn: Option<u32>,
}

texts! {
    /// The reason why a redirection is not followed.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RedirectError {
        /// The additional information is too short.
        Short {
            /// Required length, in bytes.
            need: usize,
            /// Number of bytes received.
            got: usize,
        } => "{got} bytes of redirect information, not {need}";

        /// Neither GID nor LID.
        Nowhere => "neither a GID nor a LID";

        /// A multicast GID.
        Multicast => "to a multicast GID";

        /// A P_Key with partition number 0.
        Partition(pkey: u16) => "to invalid P_Key {pkey:#06x}";

        /// The login has followed [`MAX_REDIRECTS`] already.
        TooMany => "more than {MAX_REDIRECTS} redirects in one login";

        /// To another subnet, with this prefix.
        OtherSubnet(prefix: u64) => "to subnet {prefix:016x}, which is not that of dgid";

        /// To this partition, which our port is not in.
        OtherPartition(pkey: u16) => "to partition {pkey:04x}, which our port is not in";
    }
}

impl Redirect {
    /// Reads the redirection from `info`, the additional information of a REJ with `reason`.
    /// `topspin` is true if the target uses reason 25 for a redirection.
    ///
    /// Returns `None` if the REJ is not a redirection.
    ///
    /// # Errors
    ///
    /// If the redirection cannot be followed.
    pub fn parse(reason: u16, info: &[u8], topspin: bool) -> Option<Result<Self, RedirectError>> {
        match reason {
            PORT_CM_REDIRECT => Some(Self::class_port_info(info)),
            PORT_REDIRECT if topspin => Some(Self::gid(info)),
            _ => None,
        }
    }

    /// Follows the redirection from a port with the GID `from`. `followed` is the number of
    /// redirections that the login has followed so far; the new number is returned.
    ///
    /// # Errors
    ///
    /// [`RedirectError::TooMany`], [`RedirectError::OtherSubnet`]. The login has then failed.
    pub fn follow(&self, from: &Gid, followed: u8) -> Result<u8, RedirectError> {
        if followed >= MAX_REDIRECTS {
            return Err(RedirectError::TooMany);
        }
        match self.gid.map(|gid| gid.subnet_prefix()) {
            Some(prefix) if prefix != from.subnet_prefix() => {
                Err(RedirectError::OtherSubnet(prefix))
            }
            _ => Ok(followed.saturating_add(1)),
        }
    }

    fn class_port_info(info: &[u8]) -> Result<Self, RedirectError> {
        let info = read::<ClassPortInfo>(info)?;
        let gid = unicast(Gid(info.redirect_gid))?;
        let lid = info.redirect_lid.get();
        if gid.is_none() && lid == 0 {
            return Err(RedirectError::Nowhere);
        }
        let pkey = info.redirect_pkey.get();
        if pkey != 0 && pkey & PARTITION == 0 {
            return Err(RedirectError::Partition(pkey));
        }
        let qpn = info.redirect_qp.get() & QPN;
        Ok(Self {
            gid,
            lid: Some(lid).filter(|lid| *lid != 0),
            pkey: Some(pkey).filter(|pkey| *pkey != 0),
            qpn: Some(qpn).filter(|qpn| *qpn != 0),
        })
    }

    fn gid(info: &[u8]) -> Result<Self, RedirectError> {
        Ok(Self {
            gid: Some(unicast(Gid(read(info)?))?.ok_or(RedirectError::Nowhere)?),
            lid: None,
            pkey: None,
            qpn: None,
        })
    }
}

/// Reads the beginning of the additional information.
fn read<T: FromBytes>(info: &[u8]) -> Result<T, RedirectError> {
    let (need, got) = (core::mem::size_of::<T>(), info.len());
    let (value, _) = T::read_from_prefix(info).map_err(|_| RedirectError::Short { need, got })?;
    Ok(value)
}

/// Returns the GID, `None` if it is zero, or an error if it is a multicast GID.
fn unicast(gid: Gid) -> Result<Option<Gid>, RedirectError> {
    match gid.0 {
        [0xff, ..] => Err(RedirectError::Multicast),
        bytes if bytes == [0; 16] => Ok(None),
        _ => Ok(Some(gid)),
    }
}
