// SPDX-License-Identifier: GPL-2.0

//! Identifiers on the wire: port identifiers, LUNs.

use core::fmt;

use super::{
    guid::IoClass,
    options::Options, //
};

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// A 16-byte initiator or target port identifier.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct PortId(pub [u8; 16]);

impl PortId {
    /// Builds an identifier from its extension and the GUID of its port or controller.
    pub const fn new(class: IoClass, ext: u64, guid: u64) -> Self {
        let (high, low) = match class {
            IoClass::Rev16a => (ext, guid),
            IoClass::Rev10 => (guid, ext),
        };
        Self(((high as u128) << 64 | low as u128).to_be_bytes())
    }

    /// The first and the last eight bytes, as big-endian numbers.
    pub const fn halves(&self) -> (u64, u64) {
        let all = u128::from_be_bytes(self.0);
        // CAST: The low half.
        ((all >> 64) as u64, all as u64)
    }

    /// The initiator identifier that Topspin and Cisco targets require: eight zero bytes, then the
    /// GUID of the node.
    pub const fn topspin(node_guid: u64) -> Self {
        Self((node_guid as u128).to_be_bytes())
    }
}

impl Options<'_> {
    /// The target's port identifier.
    pub const fn target_port(&self) -> PortId {
        PortId::new(self.io_class, self.id_ext.0, self.ioc_guid.0)
    }

    /// The initiator's port identifier; `interface_id` is the lower half of the local port's GID.
    pub const fn initiator_port(&self, interface_id: u64) -> PortId {
        PortId::new(self.io_class, self.initiator_ext.0, interface_id)
    }
}

/// Sixteen bytes in hex with colons, as the `port_id` attribute of a remote port shows them.
impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// A logical unit number: four 16-bit levels in wire order, `struct scsi_lun`.
#[derive(
    Clone, Copy, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// Converts the LUN of the SCSI midlayer, which has the first level in its lowest 16 bits. Same
    /// result as `int_to_scsilun()`, without a call and a loop per command.
    #[inline]
    pub const fn from_int(lun: u64) -> Self {
        Self(Self::swap_bytes(lun).to_le_bytes())
    }

    /// The number that the SCSI midlayer uses (`scsilun_to_int()`).
    pub const fn to_int(self) -> u64 {
        Self::swap_bytes(u64::from_le_bytes(self.0))
    }

    /// Swaps the two bytes of each level.
    const fn swap_bytes(lun: u64) -> u64 {
        const LOW: u64 = 0x00ff_00ff_00ff_00ff;
        (lun & LOW) << 8 | lun >> 8 & LOW
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", u64::from_be_bytes(self.0))
    }
}
