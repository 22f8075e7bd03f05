// SPDX-License-Identifier: GPL-2.0

//! Everything that a target may send on an established channel.

use super::{
    error::ProtocolError,
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
    /// Credit change; expects an answer.
    CredReq(CredReq),
    /// Event report; expects an answer.
    AerReq(AerReq<'a>),
    /// The target logs out.
    TLogout(TLogout),
}

impl<'a> Message<'a> {
    /// Reads the message in `bytes`, which must be exactly what arrived. Unknown opcodes, those of
    /// a login and those that only an initiator sends are errors.
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
