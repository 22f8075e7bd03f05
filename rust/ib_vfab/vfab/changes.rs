// SPDX-License-Identifier: GPL-2.0

//! Changes at a port, caused by a subnet manager or a cable.

/// A set of changes at one port, for `enum ib_event_type`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Port number.
    pub port: u8,
    bits: u8,
}

impl Changes {
    /// The LID of the port has changed.
    pub const LID: u8 = 1 << 0;
    /// The LID or service level of the subnet manager has changed.
    pub const SM: u8 = 1 << 1;
    /// The P_Key table has changed.
    pub const PKEY: u8 = 1 << 2;
    /// The subnet prefix or a GUID has changed.
    pub const GID: u8 = 1 << 3;
    /// The port has become ACTIVE.
    pub const ACTIVE: u8 = 1 << 4;
    /// The port has left ACTIVE.
    pub const ERROR: u8 = 1 << 5;
    /// The subnet manager asks clients to renew all subscriptions and group memberships.
    pub const REREGISTER: u8 = 1 << 6;
    /// The link must go down, and up again if both ends train.
    pub const LINK: u8 = 1 << 7;

    /// No changes at `port`.
    pub const fn none(port: u8) -> Self {
        Self { port, bits: 0 }
    }

    /// Adds `bits` if `so`.
    pub fn add(&mut self, bits: u8, so: bool) {
        if so {
            self.bits |= bits;
        }
    }

    /// Whether any of `bits` is set.
    pub const fn has(self, bits: u8) -> bool {
        self.bits & bits != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }
}
