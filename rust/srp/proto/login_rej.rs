// SPDX-License-Identifier: GPL-2.0

//! `SRP_LOGIN_REJ`: why a target refuses a login.

use core::fmt;

use zerocopy::{
    network_endian::{
        U16,
        U32,
        U64, //
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
    message_error::{
        expect,
        ProtocolError, //
    },
    opcode, //
};

/// `struct srp_login_rej`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    opcode: u8,
    reserved1: [u8; 3],
    reason: U32,
    tag: U64,
    reserved2: [u8; 8],
    buf_fmt: U16,
    reserved3: [u8; 6],
}

const _: () = assert!(core::mem::size_of::<Wire>() == LoginRej::LEN);

/// A refused login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginRej {
    /// Why the target refuses.
    pub reason: RejReason,
    /// Tag of the login request.
    pub tag: u64,
    /// Buffer formats that the target supports; meaningful with
    /// [`RejReason::UnsupportedDescriptorFormat`].
    pub buf_fmt: u16,
}

impl LoginRej {
    /// Length of the message in bytes.
    pub const LEN: usize = 32;

    /// Reads a refusal from private data, which may be longer.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtocolError> {
        expect(bytes, opcode::LOGIN_REJ, Self::LEN)?;
        let (wire, _) =
            Wire::read_from_prefix(bytes).map_err(|_| ProtocolError::Opcode(opcode::LOGIN_REJ))?;
        Ok(Self {
            reason: RejReason::new(wire.reason.get()),
            tag: wire.tag.get(),
            buf_fmt: wire.buf_fmt.get(),
        })
    }
}

/// Reason of a [`LoginRej`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejReason {
    /// 0x00010000.
    UnableEstablishChannel,
    /// 0x00010001.
    InsufficientResources,
    /// 0x00010002.
    ReqItIuLengthTooLarge,
    /// 0x00010003.
    UnableAssociateChannel,
    /// 0x00010004.
    UnsupportedDescriptorFormat,
    /// 0x00010005.
    MultiChannelUnsupported,
    /// 0x00010006.
    ChannelLimitReached,
    /// A number that SRP does not define.
    Unknown(u32),
}

impl RejReason {
    /// Converts the `reason` field.
    pub const fn new(number: u32) -> Self {
        match number {
            0x0001_0000 => Self::UnableEstablishChannel,
            0x0001_0001 => Self::InsufficientResources,
            0x0001_0002 => Self::ReqItIuLengthTooLarge,
            0x0001_0003 => Self::UnableAssociateChannel,
            0x0001_0004 => Self::UnsupportedDescriptorFormat,
            0x0001_0005 => Self::MultiChannelUnsupported,
            0x0001_0006 => Self::ChannelLimitReached,
            other => Self::Unknown(other),
        }
    }

    /// The `reason` field.
    pub const fn number(self) -> u32 {
        match self {
            Self::UnableEstablishChannel => 0x0001_0000,
            Self::InsufficientResources => 0x0001_0001,
            Self::ReqItIuLengthTooLarge => 0x0001_0002,
            Self::UnableAssociateChannel => 0x0001_0003,
            Self::UnsupportedDescriptorFormat => 0x0001_0004,
            Self::MultiChannelUnsupported => 0x0001_0005,
            Self::ChannelLimitReached => 0x0001_0006,
            Self::Unknown(number) => number,
        }
    }

    /// The reason in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnableEstablishChannel => "unable to establish the channel",
            Self::InsufficientResources => "insufficient resources",
            Self::ReqItIuLengthTooLarge => "requested message length too large",
            Self::UnableAssociateChannel => "unable to associate the channel with an I_T nexus",
            Self::UnsupportedDescriptorFormat => "unsupported data buffer descriptor format",
            Self::MultiChannelUnsupported => "multiple channels not supported",
            Self::ChannelLimitReached => "channel limit reached or initiator not allowed",
            Self::Unknown(_) => "unknown reason",
        }
    }

    /// What an administrator should check.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::UnableEstablishChannel => "see the target's log",
            Self::InsufficientResources => {
                "check that the target port is enabled and has memory and QPs left"
            }
            Self::ReqItIuLengthTooLarge => {
                "set max_it_iu_size to the target's limit, or lower cmd_sg_entries and max_imm_data"
            }
            Self::UnableAssociateChannel => {
                "check id_ext and ioc_guid against the target's service GUID"
            }
            Self::UnsupportedDescriptorFormat => {
                "the target lacks direct or indirect buffers and cannot be used"
            }
            Self::MultiChannelUnsupported => "set ch_count=1",
            Self::ChannelLimitReached => {
                "check that the target's ACL has this initiator's port, and lower ch_count"
            }
            Self::Unknown(_) => "see the target's log",
        }
    }
}

/// Name, number and advice in one line.
impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SRP login rejected: {} ({:#010x}); {}",
            self.name(),
            self.number(),
            self.advice()
        )
    }
}
