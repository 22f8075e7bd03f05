// SPDX-License-Identifier: GPL-2.0

//! Tags on the wire: 32 bits of generation, 16 of channel, 16 of slot.
//!
//! A response is accepted only if all 64 bits match the request that the slot holds now. This
//! detects late, repeated, guessed and misrouted responses.

/// Bit of the slot number that is set in task management requests and clear in commands.
const TSK_MGMT: u16 = 1 << 15;

/// Maximum number of command slots per channel.
pub const MAX_SLOTS: u32 = TSK_MGMT as u32;

/// Maximum number of channels per session.
pub const MAX_CHANNELS: u32 = 1 << 16;

/// A tag.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tag(u64);

/// The request that a tag names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The command in this slot.
    Command(u16),
    /// The task management request with this number.
    TskMgmt(u16),
}

impl Tag {
    /// The tag of a command; `None` if `slot` is [`MAX_SLOTS`] or more.
    pub const fn command(generation: u32, channel: u16, slot: u16) -> Option<Self> {
        if slot & TSK_MGMT != 0 {
            return None;
        }
        Some(Self::pack(generation, channel, slot))
    }

    /// The tag of a task management request; `None` if `number` is [`MAX_SLOTS`] or more.
    pub const fn tsk_mgmt(generation: u32, channel: u16, number: u16) -> Option<Self> {
        if number & TSK_MGMT != 0 {
            return None;
        }
        Some(Self::pack(generation, channel, number | TSK_MGMT))
    }

    /// Converts any 64 bits that a target sent.
    pub const fn from_wire(tag: u64) -> Self {
        Self(tag)
    }

    /// The value for the wire.
    pub const fn to_wire(self) -> u64 {
        self.0
    }

    /// The upper 32 bits.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Channel that the request was sent on.
    pub const fn channel(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Command or task management request, and its number.
    pub const fn kind(self) -> Kind {
        let low = self.0 as u16;
        if low & TSK_MGMT == 0 {
            Kind::Command(low)
        } else {
            Kind::TskMgmt(low & !TSK_MGMT)
        }
    }

    const fn pack(generation: u32, channel: u16, low: u16) -> Self {
        Self((generation as u64) << 32 | (channel as u64) << 16 | low as u64)
    }
}
