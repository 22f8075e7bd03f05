// SPDX-License-Identifier: GPL-2.0

//! The target's half of the SRP messages: parses requests and builds responses.
//!
//! The driver uses structures for its half. This module uses byte offsets from T10 SRP r16a, so
//! each half tests the other. All multi-byte fields are big-endian.

use crate::proto::{cmd::DirectBuf, opcode, reject::Reject, rsp::flag};

/// Length of a command without additional CDB, in bytes.
pub const CMD_LEN: usize = 48;
/// Length of a task management request, in bytes.
pub const TSK_MGMT_LEN: usize = 48;
/// Lowest maximum request length that an initiator may ask for, in bytes.
pub const MIN_IT_IU_LEN: u32 = 64;

/// Bit of the login flags: immediate data.
const IMMEDIATE: u8 = 0x80;
/// Bits of the login flags: MULTICHANNEL ACTION.
const MULTICHANNEL: u8 = 0x03;

/// A protocol violation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// The message is shorter than its fields claim.
    Short,
    /// Not a request of an initiator.
    Opcode(u8),
    /// A data buffer format that is unsupported, or not permitted here.
    Format(u8),
    /// The parts of an indirect descriptor are inconsistent.
    Descriptors,
    /// A request without credit.
    Credit,
    /// The tag of a command that is still in flight.
    Tag(u64),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("message is too short for what it says"),
            Self::Opcode(code) => write!(f, "unexpected opcode {code:#04x}"),
            Self::Format(format) => write!(f, "data buffer format {format:#x}"),
            Self::Descriptors => f.write_str("descriptors contradict each other"),
            Self::Credit => f.write_str("a request without a credit"),
            Self::Tag(tag) => write!(f, "tag {tag:#x} is in use"),
        }
    }
}

/// Reads `N` bytes at offset `at`.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Broken> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().ok_or(Broken::Short)
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, Broken> {
    field(bytes, at).map(u16::from_be_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, Broken> {
    field(bytes, at).map(u32::from_be_bytes)
}

fn be64(bytes: &[u8], at: usize) -> Result<u64, Broken> {
    field(bytes, at).map(u64::from_be_bytes)
}

/// A login request, from the private data of a connection request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginReq {
    /// Tag of the login and its response.
    pub tag: u64,
    /// Required data buffer formats, a bitmask.
    pub buf_fmt: u16,
    /// 0: terminate the other channels of the session; 1: keep them; 2 and 3 are reserved.
    pub multichannel: u8,
    /// Maximum request length in bytes.
    pub it_iu_len: u32,
    /// Initiator port identifier.
    pub initiator: [u8; 16],
    /// Target port identifier.
    pub target: [u8; 16],
    /// Offset of immediate data in a message, if requested.
    pub immediate: Option<u16>,
}

impl LoginReq {
    /// Parses private data, which may be longer than the 56 bytes of the request.
    pub fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        let [flags, code] = field(bytes, 10)?;
        if code != opcode::LOGIN_REQ {
            return Err(Broken::Opcode(code));
        }
        let offset = be16(bytes, 48)?;
        field::<6>(bytes, 50)?;
        Ok(Self {
            tag: be64(bytes, 0)?,
            buf_fmt: be16(bytes, 8)?,
            multichannel: flags & MULTICHANNEL,
            it_iu_len: be32(bytes, 12)?,
            initiator: field(bytes, 16)?,
            target: field(bytes, 32)?,
            immediate: (flags & IMMEDIATE != 0).then_some(offset),
        })
    }
}

/// MULTICHANNEL RESULT: what happened to the other channels of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Others {
    /// There were no other channels.
    None = 0,
    /// The other channels were terminated.
    Terminated = 1,
    /// The other channels were kept.
    Maintained = 2,
}

/// Builds a login response, 52 bytes.
pub fn login_rsp(
    tag: u64,
    credits: u32,
    it_iu_len: u32,
    ti_iu_len: u32,
    buf_fmt: u16,
    others: Others,
    immediate: bool,
) -> Vec<u8> {
    let mut rsp = vec![0; 52];
    rsp[0] = opcode::LOGIN_RSP;
    rsp[4..8].copy_from_slice(&credits.to_be_bytes());
    rsp[8..16].copy_from_slice(&tag.to_be_bytes());
    rsp[16..20].copy_from_slice(&it_iu_len.to_be_bytes());
    rsp[20..24].copy_from_slice(&ti_iu_len.to_be_bytes());
    rsp[24..26].copy_from_slice(&buf_fmt.to_be_bytes());
    rsp[26] = others as u8 | if immediate { IMMEDIATE } else { 0 };
    rsp
}

/// Builds a login reject, 32 bytes. A reason that is not SRP's becomes "unable to establish the
/// channel".
pub fn login_rej(tag: u64, reason: Reject, buf_fmt: u16) -> Vec<u8> {
    let reason = match reason {
        Reject::Srp(reason) => reason,
        Reject::Ib(_) | Reject::Errno(_) => 0x0001_0000,
    };
    let mut rej = vec![0; 32];
    rej[0] = opcode::LOGIN_REJ;
    rej[4..8].copy_from_slice(&reason.to_be_bytes());
    rej[8..16].copy_from_slice(&tag.to_be_bytes());
    rej[24..26].copy_from_slice(&buf_fmt.to_be_bytes());
    rej
}

/// The initiator's buffers for one direction of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List {
    /// Total length of the buffers, in bytes.
    pub total: u32,
    /// The descriptors.
    pub entries: Vec<DirectBuf>,
    /// The descriptor table to fetch, if the message does not contain all descriptors.
    pub table: Option<DirectBuf>,
}

/// Maximum length of a fetched table, in bytes: 4,096 descriptors.
pub const MAX_TABLE: u32 = 4096 * DirectBuf::LEN as u32;

/// Parses a descriptor table. The lengths must add up to `total` bytes.
pub fn entries(table: &[u8], total: u32) -> Result<Vec<DirectBuf>, Broken> {
    let list: Vec<_> = table.chunks_exact(DirectBuf::LEN).map(descriptor).collect();
    let sum: u64 = list.iter().map(|d| u64::from(d.len())).sum();
    if sum != u64::from(total) || table.len() % DirectBuf::LEN != 0 {
        return Err(Broken::Descriptors);
    }
    Ok(list)
}

fn descriptor(bytes: &[u8]) -> DirectBuf {
    let all = u128::from_be_bytes(bytes.try_into().unwrap_or_default());
    DirectBuf::new((all >> 64) as u64, (all >> 32) as u32, all as u32)
}

/// Data buffers of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Data {
    /// Source of DATA-OUT, unless it is immediate data.
    pub out: List,
    /// Destination of DATA-IN.
    pub into: List,
    /// Immediate data: offset in the message and length, in bytes.
    pub immediate: Option<(usize, usize)>,
}

/// A SCSI command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cmd {
    /// Tag of the command and its response.
    pub tag: u64,
    /// The LUN as sent.
    pub lun: [u8; 8],
    /// Task attribute.
    pub attribute: u8,
    /// The CDB, 16 bytes or more.
    pub cdb: Vec<u8>,
    /// The data buffers.
    pub data: Data,
}

impl Cmd {
    /// Parses a complete command. `immediate` is the offset of immediate data, if the login granted
    /// it.
    pub fn parse(bytes: &[u8], immediate: Option<u16>) -> Result<Self, Broken> {
        let [format, outs, ins] = field(bytes, 5)?;
        let [attribute, _, additional] = field(bytes, 29)?;
        let end = CMD_LEN + usize::from(additional & !3);
        let cdb = bytes.get(32..end).ok_or(Broken::Short)?.to_vec();
        let mut rest = bytes.get(end..).ok_or(Broken::Short)?;
        let mut data = Data::default();
        if format >> 4 == 3 {
            let start = usize::from(immediate.ok_or(Broken::Format(3))?);
            let len = be32(rest, 0)? as usize;
            rest = &rest[4..];
            let last = start.checked_add(len).ok_or(Broken::Short)?;
            if start < end + 4 || last > bytes.len() {
                return Err(Broken::Short);
            }
            data.immediate = Some((start, len));
        } else {
            data.out = list(format >> 4, outs, &mut rest)?;
        }
        data.into = list(format & 15, ins, &mut rest)?;
        Ok(Self {
            tag: be64(bytes, 8)?,
            lun: field(bytes, 20)?,
            attribute: attribute & 7,
            cdb,
            data,
        })
    }
}

/// Parses the descriptors of one direction and advances `rest` past them.
fn list(format: u8, count: u8, rest: &mut &[u8]) -> Result<List, Broken> {
    let mut take = |len: usize| {
        let (taken, behind) = rest.split_at_checked(len).ok_or(Broken::Short)?;
        *rest = behind;
        Ok(taken)
    };
    match format {
        0 => Ok(List::default()),
        1 => {
            let one = descriptor(take(DirectBuf::LEN)?);
            Ok(List {
                total: one.len(),
                entries: vec![one],
                table: None,
            })
        }
        2 => {
            let table = descriptor(take(DirectBuf::LEN)?);
            let total = be32(take(4)?, 0)?;
            let here = take(usize::from(count) * DirectBuf::LEN)?;
            let len = table.len();
            if len as usize % DirectBuf::LEN != 0 || len > MAX_TABLE || here.len() > len as usize {
                return Err(Broken::Descriptors);
            }
            let complete = here.len() == len as usize;
            Ok(List {
                total,
                entries: if complete {
                    entries(here, total)?
                } else {
                    Vec::new()
                },
                table: (!complete).then_some(table),
            })
        }
        other => Err(Broken::Format(other)),
    }
}

/// A task management request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TskMgmt {
    /// Tag of the request and its response.
    pub tag: u64,
    /// The LUN as sent.
    pub lun: [u8; 8],
    /// Task management function.
    pub function: u8,
    /// The tag of the command for ABORT TASK.
    pub task_tag: u64,
}

impl TskMgmt {
    /// Parses a complete request.
    pub fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        field::<TSK_MGMT_LEN>(bytes, 0)?;
        let [function] = field(bytes, 30)?;
        Ok(Self {
            tag: be64(bytes, 8)?,
            lun: field(bytes, 20)?,
            function,
            task_tag: be64(bytes, 32)?,
        })
    }
}

/// The residual count of one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual {
    /// No residual.
    #[default]
    None,
    /// Number of unused bytes of the buffer.
    Under(u32),
    /// Number of bytes by which the buffer is too short.
    Over(u32),
}

impl Residual {
    /// Returns the residual of a transfer that needs `used` bytes of a buffer of `there` bytes.
    pub fn new(there: u32, used: u32) -> Self {
        match used.cmp(&there) {
            std::cmp::Ordering::Less => Self::Under(there - used),
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::Over(used - there),
        }
    }

    fn put(self, rsp: &mut [u8], at: usize, over: u8, under: u8) {
        let (bit, n) = match self {
            Self::None => return,
            Self::Under(n) => (under, n),
            Self::Over(n) => (over, n),
        };
        rsp[18] |= bit;
        rsp[at..at + 4].copy_from_slice(&n.to_be_bytes());
    }
}

fn rsp(credits: i32, tag: u64) -> Vec<u8> {
    let mut rsp = vec![0; 36];
    rsp[0] = opcode::RSP;
    rsp[4..8].copy_from_slice(&credits.to_be_bytes());
    rsp[8..16].copy_from_slice(&tag.to_be_bytes());
    rsp
}

/// Builds the response to a command.
pub fn cmd_rsp(
    credits: i32,
    tag: u64,
    status: u8,
    out: Residual,
    into: Residual,
    sense: &[u8],
) -> Vec<u8> {
    let mut rsp = rsp(credits, tag);
    rsp[19] = status;
    out.put(&mut rsp, 20, flag::DOOVER, flag::DOUNDER);
    into.put(&mut rsp, 24, flag::DIOVER, flag::DIUNDER);
    if !sense.is_empty() {
        rsp[18] |= flag::SNSVALID;
        rsp[28..32].copy_from_slice(&(sense.len() as u32).to_be_bytes());
        rsp.extend_from_slice(sense);
    }
    rsp
}

/// Builds the response to a task management request.
pub fn tmf_rsp(credits: i32, tag: u64, code: u8) -> Vec<u8> {
    let mut rsp = rsp(credits, tag);
    rsp[18] = flag::RSPVALID;
    rsp[32..36].copy_from_slice(&4u32.to_be_bytes());
    rsp.extend_from_slice(&[0, 0, 0, code]);
    rsp
}

/// Reason of a target logout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Reason {
    /// The target is shutting down.
    None = 0,
    /// The target has received an invalid message.
    Invalid = 2,
    /// The initiator has logged in again.
    NewLogin = 4,
}

/// Builds an `SRP_T_LOGOUT`.
pub fn t_logout(reason: Reason) -> Vec<u8> {
    let mut logout = vec![0; 16];
    logout[0] = opcode::T_LOGOUT;
    logout[4..8].copy_from_slice(&(reason as u32).to_be_bytes());
    logout
}
