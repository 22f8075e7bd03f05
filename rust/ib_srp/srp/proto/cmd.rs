// SPDX-License-Identifier: GPL-2.0

//! `SRP_CMD`: a SCSI command and the location of its data.
//!
//! | data | bytes behind the CDB | length of a message with a 16-byte CDB |
//! |---|---|---|
//! | none | - | 48 |
//! | direct | one [`DirectBuf`] | 64 |
//! | indirect | a [`DirectBuf`] for the table, total length, `n` [`DirectBuf`] | 68 + 16 n |
//! | immediate | length; the data itself from byte 68 on | 68 + data |
//!
//! Builders write every byte of a message and none after it, so no data of an earlier message
//! reaches the wire.

use zerocopy::{
    network_endian::{
        U32,
        U64, //
    },
    FromBytes,
    FromZeros,
    IntoBytes, //
};

use super::{
    ids::Lun,
    message_error::{
        put,
        wire,
        BuildError, //
    },
    opcode, //
};

/// Length of a command without data and with a CDB of up to 16 bytes, in bytes.
pub const CMD_LEN: usize = 48;

/// Length of the part of the CDB in [`CMD_LEN`], in bytes.
pub const BASE_CDB_LEN: usize = 16;

/// Maximum length of a CDB, in bytes.
pub const MAX_CDB_LEN: usize = 32;

/// Offset of immediate data in the message, in bytes: after the longest CDB and the length field.
pub const IMM_DATA_OFFSET: usize = CMD_LEN + (MAX_CDB_LEN - BASE_CDB_LEN) + IMM_BUF_LEN;

/// Length of the immediate data descriptor (`struct srp_imm_buf`), in bytes.
const IMM_BUF_LEN: usize = 4;

const _: () = assert!(IMM_DATA_OFFSET == 68);

wire! {
    /// `struct srp_cmd` up to the additional CDB.
    struct Header[CMD_LEN] {
        opcode: u8,
        sol_not: u8,
        reserved1: [u8; 3],
        buf_fmt: u8,
        data_out_desc_cnt: u8,
        data_in_desc_cnt: u8,
        tag: U64,
        reserved2: [u8; 4],
        lun: Lun,
        reserved3: u8,
        task_attr: u8,
        reserved4: u8,
        add_cdb_len: u8,
        cdb: [u8; BASE_CDB_LEN],
    }

    /// A command with a CDB of up to 16 bytes and one data buffer.
    struct Direct[64] {
        header: Header,
        data: DirectBuf,
    }

    /// A command with a CDB of up to 16 bytes, followed by immediate data.
    struct Immediate[IMM_DATA_OFFSET] {
        header: Header,
        len: U32,
        padding: [u8; MAX_CDB_LEN - BASE_CDB_LEN],
    }
}

wire! {
    /// Memory that the target may access: `struct srp_direct_buf`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct DirectBuf[DirectBuf::LEN] {
        va: U64,
        key: U32,
        len: U32,
    }
}

impl DirectBuf {
    /// Length of one descriptor in bytes.
    pub const LEN: usize = 16;

    /// `va` is the RDMA address, `key` the rkey, `len` the length in bytes.
    pub const fn new(va: u64, key: u32, len: u32) -> Self {
        Self {
            va: U64::from_bytes(va.to_be_bytes()),
            key: U32::from_bytes(key.to_be_bytes()),
            len: U32::from_bytes(len.to_be_bytes()),
        }
    }

    /// RDMA address.
    pub const fn va(&self) -> u64 {
        u64::from_be_bytes(self.va.to_bytes())
    }

    /// The rkey.
    pub const fn key(&self) -> u32 {
        u32::from_be_bytes(self.key.to_bytes())
    }

    /// Length in bytes.
    pub const fn len(&self) -> u32 {
        u32::from_be_bytes(self.len.to_bytes())
    }

    /// Whether the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Direction of the data of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// No data.
    None,
    /// A write: DATA-OUT.
    ToDevice,
    /// A read: DATA-IN.
    FromDevice,
}

/// Values of the two nibbles of `buf_fmt`.
const FMT_DIRECT: u8 = 1;
const FMT_INDIRECT: u8 = 2;
const FMT_IMMEDIATE: u8 = 3;

/// A SCSI command, without its data.
#[derive(Clone, Copy, Debug)]
pub struct Cmd<'a> {
    /// Tag; the response repeats it.
    pub tag: u64,
    /// Logical unit.
    pub lun: Lun,
    /// CDB of 1 to [`MAX_CDB_LEN`] bytes; padded with zeros to 16 bytes or, if longer, to a
    /// multiple of 4.
    pub cdb: &'a [u8],
}

impl Cmd<'_> {
    /// Writes a command without data; returns its length in bytes.
    pub fn build(&self, iu: &mut [u8]) -> Result<usize, BuildError> {
        self.head(iu, 0, Direction::None, 0)
    }

    /// Writes a command with the one data buffer `data`; returns its length in bytes.
    #[inline(always)]
    pub fn build_direct(
        &self,
        iu: &mut [u8],
        direction: Direction,
        data: &DirectBuf,
    ) -> Result<usize, BuildError> {
        // Fast path: short CDB, written as one structure.
        if let (Some(cdb), Ok((place, _))) = (self.short(), Direct::mut_from_prefix(iu)) {
            *place = Direct {
                header: self.header(FMT_DIRECT, direction, 0, cdb, 0)?,
                data: *data,
            };
            return Ok(core::mem::size_of::<Direct>());
        }
        self.build_long(iu, FMT_DIRECT, direction, data.as_bytes())
    }

    /// Writes a command with a list of data buffers; returns its length in bytes.
    ///
    /// `table` describes the whole list in memory, `total` is the sum of the lengths in it, in
    /// bytes, `list` holds its first 1 to 255 entries. If `list` is complete, the
    /// target need not fetch the table, and LIO never does.
    pub fn build_indirect(
        &self,
        iu: &mut [u8],
        direction: Direction,
        table: &DirectBuf,
        total: u32,
        list: &[DirectBuf],
    ) -> Result<usize, BuildError> {
        let count = u8::try_from(list.len()).ok().filter(|&count| count > 0);
        let count = count.ok_or(BuildError::Descriptors(list.len()))?;
        let len = self.head(iu, FMT_INDIRECT, direction, count)?;
        let len = put(iu, len, table.as_bytes())?;
        let len = put(iu, len, U32::new(total).as_bytes())?;
        put(iu, len, list.as_bytes())
    }

    /// Writes a write command, to be followed by `len` bytes of immediate data. Returns the length
    /// without the data, which is [`IMM_DATA_OFFSET`].
    #[inline(always)]
    pub fn build_immediate(&self, iu: &mut [u8], len: u32) -> Result<usize, BuildError> {
        if let (Some(cdb), Ok((place, _))) = (self.short(), Immediate::mut_from_prefix(iu)) {
            *place = Immediate {
                header: self.header(FMT_IMMEDIATE, Direction::ToDevice, 0, cdb, 0)?,
                len: U32::new(len),
                padding: [0; MAX_CDB_LEN - BASE_CDB_LEN],
            };
            return Ok(IMM_DATA_OFFSET);
        }
        let (need, have) = (IMM_DATA_OFFSET, iu.len());
        let iu = iu
            .get_mut(..need)
            .ok_or(BuildError::NoSpace { need, have })?;
        iu.fill(0);
        let len = U32::new(len);
        self.build_long(iu, FMT_IMMEDIATE, Direction::ToDevice, len.as_bytes())?;
        Ok(need)
    }

    /// Writes a command of any CDB, and `data` behind it.
    #[cold]
    #[inline(never)]
    fn build_long(
        &self,
        iu: &mut [u8],
        format: u8,
        direction: Direction,
        data: &[u8],
    ) -> Result<usize, BuildError> {
        let len = self.head(iu, format, direction, 0)?;
        put(iu, len, data)
    }

    /// Writes the fixed part and the CDB, however long; returns the length in bytes.
    fn head(
        &self,
        iu: &mut [u8],
        format: u8,
        direction: Direction,
        count: u8,
    ) -> Result<usize, BuildError> {
        let bad_cdb = BuildError::Cdb(self.cdb.len());
        if self.cdb.is_empty() || self.cdb.len() > MAX_CDB_LEN {
            return Err(bad_cdb);
        }
        let mut cdb = [0; MAX_CDB_LEN];
        for (to, from) in cdb.iter_mut().zip(self.cdb) {
            *to = *from;
        }
        let (base, additional) = cdb.split_first_chunk().ok_or(bad_cdb)?;
        let more = self.cdb.len().saturating_sub(BASE_CDB_LEN);
        let more = more.next_multiple_of(4);
        let additional = additional.get(..more).ok_or(bad_cdb)?;
        // CAST: At most 16.
        let header = self.header(format, direction, count, *base, more as u8)?;
        let len = put(iu, 0, header.as_bytes())?;
        put(iu, len, additional)
    }

    /// The CDB padded with zeros, if it has 8 to [`BASE_CDB_LEN`] bytes, as nearly all do.
    #[inline(always)]
    fn short(&self) -> Option<[u8; BASE_CDB_LEN]> {
        let first = self.cdb.first_chunk::<8>()?;
        let last = self.cdb.last_chunk::<8>()?;
        let missing = BASE_CDB_LEN.checked_sub(self.cdb.len())? as u32;
        let low = u64::from_le_bytes(*first);
        // Drop the bytes of `last` that are in `first` as well.
        let high = u64::from_le_bytes(*last).checked_shr(8 * missing);
        Some((u128::from(low) | u128::from(high.unwrap_or(0)) << 64).to_le_bytes())
    }

    #[inline(always)]
    fn header(
        &self,
        format: u8,
        direction: Direction,
        count: u8,
        cdb: [u8; BASE_CDB_LEN],
        add_cdb_len: u8,
    ) -> Result<Header, BuildError> {
        let (buf_fmt, data_out_desc_cnt, data_in_desc_cnt) = match direction {
            Direction::None if format == 0 => (0, 0, 0),
            Direction::None => return Err(BuildError::Data),
            Direction::ToDevice => (format << 4, count, 0),
            Direction::FromDevice => (format, 0, count),
        };
        Ok(Header {
            opcode: opcode::CMD,
            buf_fmt,
            data_out_desc_cnt,
            data_in_desc_cnt,
            tag: U64::new(self.tag),
            lun: self.lun,
            add_cdb_len,
            cdb,
            ..Header::new_zeroed()
        })
    }
}
