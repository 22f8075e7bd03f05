// SPDX-License-Identifier: GPL-2.0

//! The commands of a disk: T10 SPC-4 and SBC-3.
//!
//! [`parse`] reads a CDB and refuses what cannot be done, before any data moves. What it returns says how much data it
//! wants, and is carried out by [`Command::execute`], which may wait for the file.

mod blocks;
mod inquiry;
mod mode;
mod opcodes;

use std::sync::{
    atomic::{AtomicBool, Ordering},
    Arc,
};

use crate::{
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

/// Operation codes that are asked for outside of this module.
pub mod opcode {
    #![allow(missing_docs)]
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const INQUIRY: u8 = 0x12;
    pub const REPORT_LUNS: u8 = 0xa0;
}

/// The longest CDB that is looked at, in bytes.
pub const CDB_LEN: usize = 16;

/// How large a unit is, and what can be done with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Blocks of 512 bytes, at least one.
    pub blocks: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Most bytes that a command moves, at most [`MAX_TRANSFER`].
    pub max_transfer: u64,
    /// Most blocks that one WRITE SAME or UNMAP is about, below 2^32.
    pub max_unmap: u64,
    /// Most ranges of one UNMAP.
    pub max_ranges: u32,
}

/// A logical unit.
pub struct Unit {
    /// Its size.
    pub geometry: Geometry,
    /// Its blocks, unless they are elsewhere. Then commands about blocks are [`crate::target::Action::Dispatch`].
    disk: Option<Disk>,
    /// What names it in the world.
    id: u64,
    stopped: AtomicBool,
}

impl Unit {
    /// A unit of the target with this GUID. Its name comes from the GUID and the path of its file.
    pub fn new(disk: Disk, guid: u64) -> Self {
        let geometry = blocks::geometry(&disk);
        let id = id(disk.path().as_os_str().as_encoded_bytes(), guid);
        Self::with(geometry, Some(disk), id)
    }

    /// A unit whose blocks are elsewhere. It is named by the GUID and these bytes. VERIFY compares nothing, WRITE SAME writes
    /// zeros only, and UNMAP has one range: see [`Command::for_elsewhere`].
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

    /// Its blocks are elsewhere.
    pub fn is_elsewhere(&self) -> bool {
        self.disk.is_none()
    }

    /// Its serial number.
    pub fn serial(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// After a reset it is as after power on.
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

/// FNV-1a.
fn id(name: &[u8], guid: u64) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(guid ^ 0xcbf2_9ce4_8422_2325, hash)
}

/// All units of a target; the number of each is its place.
pub type Units = [Arc<Unit>];

/// The unit that an address means: peripheral or flat addressing, one level.
pub fn unit_of(lun: [u8; 8], units: &Units) -> Option<usize> {
    let [high, low, rest @ ..] = lun;
    let number = match high >> 6 {
        0 if high == 0 => usize::from(low),
        1 => usize::from(high & 0x3f) << 8 | usize::from(low),
        _ => return None,
    };
    (rest == [0; 6] && number < units.len()).then_some(number)
}

/// The address of a unit.
fn address(number: usize) -> [u8; 8] {
    let flat = if number < 256 { 0 } else { 0x40 };
    [flat | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0]
}

/// How the bytes of a verification are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compare {
    /// They are only read.
    Nothing,
    /// With as many of the initiator's.
    All,
    /// Each block with the same one of the initiator's.
    One,
}

/// A command that can be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// There is nothing to do.
    Done,
    /// These bytes are the answer, as many as were asked for at most.
    Reply(Vec<u8>, u32),
    /// Blocks go to the initiator.
    Read {
        /// The first.
        lba: u64,
        /// How many.
        count: u32,
        /// What was written is made stable first.
        fua: bool,
    },
    /// Blocks come from it.
    Write {
        /// The first.
        lba: u64,
        /// How many.
        count: u32,
        /// They are made stable before the answer.
        fua: bool,
    },
    /// Blocks are read.
    Verify {
        /// The first.
        lba: u64,
        /// How many.
        count: u32,
        /// And then.
        compare: Compare,
    },
    /// One block is written again and again.
    WriteSame {
        /// The first.
        lba: u64,
        /// How many.
        count: u64,
        /// If it is zeros, its place is given back.
        unmap: bool,
        /// It is zeros and not sent.
        no_data: bool,
    },
    /// Blocks give their place back; so many bytes say which.
    Unmap(u32),
    /// Blocks become zeros: what WRITE SAME and UNMAP are elsewhere.
    Zero {
        /// The first.
        lba: u64,
        /// How many.
        count: u32,
        /// Their place is given back.
        unmap: bool,
    },
    /// What was written is made stable.
    Flush,
    /// The unit is started, or stopped.
    Start(bool),
}

/// Most bytes that a command moves: 16 MiB. The limit is reported.
pub const MAX_TRANSFER: u64 = 16 << 20;

impl Command {
    /// It is about blocks, which may be elsewhere.
    pub fn blocks(&self) -> bool {
        !matches!(self, Self::Done | Self::Reply(..) | Self::Start(true))
    }

    /// Bytes of DATA-OUT that it needs.
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

    /// Bytes of DATA-IN that it has.
    pub fn data_in(&self) -> u32 {
        match self {
            Self::Read { count, .. } => count * BLOCK as u32,
            Self::Reply(bytes, most) => (*most).min(bytes.len() as u32),
            _ => 0,
        }
    }

    /// Its data says what it does, so that has to be here although the blocks are elsewhere.
    pub fn needs_data(&self) -> bool {
        matches!(self, Self::Unmap(_) | Self::WriteSame { .. })
    }

    /// What is to be done elsewhere. `out` has all of [`Command::data_out`] if it [`Command::needs_data`].
    pub fn for_elsewhere(&self, unit: &Unit, out: &[u8]) -> Result<Self, Sense> {
        blocks::for_elsewhere(self, &unit.geometry, out)
    }

    /// Does it. `out` has all of [`Command::data_out`]; `into` gets as much of the data as fits.
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

/// A CDB of 16 bytes; a shorter one has zeros behind it.
type Cdb = [u8; CDB_LEN];

fn be16(cdb: &Cdb, at: usize) -> u32 {
    u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]))
}

fn be32(cdb: &Cdb, at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

/// Reads a command to a unit, or to one that there is not. `attention` is what REQUEST SENSE answers with, if there is
/// something.
pub fn parse(
    cdb: &Cdb,
    units: &Units,
    number: Option<usize>,
    attention: Option<Sense>,
) -> Result<Command, Sense> {
    let unit = number.and_then(|n| units.get(n));
    let elsewhere = unit.is_some_and(|u| u.is_elsewhere());
    let entry = opcodes::find(cdb)?;
    // A contingent allegiance that waits for the initiator is not supported.
    if entry.control(cdb) & 4 != 0 {
        return Err(Sense::FIELD);
    }
    let Some(unit) = unit else {
        return match cdb[0] {
            opcode::INQUIRY => inquiry::absent(cdb),
            opcode::REPORT_LUNS => report_luns(cdb, units),
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
        (opcode::REPORT_LUNS, _) => report_luns(cdb, units),
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
    // Neither power conditions nor a medium that can be taken out.
    if modifier != 0 || how & 0xf2 != 0 {
        return Err(Sense::FIELD);
    }
    Ok(Command::Start(how & 1 != 0))
}

fn report_luns(cdb: &Cdb, units: &Units) -> Result<Command, Sense> {
    let most = be32(cdb, 6);
    let numbers = match cdb[2] {
        0 | 2 => 0..units.len(),
        // Well known units, of which there are none.
        1 => 0..0,
        _ => return Err(Sense::FIELD),
    };
    if most < 16 {
        return Err(Sense::FIELD);
    }
    let mut bytes = vec![0; 8];
    bytes[..4].copy_from_slice(&(8 * numbers.len() as u32).to_be_bytes());
    bytes.extend(numbers.flat_map(address));
    Ok(Command::Reply(bytes, most))
}
