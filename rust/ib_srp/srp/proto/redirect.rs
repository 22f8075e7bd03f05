// SPDX-License-Identifier: GPL-2.0

//! Redirection of a rejected connection to another port.
//!
//! The additional information of a REJ with reason 24 is a `ClassPortInfo` (`struct
//! ib_class_port_info`, IBTA 13.4.8.1). Topspin and Cisco gateways use reason 25 and send only the
//! GID.

use zerocopy::{
    network_endian::{
        U16,
        U32, //
    },
    FromBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    KnownLayout,
    Unaligned, //
};

use super::{
    guid::Gid,
    reject::{
        PORT_CM_REDIRECT,
        PORT_REDIRECT, //
    },
    texts::texts, //
};

/// `struct ib_class_port_info`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ClassPortInfo {
    versions_and_capabilities: [u8; 8],
    redirect_gid: [u8; 16],
    redirect_tcslfl: U32,
    redirect_lid: U16,
    redirect_pkey: U16,
    redirect_qp: U32,
    redirect_qkey: U32,
    traps: [u8; 32],
}

const _: () = assert!(core::mem::size_of::<ClassPortInfo>() == 72);

/// Maximum number of redirections per login.
pub const MAX_REDIRECTS: u8 = 3;

/// The bits of a P_Key that name the partition.
const PARTITION: u16 = 0x7fff;
/// The bits of a 32-bit field that hold a queue pair number.
const QPN: u32 = 0x00ff_ffff;

/// Where to connect instead.
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
    /// Why a redirection is not followed.
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

    /// Follows the redirection from a port with the GID `from`, in a login that has followed this
    /// many. Returns how many it has followed then.
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
        let (info, _) =
            ClassPortInfo::read_from_prefix(info).map_err(|_| RedirectError::Short {
                need: core::mem::size_of::<ClassPortInfo>(),
                got: info.len(),
            })?;
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
        let (gid, _) = <[u8; 16]>::read_from_prefix(info).map_err(|_| RedirectError::Short {
            need: 16,
            got: info.len(),
        })?;
        Ok(Self {
            gid: Some(unicast(Gid(gid))?.ok_or(RedirectError::Nowhere)?),
            lid: None,
            pkey: None,
            qpn: None,
        })
    }
}

/// Returns the GID, `None` if it is zero, or an error if it is a multicast GID.
fn unicast(gid: Gid) -> Result<Option<Gid>, RedirectError> {
    match gid.0 {
        [0xff, ..] => Err(RedirectError::Multicast),
        bytes if bytes == [0; 16] => Ok(None),
        _ => Ok(Some(gid)),
    }
}
