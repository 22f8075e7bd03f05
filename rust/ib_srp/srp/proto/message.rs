// SPDX-License-Identifier: GPL-2.0

//! All messages that a target may send on an established channel, and the short ones to it: credit,
//! event and logout messages. `SRP_RSP` is in [`rsp`](super::rsp).

use zerocopy::{
    network_endian::{
        I32,
        U32,
        U64, //
    },
    FromZeros,
    IntoBytes, //
};

use super::{
    ids::Lun,
    message_error::{
        put,
        split,
        wire,
        BuildError,
        ProtocolError, //
    },
    opcode,
    rsp::Rsp, //
};

/// A message from the target.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Answer to a command or task management request.
    Rsp(Rsp<'a>),
    /// A change of the request limit; expects an `SRP_CRED_RSP`.
    CredReq {
        /// Credits granted, or taken back if negative.
        req_lim_delta: i32,
        /// Opaque; the response repeats it.
        tag: u64,
    },
    /// Event report; expects an `SRP_AER_RSP`.
    AerReq(AerReq<'a>),
    /// The target logs out for this reason, see [`logout_reason`], and then responds to nothing.
    TLogout(u32),
}

impl<'a> Message<'a> {
    /// Reads a message. `bytes` must hold what was received. Unknown opcodes, opcodes of a login
    /// and opcodes that only an initiator sends are errors.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ProtocolError> {
        match bytes.first().copied() {
            None => Err(ProtocolError::Short { need: 1, got: 0 }),
            Some(opcode::RSP) => Rsp::parse(bytes).map(Self::Rsp),
            Some(opcode::CRED_REQ) => {
                let (wire, _) = split::<Short>(bytes, opcode::CRED_REQ)?;
                Ok(Self::CredReq {
                    req_lim_delta: i32::from_be_bytes(wire.word.to_bytes()),
                    tag: wire.tag.get(),
                })
            }
            Some(opcode::AER_REQ) => AerReq::parse(bytes).map(Self::AerReq),
            Some(opcode::T_LOGOUT) => {
                let (wire, _) = split::<Short>(bytes, opcode::T_LOGOUT)?;
                Ok(Self::TLogout(wire.word.get()))
            }
            Some(other) => Err(ProtocolError::Opcode(other)),
        }
    }
}

/// Length of a message of [`build_short`], in bytes.
pub const SHORT_LEN: usize = 16;

wire! {
    /// Layout shared by the messages of 16 bytes: `struct srp_cred_req`, `srp_t_logout` and, with a
    /// zero word, `srp_cred_rsp`, `srp_aer_rsp` and `srp_i_logout`.
    struct Short[SHORT_LEN] {
        opcode: u8,
        sol_not: u8,
        reserved: [u8; 2],
        word: U32,
        tag: U64,
    }
}

wire! {
    /// `struct srp_aer_req` without its sense data.
    struct AerReqWire[AerReq::LEN] {
        opcode: u8,
        sol_not: u8,
        reserved1: [u8; 2],
        req_lim_delta: I32,
        tag: U64,
        reserved2: [u8; 4],
        lun: Lun,
        sense_data_len: U32,
        reserved3: [u8; 4],
    }
}

/// The reason of a [`Message::TLogout`] in words.
pub const fn logout_reason(reason: u32) -> &'static str {
    match reason {
        0 => "no reason given",
        1 => "inactive channel",
        2 => "invalid message received",
        3 => "response without credit",
        4 => "channel closed by a new login",
        _ => "unknown reason",
    }
}

/// An event report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AerReq<'a> {
    /// Credits granted, or taken back if negative.
    pub req_lim_delta: i32,
    /// Opaque; the response repeats it.
    pub tag: u64,
    /// Logical unit of the event.
    pub lun: Lun,
    /// Sense data that describes the event.
    pub sense: &'a [u8],
}

impl<'a> AerReq<'a> {
    /// Length of the fixed part in bytes.
    pub const LEN: usize = 36;

    /// Reads an `SRP_AER_REQ`. Fails if the length of the sense data exceeds the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ProtocolError> {
        let (wire, rest) = split::<AerReqWire>(bytes, opcode::AER_REQ)?;
        let claimed = wire.sense_data_len.get();
        let sense = usize::try_from(claimed)
            .ok()
            .and_then(|len| rest.get(..len))
            .ok_or(ProtocolError::Length {
                claimed: u64::from(claimed) + Self::LEN as u64,
                got: bytes.len(),
            })?;
        Ok(Self {
            req_lim_delta: wire.req_lim_delta.get(),
            tag: wire.tag.get(),
            lun: wire.lun,
            sense,
        })
    }
}

/// Writes a message of 16 bytes: the response `SRP_CRED_RSP` or `SRP_AER_RSP` to the request with
/// this tag, or an `SRP_I_LOGOUT`. Returns the length.
pub fn build_short(buf: &mut [u8], opcode: u8, tag: u64) -> Result<usize, BuildError> {
    let wire = Short {
        opcode,
        tag: U64::new(tag),
        ..Short::new_zeroed()
    };
    put(buf, 0, wire.as_bytes())
}
