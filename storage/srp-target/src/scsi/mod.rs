// SPDX-License-Identifier: GPL-2.0

//! The commands of a disk: T10 SPC-4 and SBC-3.
//!
//! [`parse`] checks a CDB and rejects errors before any data moves. The returned [`Command`] states
//! the length of its data. [`Command::execute`] executes it, and may block on the file.

mod blocks;
mod inquiry;
mod mode;
mod opcodes;

use std::sync::{
    atomic::{AtomicBool, Ordering},
    Arc,
};

use crate::{
    acl,
    disk::{Disk, BLOCK},
    sense::Sense,
};

/// SCSI status codes.
pub mod status {
    #![allow(missing_docs)]
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const TASK_SET_FULL: u8 = 0x28;
}

/// Operation codes used outside of this module.
pub mod opcode {
    #![allow(missing_docs)]
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const INQUIRY: u8 = 0x12;
    pub const REPORT_LUNS: u8 = 0xa0;
}

/// Number of CDB bytes that are examined.
pub const CDB_LEN: usize = 16;

/// Size and limits of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Number of blocks of 512 bytes, at least one.
    pub blocks: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Maximum length of one transfer in bytes, at most [`MAX_TRANSFER`].
    pub max_transfer: u64,
    /// Maximum number of blocks of one WRITE SAME or UNMAP, below 2^32.
    pub max_unmap: u64,
    /// Maximum number of ranges of one UNMAP; 0 if unmapped blocks would use space.
    pub max_ranges: u32,
}

impl Geometry {
    /// Returns whether blocks can be unmapped.
    pub(crate) fn thin(&self) -> bool {
        !self.read_only && self.max_ranges > 0
    }
}

/// A logical unit.
pub struct Unit {
    /// Size and limits.
    pub geometry: Geometry,
    /// The backing store; `None` if the blocks are remote, so that block commands become
    /// [`crate::target::Action::Dispatch`].
    disk: Option<Disk>,
    /// Unique identifier.
    id: u64,
    stopped: AtomicBool,
}

impl Unit {
    /// Creates a unit of the target with this GUID. The identifier is a hash of the GUID and the
    /// path of the file.
    pub fn new(disk: Disk, guid: u64) -> Self {
        let geometry = blocks::geometry(&disk);
        let id = id(disk.path().as_os_str().as_encoded_bytes(), guid);
        Self::with(geometry, Some(disk), id)
    }

    /// Returns the status of the unit, which is called `name`.
    pub fn status(&self, name: &str) -> serde_json::Value {
        match &self.disk {
            Some(disk) => disk.status(name),
            None => serde_json::json!({ "name": name, "blocks": self.geometry.blocks }),
        }
    }

    /// Creates a unit with remote blocks. The identifier is a hash of the GUID and `name`. VERIFY
    /// does not compare, WRITE SAME writes only zeros, and UNMAP takes one range: see
    /// [`Command::for_elsewhere`].
    pub fn elsewhere(geometry: Geometry, name: &[u8], guid: u64) -> Self {
        Self::with(geometry, None, id(name, guid))
    }

    fn with(geometry: Geometry, disk: Option<Disk>, id: u64) -> Self {
        Self {
            geometry,
            disk,
            id,
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns whether the blocks are remote.
    pub fn is_elsewhere(&self) -> bool {
        self.disk.is_none()
    }

    /// Returns the serial number.
    pub fn serial(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// Resets the unit, which starts it.
    pub fn reset(&self) {
        self.stopped.store(false, Ordering::Relaxed);
    }

    fn ready(&self) -> Result<(), Sense> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Sense::STOPPED);
        }
        Ok(())
    }
}

/// An FNV-1a hash.
fn id(name: &[u8], guid: u64) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(guid ^ 0xcbf2_9ce4_8422_2325, hash)
}

/// All units of a target, by LUN.
pub type Units = [Arc<Unit>];

/// Returns the index of the unit that a LUN addresses: peripheral or flat addressing, one level.
pub fn unit_of(lun: [u8; 8], units: &Units) -> Option<usize> {
    let [high, low, rest @ ..] = lun;
    let number = match high >> 6 {
        0 if high == 0 => usize::from(low),
        1 => usize::from(high & 0x3f) << 8 | usize::from(low),
        _ => return None,
    };
    (rest == [0; 6] && number < units.len()).then_some(number)
}

/// Returns the LUN of a unit.
fn address(number: usize) -> [u8; 8] {
    let flat = if number < 256 { 0 } else { 0x40 };
    [flat | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0]
}

/// The comparison that VERIFY makes (BYTCHK).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compare {
    /// Verify the medium only.
    Nothing,
    /// Compare all blocks with data from the initiator.
    All,
    /// Compare each block with one block from the initiator.
    One,
}

/// A checked command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// No operation.
    Done,
    /// Parameter data, truncated to the allocation length.
    Reply(Vec<u8>, u32),
    /// READ.
    Read {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u32,
        /// Flush first.
        fua: bool,
    },
    /// WRITE.
    Write {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u32,
        /// Flush afterwards.
        fua: bool,
    },
    /// VERIFY.
    Verify {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u32,
        /// How to compare.
        compare: Compare,
    },
    /// WRITE SAME.
    WriteSame {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u64,
        /// Free the space if the block is all zeros.
        unmap: bool,
        /// NDOB: no data is sent, and the block is zeros.
        no_data: bool,
    },
    /// UNMAP with a parameter list of this length in bytes.
    Unmap(u32),
    /// Zeroes blocks: WRITE SAME and UNMAP on remote blocks.
    Zero {
        /// First block.
        lba: u64,
        /// Number of blocks.
        count: u32,
        /// Free their space.
        unmap: bool,
    },
    /// SYNCHRONIZE CACHE.
    Flush,
    /// START STOP UNIT; `true`: start.
    Start(bool),
}

/// Maximum length of one transfer, in bytes: 16 MiB. Reported to the initiator.
pub const MAX_TRANSFER: u64 = 16 << 20;

impl Command {
    /// Returns whether the command accesses the blocks, which may be remote.
    pub fn blocks(&self) -> bool {
        !matches!(self, Self::Done | Self::Reply(..) | Self::Start(true))
    }

    /// Length of DATA-OUT, in bytes.
    pub fn data_out(&self) -> u32 {
        let block = BLOCK as u32;
        match *self {
            Self::Write { count, .. } => count * block,
            Self::Verify { count, compare, .. } => match compare {
                Compare::Nothing => 0,
                Compare::All => count * block,
                Compare::One => block,
            },
            Self::WriteSame { no_data: false, .. } => block,
            Self::Unmap(len) => len,
            _ => 0,
        }
    }

    /// Length of DATA-IN, in bytes.
    pub fn data_in(&self) -> u32 {
        match self {
            Self::Read { count, .. } => count * BLOCK as u32,
            Self::Reply(bytes, most) => (*most).min(bytes.len() as u32),
            _ => 0,
        }
    }

    /// Returns whether DATA-OUT must be fetched even if the blocks are remote, because it contains
    /// parameters.
    pub fn needs_data(&self) -> bool {
        matches!(self, Self::Unmap(_) | Self::WriteSame { .. })
    }

    /// Converts the command for remote blocks. `out` is the whole DATA-OUT if
    /// [`Command::needs_data`].
    pub fn for_elsewhere(&self, unit: &Unit, out: &[u8]) -> Result<Self, Sense> {
        blocks::for_elsewhere(self, &unit.geometry, out)
    }

    /// Executes the command. `out` is the whole DATA-OUT; `into` receives as much DATA-IN as fits.
    pub fn execute(&self, unit: Option<&Unit>, out: &[u8], into: &mut [u8]) -> Result<(), Sense> {
        match (self, unit) {
            (Self::Done, _) => Ok(()),
            (Self::Reply(bytes, _), _) => {
                let len = into.len().min(bytes.len());
                into[..len].copy_from_slice(&bytes[..len]);
                Ok(())
            }
            (Self::Start(start), Some(unit)) => {
                if let (false, Some(disk)) = (start, &unit.disk) {
                    disk.flush()?;
                }
                unit.stopped.store(!start, Ordering::Relaxed);
                Ok(())
            }
            (
                command,
                Some(Unit {
                    disk: Some(disk), ..
                }),
            ) => blocks::execute(command, disk, out, into),
            (_, _) => Err(Sense::NO_UNIT),
        }
    }
}

/// A CDB, padded with zeros to 16 bytes.
type Cdb = [u8; CDB_LEN];

fn be16(cdb: &Cdb, at: usize) -> u32 {
    u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]))
}

fn be32(cdb: &Cdb, at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

/// Parses a command. `number` is the index of its unit; `None` if the LUN has no unit. `attention`
/// is the pending unit attention that REQUEST SENSE reports. REPORT LUNS tells the units in `seen`.
pub fn parse(
    cdb: &Cdb,
    units: &Units,
    number: Option<usize>,
    attention: Option<Sense>,
    seen: &acl::Units,
) -> Result<Command, Sense> {
    let unit = number.and_then(|n| units.get(n));
    let elsewhere = unit.is_some_and(|u| u.is_elsewhere());
    let entry = opcodes::find(cdb)?;
    // NACA is not supported.
    if entry.control(cdb) & 4 != 0 {
        return Err(Sense::FIELD);
    }
    let Some(unit) = unit else {
        return match cdb[0] {
            opcode::INQUIRY => inquiry::absent(cdb),
            opcode::REPORT_LUNS => report_luns(cdb, units, seen),
            opcode::REQUEST_SENSE => request_sense(cdb, Sense::NO_UNIT),
            _ => Err(Sense::NO_UNIT),
        };
    };
    match (cdb[0], entry.action) {
        (0x00, _) => unit.ready().map(|()| Command::Done),
        (opcode::REQUEST_SENSE, _) => {
            let now = unit.ready().err().unwrap_or(Sense::NONE);
            request_sense(cdb, attention.unwrap_or(now))
        }
        (opcode::INQUIRY, _) => inquiry::inquiry(cdb, unit),
        (0x1a, _) => mode::sense6(cdb, unit),
        (0x5a, _) => mode::sense10(cdb, unit),
        (0x1b, _) => start_stop(cdb),
        (opcode::REPORT_LUNS, _) => report_luns(cdb, units, seen),
        (0xa3, Some(0x0c)) => opcodes::report(cdb, elsewhere),
        (0xa3, _) => opcodes::task_management(cdb),
        _ => {
            unit.ready()?;
            blocks::parse(cdb, unit)
        }
    }
}

fn request_sense(cdb: &Cdb, sense: Sense) -> Result<Command, Sense> {
    let bytes = if cdb[1] & 1 != 0 {
        sense.descriptor()
    } else {
        sense.fixed()
    };
    Ok(Command::Reply(bytes, cdb[4].into()))
}

fn start_stop(cdb: &Cdb) -> Result<Command, Sense> {
    let (modifier, how) = (cdb[3] & 0x0f, cdb[4]);
    // Neither power conditions nor removable media are supported.
    if modifier != 0 || how & 0xf2 != 0 {
        return Err(Sense::FIELD);
    }
    Ok(Command::Start(how & 1 != 0))
}

fn report_luns(cdb: &Cdb, units: &Units, seen: &acl::Units) -> Result<Command, Sense> {
    let most = be32(cdb, 6);
    let numbers = match cdb[2] {
        0 | 2 => 0..units.len(),
        // There are no well known logical units.
        1 => 0..0,
        _ => return Err(Sense::FIELD),
    };
    if most < 16 {
        return Err(Sense::FIELD);
    }
    let mut bytes = vec![0; 8];
    bytes.extend(numbers.filter(|n| acl::sees(seen, *n)).flat_map(address));
    let len = bytes.len() as u32 - 8;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    Ok(Command::Reply(bytes, most))
}
