// SPDX-License-Identifier: GPL-2.0

//! The transfer of a command's data.

use super::super::proto::cmd::Direction;

/// Inputs of the policy. All lengths are in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thresholds {
    /// Negotiated limit of immediate data; 0 for none.
    pub immediate: u32,
    /// Maximum size of a read through the channel's own registered memory; 0 for none.
    pub static_read: u32,
}

/// A way to transfer data. Writes have odd numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DataPath {
    /// There is no data.
    None = 0,
    /// Copied into the message; the target can access no memory.
    Immediate = 1,
    /// Through the slot's part of the channel's registered memory, copied out at completion.
    Static = 2,
    /// Registered for this write and invalidated after it.
    DynamicWrite = 3,
    /// Registered for this read and invalidated after it.
    DynamicRead = 4,
}

impl DataPath {
    /// Number of variants.
    pub const COUNT: usize = 5;

    /// Chooses how to transfer `len` bytes in this direction.
    pub const fn choose(direction: Direction, len: u32, thresholds: Thresholds) -> Self {
        match direction {
            _ if len == 0 => Self::None,
            Direction::None => Self::None,
            Direction::ToDevice if len <= thresholds.immediate => Self::Immediate,
            Direction::FromDevice if len <= thresholds.static_read => Self::Static,
            Direction::ToDevice => Self::DynamicWrite,
            Direction::FromDevice => Self::DynamicRead,
        }
    }

    /// Whether the data is registered for the command.
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Self::DynamicWrite | Self::DynamicRead)
    }

    /// Whether the command transfers data to the device.
    pub const fn is_write(self) -> bool {
        self as u8 & 1 != 0
    }
}
