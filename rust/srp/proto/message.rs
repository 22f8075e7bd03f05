// SPDX-License-Identifier: GPL-2.0

//! All messages that a target may send on an established channel.

use super::{
    message_error::ProtocolError,
    misc::{
        AerReq,
        CredReq,
        TLogout, //
    },
    opcode,
    rsp::Rsp, //
};

/// A message from the target.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Answer to a command or task management request.
    Rsp(Rsp<'a>),
    /// Credit change; expects a response.
    CredReq(CredReq),
    /// Event report; expects a response.
    AerReq(AerReq<'a>),
    /// The target logs out.
    TLogout(TLogout),
}

impl<'a> Message<'a> {
    /// Reads a message. `bytes` must hold what was received. Unknown opcodes, opcodes of a login
    /// and opcodes that only an initiator sends are errors.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ProtocolError> {
        match bytes.first().copied() {
            None => Err(ProtocolError::Short { need: 1, got: 0 }),
            Some(opcode::RSP) => Rsp::parse(bytes).map(Self::Rsp),
            Some(opcode::CRED_REQ) => CredReq::parse(bytes).map(Self::CredReq),
            Some(opcode::AER_REQ) => AerReq::parse(bytes).map(Self::AerReq),
            Some(opcode::T_LOGOUT) => TLogout::parse(bytes).map(Self::TLogout),
            Some(other) => Err(ProtocolError::Opcode(other)),
        }
    }
}
