// SPDX-License-Identifier: GPL-2.0

//! INQUIRY.

use super::{be16, Cdb, Command, Unit};
use crate::{disk::BLOCK, sense::Sense};

const VENDOR: &[u8; 8] = b"SRP-RS  ";
const PRODUCT: &[u8; 16] = b"srp-target      ";
const REVISION: &[u8; 4] = b"1   ";
/// Version descriptors: SAM-5, SRP, SPC-4, SBC-3.
const VERSIONS: [u16; 4] = [0x00a0, 0x0940, 0x0460, 0x04c0];

pub(super) fn inquiry(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    let most = be16(cdb, 3);
    if cdb[1] & 1 == 0 {
        if cdb[2] != 0 {
            return Err(Sense::FIELD);
        }
        return Ok(Command::Reply(standard(0), most));
    }
    let page = match cdb[2] {
        0x00 => vec![0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2],
        0x80 => unit.serial().into_bytes(),
        0x83 => identification(unit),
        0xb0 => limits(unit),
        0xb1 => {
            let mut page = vec![0; 60];
            // Non-rotating medium.
            page[1] = 1;
            page
        }
        0xb2 => provisioning(unit),
        _ => return Err(Sense::FIELD),
    };
    let mut bytes = vec![0, cdb[2]];
    bytes.extend_from_slice(&(page.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&page);
    Ok(Command::Reply(bytes, most))
}

/// INQUIRY to a LUN without a unit.
pub(super) fn absent(cdb: &Cdb) -> Result<Command, Sense> {
    if cdb[1] & 1 != 0 || cdb[2] != 0 {
        return Err(Sense::FIELD);
    }
    Ok(Command::Reply(standard(0x7f), be16(cdb, 3)))
}

fn standard(kind: u8) -> Vec<u8> {
    // SPC-4, HISUP, response data format 2, CMDQUE.
    let mut bytes = vec![kind, 0, 6, 0x12, 0, 0, 0, 2];
    bytes.extend_from_slice(VENDOR);
    bytes.extend_from_slice(PRODUCT);
    bytes.extend_from_slice(REVISION);
    bytes.resize(58, 0);
    bytes.extend(VERSIONS.iter().flat_map(|v| v.to_be_bytes()));
    bytes.resize(74, 0);
    bytes[4] = bytes.len() as u8 - 5;
    bytes
}

fn identification(unit: &Unit) -> Vec<u8> {
    // An NAA 3 (locally assigned) designator of the unit.
    let mut page = vec![0x01, 0x03, 0, 8];
    page.extend_from_slice(&(3 << 60 | unit.id >> 4).to_be_bytes());
    // A T10 vendor ID designator: vendor and serial number.
    let serial = unit.serial();
    page.extend_from_slice(&[0x02, 0x01, 0, 8 + serial.len() as u8]);
    page.extend_from_slice(VENDOR);
    page.extend_from_slice(serial.as_bytes());
    // Relative target port 1, protocol SRP.
    page.extend_from_slice(&[0x41, 0x94, 0, 4, 0, 0, 0, 1]);
    page
}

fn limits(unit: &Unit) -> Vec<u8> {
    let mut page = vec![0; 60];
    let mut put = |at: usize, n: u32| page[at - 4..at].copy_from_slice(&n.to_be_bytes());
    put(8, (unit.geometry.max_transfer / BLOCK) as u32);
    put(12, (unit.geometry.max_transfer / BLOCK) as u32);
    if !unit.geometry.read_only {
        if unit.geometry.thin() {
            put(20, unit.geometry.max_unmap as u32);
            put(24, unit.geometry.max_ranges);
            // Unmap granularity: a page, aligned to the start of the file.
            put(28, 8);
            put(32, 1 << 31);
        }
        put(40, unit.geometry.max_unmap as u32);
    }
    // WSNZ. The optimal transfer granularity is a physical block.
    page[0] = 1;
    page[3] = 8;
    page
}

fn provisioning(unit: &Unit) -> Vec<u8> {
    if !unit.geometry.thin() {
        return vec![0; 4];
    }
    // LBPU, LBPWS, LBPWS10, LBPRZ; thin provisioned.
    vec![0, 0xe4, 2, 0]
}
