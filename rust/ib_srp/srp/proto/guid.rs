// SPDX-License-Identifier: GPL-2.0

//! Identifiers in a login string: GUIDs, GIDs, I/O classes.

use core::fmt;

/// SRP revision that a target's I/O class stands for; it determines the order of the halves of a
/// [`PortId`](super::ids::PortId).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IoClass {
    /// 0xff00: draft revision 10, GUID first.
    Rev10,
    /// 0x0100: revision 16a, extension first.
    #[default]
    Rev16a,
}

impl IoClass {
    /// The class with this number in an I/O controller profile, if SRP defines it.
    pub const fn new(number: u16) -> Option<Self> {
        match number {
            0xff00 => Some(Self::Rev10),
            0x0100 => Some(Self::Rev16a),
            _ => None,
        }
    }
}

/// A 64-bit GUID or identifier extension in host order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Guid(pub u64);

impl Guid {
    /// Whether the GUID has the OUI of Topspin (00:05:ad) or Cisco (00:1b:0d). Their targets
    /// require [`PortId::topspin`](super::ids::PortId::topspin).
    pub const fn wants_topspin_workarounds(self) -> bool {
        matches!(self.0 >> 40, 0x0005ad | 0x001b0d)
    }
}

/// `0x` and 16 hexadecimal digits, as in the attributes of the host.
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
