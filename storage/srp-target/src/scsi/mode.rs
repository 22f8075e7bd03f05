// SPDX-License-Identifier: GPL-2.0

//! MODE SENSE. No parameter is changeable.

use super::{be16, Cdb, Command, Unit};
use crate::{disk::BLOCK, sense::Sense};

/// DPOFUA bit of the device-specific parameter.
const DPOFUA: u8 = 0x10;
const WRITE_PROTECTED: u8 = 0x80;

/// All mode pages. For changeable values only the page headers are nonzero.
fn pages(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    // WCE: written blocks are volatile until a flush.
    let mut caching = [0; 20];
    caching[..3].copy_from_slice(&[0x08, 18, 0x04]);
    // Unrestricted reordering of commands.
    let mut control = [0; 12];
    control[..4].copy_from_slice(&[0x0a, 10, 0, 0x10]);
    control[8..10].fill(0xff);

    if cdb[2] >> 6 == 3 {
        return Err(Sense::NO_SAVED);
    }
    if cdb[2] >> 6 == 1 {
        caching[2..].fill(0);
        control[2..].fill(0);
    }
    match (cdb[2] & 0x3f, cdb[3]) {
        (0x08, 0) => Ok(caching.to_vec()),
        (0x0a, 0) => Ok(control.to_vec()),
        (0x3f, 0 | 0xff) => Ok([&caching[..], &control[..]].concat()),
        _ => Err(Sense::FIELD),
    }
}

fn device(unit: &Unit) -> u8 {
    if unit.geometry.read_only {
        DPOFUA | WRITE_PROTECTED
    } else {
        DPOFUA
    }
}

/// Block descriptor, unless DBD is set.
fn descriptor(cdb: &Cdb, unit: &Unit, long: bool) -> Vec<u8> {
    let (blocks, len) = (unit.geometry.blocks, BLOCK as u32);
    if cdb[1] & 0x08 != 0 {
        Vec::new()
    } else if long {
        [&blocks.to_be_bytes()[..], &[0; 4], &len.to_be_bytes()].concat()
    } else {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        [blocks.to_be_bytes(), len.to_be_bytes()].concat()
    }
}

pub(super) fn sense6(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    let (pages, blocks) = (pages(cdb)?, descriptor(cdb, unit, false));
    let len = 3 + blocks.len() + pages.len();
    let head = [len as u8, 0, device(unit), blocks.len() as u8];
    Ok(Command::Reply(
        [&head[..], &blocks, &pages].concat(),
        cdb[4].into(),
    ))
}

pub(super) fn sense10(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    let long = cdb[1] & 0x10 != 0;
    let (pages, blocks) = (pages(cdb)?, descriptor(cdb, unit, long));
    let len = 6 + blocks.len() + pages.len();
    let long = u8::from(long && !blocks.is_empty());
    let head = [
        0,
        len as u8,
        0,
        device(unit),
        long,
        0,
        0,
        blocks.len() as u8,
    ];
    Ok(Command::Reply(
        [&head[..], &blocks, &pages].concat(),
        be16(cdb, 7),
    ))
}
