// SPDX-License-Identifier: GPL-2.0

//! `SRP_RSP`: the response to a command or a task management request.

use zerocopy::{
    network_endian::{
        I32,
        U32,
        U64, //
    },
    FromBytes, //
};

use super::{
    cmd::Direction,
    message_error::{
        split,
        wire,
        ProtocolError, //
    },
    opcode,
    sense::Sense,
    texts::texts,
    tmf::TmfStatus, //
};

/// Maximum length of sense data that is used, in bytes (`SCSI_SENSE_BUFFERSIZE`).
pub const MAX_SENSE_LEN: usize = 96;

/// Bits of [`Rsp::flags`].
pub mod flag {
    /// Response data is valid.
    pub const RSPVALID: u8 = 1 << 0;
    /// Sense data is valid.
    pub const SNSVALID: u8 = 1 << 1;
    /// The command required more DATA-OUT than was provided.
    pub const DOOVER: u8 = 1 << 2;
    /// The command did not use all DATA-OUT.
    pub const DOUNDER: u8 = 1 << 3;
    /// The command had more DATA-IN than fits into the buffer.
    pub const DIOVER: u8 = 1 << 4;
    /// The command did not fill the DATA-IN buffer.
    pub const DIUNDER: u8 = 1 << 5;
}

wire! {
    /// `struct srp_rsp` without its data.
    struct Wire[Rsp::LEN] {
        opcode: u8,
        sol_not: u8,
        reserved1: [u8; 2],
        req_lim_delta: I32,
        tag: U64,
        reserved2: [u8; 2],
        flags: u8,
        status: u8,
        data_out_res_cnt: U32,
        data_in_res_cnt: U32,
        sense_data_len: U32,
        resp_data_len: U32,
    }
}

impl Wire {
    /// Splits the bytes after the fixed part into response and sense data. Without either flag, the
    /// lengths have no meaning.
    fn lists<'a>(&self, rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.flags & (flag::RSPVALID | flag::SNSVALID) == 0 {
            return Some((&[], &[]));
        }
        let response = usize::try_from(self.resp_data_len.get()).ok()?;
        let (response, rest) = rest.split_at_checked(response)?;
        if self.flags & flag::SNSVALID == 0 {
            return Some((response, &[]));
        }
        let sense = usize::try_from(self.sense_data_len.get()).ok()?;
        Some((response, rest.get(..sense)?))
    }
}

/// The usual response: the command has ended with GOOD status, and with all its data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Good {
    /// As [`Rsp::req_lim_delta`].
    pub req_lim_delta: i32,
    /// As [`Rsp::tag`].
    pub tag: u64,
}

impl Good {
    /// Returns `None` for every other message. `bytes` must hold what was received, not the whole
    /// buffer.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (wire, _) = Wire::ref_from_prefix(bytes).ok()?;
        if wire.opcode != opcode::RSP || wire.flags != 0 || wire.status != 0 {
            return None;
        }
        Some(Self {
            req_lim_delta: wire.req_lim_delta.get(),
            tag: wire.tag.get(),
        })
    }
}

/// A response, as far as it can be parsed without knowing the command.
#[derive(Clone, Copy, Debug)]
pub struct Rsp<'a> {
    /// Credits granted, or taken back if negative. Valid even if the rest is malformed.
    pub req_lim_delta: i32,
    /// Tag of the request.
    pub tag: u64,
    /// See [`flag`].
    pub flags: u8,
    /// SCSI status, unchecked; use [`Rsp::outcome`].
    pub status: u8,
    /// DATA-OUT residual in bytes, unchecked.
    pub data_out_res: u32,
    /// DATA-IN residual in bytes, unchecked.
    pub data_in_res: u32,
    /// Response and sense data, or `None` if their length fields exceed the message.
    lists: Option<(&'a [u8], &'a [u8])>,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome<'a> {
    /// A SCSI status that SAM defines.
    pub status: u8,
    /// Number of bytes not transferred, at most the length of the data.
    pub resid: u32,
    /// True if the device had or wanted more data than the command provided for.
    pub overrun: bool,
    /// Sense data, at most [`MAX_SENSE_LEN`] bytes; empty if there is none.
    pub sense: &'a [u8],
}

texts! {
    /// A response that contradicts itself or the command. The command must not be reported as
    /// successful.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RspFault {
        /// The response to a command has a response code: the target did not understand it.
        ResponseCode(code: u8) => "response code {code} for a command";

        /// The response to a command has response data that is too short for a code.
        NoResponseCode => "response data without a code for a command";

        /// The lengths of sense and response data exceed the message.
        Lengths => "sense or response data longer than the message";

        /// Overrun and underrun at once.
        OverAndUnder => "over-run and under-run at once";

        /// A residual for the other direction, or for a command without data.
        WrongDirection => "residual for the wrong direction";

        /// The residual, in bytes, exceeds the length of the data.
        Residual(resid: u32) => "residual of {resid} bytes is more than the data";

        /// A status that SAM does not define.
        Status(status: u8) => "undefined SCSI status {status:#04x}";
    }
}

/// The amount of transferred data, according to a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transferred {
    /// All except [`Outcome::resid`] bytes.
    AllButResid,
    /// An unknown part. The command failed at this block, and the upper layer treats the blocks
    /// before it as done.
    UpTo(u64),
    /// An unknown part, without sense data. The error handler requests the sense data and may then
    /// report success.
    NoSense,
    /// An unknown part.
    Unknown,
}

impl Outcome<'_> {
    /// The amount of data that was transferred. A command that failed without a residual may have
    /// transferred any part of its data, unless the error was recovered.
    pub fn transferred(&self) -> Transferred {
        if self.status == 0 || self.resid > 0 || self.overrun {
            return Transferred::AllButResid;
        }
        if self.status != CHECK_CONDITION {
            return Transferred::Unknown;
        }
        match Sense::parse(self.sense) {
            None => Transferred::NoSense,
            Some(sense) if sense.is_recovered() => Transferred::AllButResid,
            Some(sense) => match sense.bad_block() {
                Some(block) => Transferred::UpTo(block),
                None => Transferred::Unknown,
            },
        }
    }
}

impl<'a> Rsp<'a> {
    /// Length of the fixed part in bytes.
    pub const LEN: usize = 36;

    /// Reads a response. `bytes` must hold what was received, not the whole buffer.
    ///
    /// A message with wrong list lengths is still returned, because its credits count;
    /// [`Rsp::outcome`] and [`Rsp::tmf_status`] then fail.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ProtocolError> {
        let (wire, rest) = split::<Wire>(bytes, opcode::RSP)?;
        Ok(Self {
            req_lim_delta: wire.req_lim_delta.get(),
            tag: wire.tag.get(),
            flags: wire.flags,
            status: wire.status,
            data_out_res: wire.data_out_res_cnt.get(),
            data_in_res: wire.data_in_res_cnt.get(),
            lists: wire.lists(rest),
        })
    }

    /// Sense data, if the target has flagged it as valid; at most [`MAX_SENSE_LEN`] bytes.
    pub fn sense(&self) -> &'a [u8] {
        let (_, sense) = self.lists.unwrap_or_default();
        sense.get(..MAX_SENSE_LEN).unwrap_or(sense)
    }

    /// The status in a response to a task management request.
    pub fn tmf_status(&self) -> TmfStatus {
        TmfStatus(self.response_code())
    }

    /// Returns the outcome of a command with `data_len` bytes of data in this direction.
    ///
    /// On an error, the caller must treat the data as not transferred.
    pub fn outcome(&self, data_len: u32, direction: Direction) -> Result<Outcome<'a>, RspFault> {
        if self.lists.is_none() {
            return Err(RspFault::Lengths);
        }
        if self.has(flag::RSPVALID) {
            let fault = self.response_code().map(RspFault::ResponseCode);
            return Err(fault.unwrap_or(RspFault::NoResponseCode));
        }
        const OUT: u8 = flag::DOOVER | flag::DOUNDER;
        const IN: u8 = flag::DIOVER | flag::DIUNDER;
        const UNDER: u8 = flag::DOUNDER | flag::DIUNDER;
        let (residual, own, other) = match direction {
            Direction::ToDevice => (self.data_out_res, OUT, IN),
            Direction::FromDevice => (self.data_in_res, IN, OUT),
            Direction::None => (0, 0, UNDER),
        };
        if self.has(other) {
            return Err(RspFault::WrongDirection);
        }
        let (overrun, underrun) = (self.has(own & !UNDER), self.has(own & UNDER));
        if overrun && underrun {
            return Err(RspFault::OverAndUnder);
        }
        let resid = if underrun { residual } else { 0 };
        if resid > data_len {
            return Err(RspFault::Residual(resid));
        }
        if !is_sam_status(self.status) {
            return Err(RspFault::Status(self.status));
        }
        Ok(Outcome {
            status: self.status,
            resid,
            overrun,
            sense: self.sense(),
        })
    }

    fn has(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    fn response_code(&self) -> Option<u8> {
        if !self.has(flag::RSPVALID) {
            return None;
        }
        let (response, _) = self.lists?;
        response.get(3).copied()
    }
}

/// The SCSI status that comes with sense data.
const CHECK_CONDITION: u8 = 2;

/// True for the status codes of SAM, including those that later revisions made obsolete.
const fn is_sam_status(status: u8) -> bool {
    matches!(
        status,
        0x00 | 0x02 | 0x04 | 0x08 | 0x10 | 0x14 | 0x18 | 0x22 | 0x28 | 0x30 | 0x40
    )
}
