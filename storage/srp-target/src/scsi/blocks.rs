// SPDX-License-Identifier: GPL-2.0

//! Block commands.

use super::{be16, be32, Cdb, Command, Compare, Geometry, Unit};
use crate::{
    disk::{Disk, BLOCK},
    sense::Sense,
};

/// Maximum number of blocks of one WRITE SAME or UNMAP: 512 MiB. Reported to the initiator.
const MAX_UNMAP: u64 = 1 << 20;
/// Maximum number of ranges of one UNMAP.
const MAX_RANGES: u32 = 256;

/// Bits of CDB byte 1.
const PROTECT: u8 = 0xe0;
const FUA: u8 = 0x08;
const ANCHOR: u8 = 0x10;
const UNMAP: u8 = 0x08;
const NO_DATA: u8 = 0x01;

/// LBA and the number of blocks of a command.
fn place(cdb: &Cdb) -> (u64, u64) {
    let (lba, count) = match cdb[0] >> 5 {
        0 => {
            let count = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            (u64::from(be32(cdb, 0) & 0x1f_ffff), count)
        }
        1 | 2 => (be32(cdb, 2).into(), be16(cdb, 7)),
        4 => {
            let lba = u64::from(be32(cdb, 2)) << 32 | u64::from(be32(cdb, 6));
            (lba, be32(cdb, 10))
        }
        _ => (be32(cdb, 2).into(), be32(cdb, 6)),
    };
    (lba, count.into())
}

fn within(unit: &Geometry, lba: u64, count: u64) -> Result<(), Sense> {
    match lba.checked_add(count) {
        Some(end) if end <= unit.blocks && lba < unit.blocks => Ok(()),
        _ => Err(Sense::RANGE),
    }
}

fn writable(unit: &Geometry) -> Result<(), Sense> {
    if unit.read_only {
        return Err(Sense::READ_ONLY);
    }
    Ok(())
}

/// Returns `count` if one command may transfer that many blocks.
fn movable(unit: &Geometry, count: u64) -> Result<u32, Sense> {
    if count * BLOCK > unit.max_transfer {
        return Err(Sense::FIELD);
    }
    Ok(count as u32)
}

pub(super) fn parse(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    let elsewhere = unit.is_elsewhere();
    let unit = &unit.geometry;
    let (lba, count) = place(cdb);
    // In 6-byte commands these bits belong to the address.
    let flags = if cdb[0] < 0x20 { 0 } else { cdb[1] };
    match cdb[0] {
        0x25 => {
            let last = u32::try_from(unit.blocks - 1).unwrap_or(u32::MAX);
            let bytes = [last.to_be_bytes(), (BLOCK as u32).to_be_bytes()].concat();
            return Ok(Command::Reply(bytes, 8));
        }
        0x9e => return Ok(Command::Reply(capacity16(unit), be32(cdb, 10))),
        0x42 => return unmap(cdb, unit),
        0x35 | 0x91 => {
            // Flushes the whole disk, whatever the range, and ignores IMMED.
            within(unit, lba, count)?;
            return Ok(Command::Flush);
        }
        _ => {}
    }
    if flags & PROTECT != 0 {
        return Err(Sense::FIELD);
    }
    match cdb[0] {
        0x41 | 0x93 => return write_same(cdb, unit),
        0x0a | 0x2a | 0x8a | 0xaa => writable(unit)?,
        _ => {}
    }
    within(unit, lba, count)?;
    let fua = flags & FUA != 0;
    match cdb[0] {
        0x08 | 0x28 | 0x88 | 0xa8 => Ok(Command::Read {
            lba,
            count: movable(unit, count)?,
            fua,
        }),
        0x0a | 0x2a | 0x8a | 0xaa => Ok(Command::Write {
            lba,
            count: movable(unit, count)?,
            fua,
        }),
        0x2f | 0x8f | 0xaf => Ok(Command::Verify {
            lba,
            count: movable(unit, count)?,
            compare: match cdb[1] >> 1 & 3 {
                0 => Compare::Nothing,
                _ if elsewhere => return Err(Sense::FIELD),
                1 => Compare::All,
                3 => Compare::One,
                _ => return Err(Sense::FIELD),
            },
        }),
        _ => Err(Sense::OPCODE),
    }
}

fn capacity16(unit: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..8].copy_from_slice(&(unit.blocks - 1).to_be_bytes());
    bytes[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
    // Eight logical blocks per physical block.
    bytes[13] = 3;
    if unit.thin() {
        // LBPME and LBPRZ: blocks can be unmapped, and then read as zeros.
        bytes[14] = 0xc0;
    }
    bytes
}

fn write_same(cdb: &Cdb, unit: &Geometry) -> Result<Command, Sense> {
    let (lba, count) = place(cdb);
    let flags = cdb[1];
    writable(unit)?;
    within(unit, lba, count)?;
    // A count of zero does not mean all blocks (WSNZ).
    if count == 0 || count > unit.max_unmap || flags & ANCHOR != 0 {
        return Err(Sense::FIELD);
    }
    Ok(Command::WriteSame {
        lba,
        count,
        unmap: flags & UNMAP != 0,
        no_data: cdb[0] == 0x93 && flags & NO_DATA != 0,
    })
}

fn unmap(cdb: &Cdb, unit: &Geometry) -> Result<Command, Sense> {
    writable(unit)?;
    if cdb[1] & 1 != 0 {
        return Err(Sense::FIELD);
    }
    match be16(cdb, 7) {
        0 => Ok(Command::Done),
        1..8 => Err(Sense::LIST_LENGTH),
        len => Ok(Command::Unmap(len)),
    }
}

/// Parses and checks the ranges of an UNMAP.
fn ranges(unit: &Geometry, list: &[u8]) -> Result<Vec<(u64, u64)>, Sense> {
    let number = |at: usize, len: usize| {
        let bytes = list.get(at..at + len).ok_or(Sense::LIST_LENGTH)?;
        Ok(bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)))
    };
    let len = number(2, 2)? as usize;
    let (all, mut ranges) = (len / 16, Vec::new());
    if all > unit.max_ranges as usize {
        return Err(Sense::LIST_FIELD);
    }
    let mut total = 0;
    for at in (0..all).map(|i| 8 + 16 * i) {
        let (lba, count) = (number(at, 8)?, number(at + 8, 4)?);
        // An empty range may start at the end.
        if count > 0 || lba != unit.blocks {
            within(unit, lba, count)?;
        }
        total += count;
        ranges.push((lba, count));
    }
    if total > unit.max_unmap {
        return Err(Sense::LIST_FIELD);
    }
    Ok(ranges)
}

pub(super) fn geometry(disk: &Disk) -> Geometry {
    Geometry {
        blocks: disk.blocks(),
        read_only: disk.read_only(),
        max_transfer: super::MAX_TRANSFER,
        max_unmap: MAX_UNMAP,
        max_ranges: MAX_RANGES,
    }
}

pub(super) fn for_elsewhere(
    command: &Command,
    unit: &Geometry,
    out: &[u8],
) -> Result<Command, Sense> {
    let zero = |lba, count: u64, unmap| match u32::try_from(count) {
        Ok(0) => Ok(Command::Done),
        Ok(count) => Ok(Command::Zero { lba, count, unmap }),
        Err(_) => Err(Sense::FIELD),
    };
    match *command {
        Command::Unmap(_) => match ranges(unit, out)?[..] {
            [] => Ok(Command::Done),
            [(lba, count)] => zero(lba, count, true),
            _ => Err(Sense::LIST_FIELD),
        },
        // Remote blocks can only be set to zero: `Command::Zero` has no data.
        Command::WriteSame { .. } if out.iter().any(|b| *b != 0) => Err(Sense::LIST_FIELD),
        Command::WriteSame {
            lba, count, unmap, ..
        } => zero(lba, count, unmap),
        _ => Ok(command.clone()),
    }
}

pub(super) fn execute(
    command: &Command,
    disk: &Disk,
    out: &[u8],
    into: &mut [u8],
) -> Result<(), Sense> {
    match *command {
        Command::Read { lba, fua, .. } => {
            if fua && !disk.read_only() {
                disk.flush()?;
            }
            disk.read(lba, into)
        }
        Command::Write { lba, fua, .. } => {
            disk.write(lba, out)?;
            if fua {
                disk.flush()?;
            }
            Ok(())
        }
        Command::Verify {
            lba,
            count,
            compare,
        } => verify(disk, lba, count, compare, out),
        Command::WriteSame {
            lba, count, unmap, ..
        } => {
            let mut block = [0; BLOCK as usize];
            block[..out.len()].copy_from_slice(out);
            if unmap && block.iter().all(|b| *b == 0) {
                return disk.unmap(lba, count);
            }
            disk.fill(lba, count, &block)
        }
        Command::Unmap(_) => {
            for (lba, count) in ranges(&geometry(disk), out)? {
                disk.unmap(lba, count)?;
            }
            Ok(())
        }
        Command::Flush => {
            if disk.read_only() {
                return Ok(());
            }
            disk.flush()
        }
        _ => Ok(()),
    }
}

fn verify(disk: &Disk, lba: u64, count: u32, compare: Compare, out: &[u8]) -> Result<(), Sense> {
    const BYTES: usize = BLOCK as usize;
    let mut bytes = [0; BYTES];
    for i in 0..count as usize {
        disk.read(lba + i as u64, &mut bytes)?;
        let wanted = match compare {
            Compare::Nothing => continue,
            Compare::All => &out[i * BYTES..(i + 1) * BYTES],
            Compare::One => out,
        };
        if let Some(at) = bytes.iter().zip(wanted).position(|(a, b)| a != b) {
            return Err(Sense::MISCOMPARE.at((i * BYTES + at) as u64));
        }
    }
    Ok(())
}
