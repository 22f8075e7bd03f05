// SPDX-License-Identifier: GPL-2.0

//! The target's half of the messages of SRP: what an initiator sends is read, what it gets is written.
//!
//! The driver has structures for its half; here are places of bytes, as T10 SRP r16a has them. So each is the other one's
//! test. All multi-byte fields are big-endian.

use crate::proto::{cmd::DirectBuf, opcode, rsp::flag};

/// Bytes of a command before its additional CDB.
pub const CMD_LEN: usize = 48;
/// Bytes of a task management request.
pub const TSK_MGMT_LEN: usize = 48;
/// Shortest length of messages that an initiator may ask for, in bytes.
pub const MIN_IT_IU_LEN: u32 = 64;

/// A bit of the login's flags: immediate data.
const IMMEDIATE: u8 = 0x80;
/// Bits of the login's flags: what happens to other channels.
const MULTICHANNEL: u8 = 0x03;

/// A message that breaks the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// Shorter than its fields say.
    Short,
    /// Nothing that an initiator sends here.
    Opcode(u8),
    /// Data buffers in a format that there is not, or not there.
    Format(u8),
    /// The parts of an indirect descriptor contradict each other.
    Descriptors,
    /// More requests than credits.
    Credit,
    /// The tag of a command that is still carried out.
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

/// So many bytes from a place on, if there are.
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

/// A login request as it comes by RDMA/CM.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoginReq {
    /// Comes back in the answer.
    pub tag: u64,
    /// Formats of data buffers that the initiator needs, a bit for each.
    pub buf_fmt: u16,
    /// 0: other channels of the session end; 1: they stay; 2 and 3 are reserved.
    pub multichannel: u8,
    /// Longest message that the initiator wants to send, in bytes.
    pub it_iu_len: u32,
    /// Who logs in.
    pub initiator: [u8; 16],
    /// Where.
    pub target: [u8; 16],
    /// Where immediate data begins in a message, if the initiator wants to send some.
    pub immediate: Option<u16>,
}

impl LoginReq {
    /// Reads private data, which may be longer than the 56 bytes of the request.
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

/// What happened to other channels of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Others {
    /// There were none.
    None = 0,
    /// They have been ended.
    Terminated = 1,
    /// They stay.
    Maintained = 2,
}

/// A login response, 52 bytes.
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

/// A refusal, 32 bytes.
pub fn login_rej(tag: u64, reason: u32, buf_fmt: u16) -> Vec<u8> {
    let mut rej = vec![0; 32];
    rej[0] = opcode::LOGIN_REJ;
    rej[4..8].copy_from_slice(&reason.to_be_bytes());
    rej[8..16].copy_from_slice(&tag.to_be_bytes());
    rej[24..26].copy_from_slice(&buf_fmt.to_be_bytes());
    rej
}

/// Buffers of the initiator for one direction of a command's data.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List {
    /// Bytes of all of them.
    pub total: u32,
    /// Where they are.
    pub entries: Vec<DirectBuf>,
    /// A table with them that has to be fetched, as the message does not have them all.
    pub table: Option<DirectBuf>,
}

/// Most bytes of a table that is fetched: 4,096 descriptors.
pub const MAX_TABLE: u32 = 4096 * DirectBuf::LEN as u32;

/// The descriptors of a table, which must have `total` bytes in all.
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

/// The data of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Data {
    /// Where DATA-OUT comes from, if it is not in the message.
    pub out: List,
    /// Where DATA-IN goes to.
    pub into: List,
    /// DATA-OUT in the message: its place and its length in bytes.
    pub immediate: Option<(usize, usize)>,
}

/// A SCSI command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cmd {
    /// Comes back in the response.
    pub tag: u64,
    /// The unit, as it is sent.
    pub lun: [u8; 8],
    /// Task attribute.
    pub attribute: u8,
    /// 16 bytes or more.
    pub cdb: Vec<u8>,
    /// Its data.
    pub data: Data,
}

impl Cmd {
    /// Reads a command that has arrived as a whole. `immediate` is where such data begins, if the login allows it.
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

/// Reads the descriptors of one direction, and goes behind them.
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
    /// Comes back in the response.
    pub tag: u64,
    /// The unit, as it is sent.
    pub lun: [u8; 8],
    /// What to do.
    pub function: u8,
    /// The command that it is about, for ABORT TASK.
    pub task_tag: u64,
}

impl TskMgmt {
    /// Reads a request that has arrived as a whole.
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

/// What was not moved of a direction's data, or was wanted in addition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual {
    /// All as it was.
    #[default]
    None,
    /// So many bytes less than there is room for, or data.
    Under(u32),
    /// So many bytes more.
    Over(u32),
}

impl Residual {
    /// Of `there` bytes `used` are moved or wanted.
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

/// The response to a command.
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

/// The response to a task management request.
pub fn tmf_rsp(credits: i32, tag: u64, code: u8) -> Vec<u8> {
    let mut rsp = rsp(credits, tag);
    rsp[18] = flag::RSPVALID;
    rsp[32..36].copy_from_slice(&4u32.to_be_bytes());
    rsp.extend_from_slice(&[0, 0, 0, code]);
    rsp
}

/// Why the target logs out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Reason {
    /// It ends.
    None = 0,
    /// It got what is no message.
    Invalid = 2,
    /// There is a new login of this initiator.
    NewLogin = 4,
}

/// A logout by the target.
pub fn t_logout(reason: Reason) -> Vec<u8> {
    let mut logout = vec![0; 16];
    logout[0] = opcode::T_LOGOUT;
    logout[4..8].copy_from_slice(&(reason as u32).to_be_bytes());
    logout
}
