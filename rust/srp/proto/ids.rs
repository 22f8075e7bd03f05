// SPDX-License-Identifier: GPL-2.0

//! Names of ports and units: port identifiers, GUIDs, GIDs, LUNs.

use core::fmt;

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Revision of the protocol that a target's I/O class stands for; it decides the order of the
/// halves of a [`PortId`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IoClass {
    /// 0xff00: draft revision 10, GUID first.
    Rev10,
    /// 0x0100: revision 16a, extension first.
    #[default]
    Rev16a,
}

impl IoClass {
    /// The class with this number, if SRP defines it.
    pub const fn new(number: u16) -> Option<Self> {
        match number {
            0xff00 => Some(Self::Rev10),
            0x0100 => Some(Self::Rev16a),
            _ => None,
        }
    }

    /// The number as in an I/O controller profile.
    pub const fn number(self) -> u16 {
        match self {
            Self::Rev10 => 0xff00,
            Self::Rev16a => 0x0100,
        }
    }
}

/// A 16-byte initiator or target port identifier.
#[derive(
    Clone, Copy, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct PortId(pub [u8; 16]);

impl PortId {
    /// Puts an identifier together from its extension and the GUID of its port or controller.
    pub const fn new(class: IoClass, ext: u64, guid: u64) -> Self {
        let (high, low) = match class {
            IoClass::Rev16a => (ext, guid),
            IoClass::Rev10 => (guid, ext),
        };
        Self(((high as u128) << 64 | low as u128).to_be_bytes())
    }

    /// Its first and last eight bytes, as numbers.
    pub const fn halves(&self) -> (u64, u64) {
        let all = u128::from_be_bytes(self.0);
        // CAST: The low half.
        ((all >> 64) as u64, all as u64)
    }

    /// The initiator identifier that Topspin and Cisco targets want: eight zero bytes, then the
    /// GUID of the node.
    pub const fn topspin(node_guid: u64) -> Self {
        Self((node_guid as u128).to_be_bytes())
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

impl fmt::Debug for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A 64-bit GUID or identifier extension in host order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Guid(pub u64);

impl Guid {
    /// True for a controller with the organisation number of Topspin (00:05:ad) or Cisco
    /// (00:1b:0d), whose targets want [`PortId::topspin`].
    pub const fn wants_topspin_workarounds(self) -> bool {
        matches!(self.0 >> 40, 0x0005ad | 0x001b0d)
    }
}

/// `0x` and 16 digits, as the host's attributes show it.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// A 128-bit GID, in wire order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The lower half: the GUID of the port, in host order.
    pub const fn interface_id(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// The upper half: the subnet prefix, in host order.
    pub const fn subnet_prefix(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }
}

/// Eight groups of four digits, never compressed (`%pI6`).
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.0.chunks_exact(2).enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            if let [high, low] = group {
                write!(f, "{colon}{high:02x}{low:02x}")?;
            }
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
    /// From the number that the SCSI midlayer uses, whose lowest 16 bits are the first level
    /// (`int_to_scsilun()`).
    pub const fn from_int(lun: u64) -> Self {
        Self(Self::swap_levels(lun).to_be_bytes())
    }

    /// The number that the SCSI midlayer uses (`scsilun_to_int()`).
    pub const fn to_int(self) -> u64 {
        Self::swap_levels(u64::from_be_bytes(self.0))
    }

    const fn swap_levels(lun: u64) -> u64 {
        (lun & 0xffff) << 48 | (lun & 0xffff_0000) << 16 | (lun >> 16) & 0xffff_0000 | lun >> 48
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", u64::from_be_bytes(self.0))
    }
}
