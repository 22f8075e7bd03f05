// SPDX-License-Identifier: GPL-2.0

//! The table of supported commands. All other commands are rejected.

use super::{be16, be32, Cdb, Command};
use crate::sense::Sense;

/// A command.
pub(super) struct Entry {
    /// Service action, if the operation code has any.
    pub(super) action: Option<u8>,
    /// CDB usage data: the operation code, then the bits of each byte that are evaluated.
    usage: &'static [u8],
}

impl Entry {
    fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// The CONTROL byte, the last one of the CDB.
    pub(super) fn control(&self, cdb: &Cdb) -> u8 {
        cdb[self.usage.len() - 1]
    }

    /// CDB usage data, with the service action. VERIFY on remote blocks does not compare, so BYTCHK
    /// is clear.
    fn usage(&self, elsewhere: bool) -> Vec<u8> {
        let mut usage = self.usage.to_vec();
        if elsewhere && matches!(usage[0], 0x2f | 0x8f | 0xaf) {
            usage[1] &= !6;
        }
        if let Some(action) = self.action {
            usage[1] = action;
        }
        usage
    }
}

const fn entry(usage: &'static [u8]) -> Entry {
    Entry {
        action: None,
        usage,
    }
}

const fn action(action: u8, usage: &'static [u8]) -> Entry {
    Entry {
        action: Some(action),
        usage,
    }
}

/// All bits of a byte.
const F: u8 = 0xff;

/// Sorted by operation code and service action.
const COMMANDS: &[Entry] = &[
    // TEST UNIT READY, REQUEST SENSE
    entry(&[0x00, 0, 0, 0, 0, 4]),
    entry(&[0x03, 1, 0, 0, F, 4]),
    // READ, WRITE (6)
    entry(&[0x08, 0x1f, F, F, F, 4]),
    entry(&[0x0a, 0x1f, F, F, F, 4]),
    // INQUIRY, MODE SENSE (6), START STOP UNIT
    entry(&[0x12, 1, F, F, F, 4]),
    entry(&[0x1a, 0x08, F, F, F, 4]),
    entry(&[0x1b, 0, 0, 0x0f, 0xf3, 4]),
    // READ CAPACITY, READ, WRITE, VERIFY, SYNCHRONIZE CACHE, WRITE SAME (10)
    entry(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 4]),
    entry(&[0x28, 0xf8, F, F, F, F, 0, F, F, 4]),
    entry(&[0x2a, 0xf8, F, F, F, F, 0, F, F, 4]),
    entry(&[0x2f, 0xf6, F, F, F, F, 0, F, F, 4]),
    entry(&[0x35, 0, F, F, F, F, 0, F, F, 4]),
    entry(&[0x41, 0xf8, F, F, F, F, 0, F, F, 4]),
    // UNMAP, MODE SENSE (10)
    entry(&[0x42, 1, 0, 0, 0, 0, 0, F, F, 4]),
    entry(&[0x5a, 0x18, F, F, 0, 0, 0, F, F, 4]),
    // READ, WRITE, VERIFY, SYNCHRONIZE CACHE, WRITE SAME, READ CAPACITY (16)
    entry(&[0x88, 0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0x8a, 0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0x8f, 0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0x91, 0, F, F, F, F, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0x93, 0xf9, F, F, F, F, F, F, F, F, F, F, F, F, 0, 4]),
    action(
        0x10,
        &[0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 4],
    ),
    // REPORT LUNS, SUPPORTED OPERATION CODES, SUPPORTED TASK MANAGEMENT FUNCTIONS
    entry(&[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 4]),
    action(0x0c, &[0xa3, 0x1f, 0x87, F, F, F, F, F, F, F, 0, 4]),
    action(0x0d, &[0xa3, 0x1f, 0x80, 0, 0, 0, F, F, F, F, 0, 4]),
    // READ, WRITE, VERIFY (12)
    entry(&[0xa8, 0xf8, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0xaa, 0xf8, F, F, F, F, F, F, F, F, 0, 4]),
    entry(&[0xaf, 0xf6, F, F, F, F, F, F, F, F, 0, 4]),
];

/// The entry of a command.
pub(super) fn find(cdb: &Cdb) -> Result<&'static Entry, Sense> {
    let all = COMMANDS.iter();
    let mut same = all.filter(|e| e.opcode() == cdb[0]).peekable();
    same.peek().ok_or(Sense::OPCODE)?;
    let wanted = |e: &&Entry| e.action.is_none_or(|a| a == cdb[1] & 0x1f);
    // An unknown service action is an invalid field.
    same.find(wanted).ok_or(Sense::FIELD)
}

/// A command timeouts descriptor that specifies no timeouts.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// REPORT SUPPORTED OPERATION CODES.
pub(super) fn report(cdb: &Cdb, elsewhere: bool) -> Result<Command, Sense> {
    let timeouts = cdb[2] & 0x80 != 0;
    let (opcode, wanted, most) = (cdb[3], be16(cdb, 4), be32(cdb, 6));
    let how = cdb[2] & 7;
    if how == 0 {
        return Ok(Command::Reply(all(timeouts), most));
    }
    let all = COMMANDS.iter();
    let mut same = all.filter(|e| e.opcode() == opcode).peekable();
    let has_actions = same.peek().is_some_and(|e| e.action.is_some());
    match (how, has_actions) {
        (1, true) | (2, false) if same.peek().is_some() => return Err(Sense::FIELD),
        (1..=3, _) => {}
        _ => return Err(Sense::FIELD),
    }
    let found = same.find(|e| match e.action {
        Some(action) => u32::from(action) == wanted,
        None => how == 1 || wanted == 0,
    });
    let mut bytes = vec![0, 1, 0, 0];
    if let Some(entry) = found {
        let usage = entry.usage(elsewhere);
        bytes[1] = 3;
        bytes[3] = usage.len() as u8;
        bytes.extend(usage);
        if timeouts {
            bytes[1] |= 0x80;
            bytes.extend(TIMEOUTS);
        }
    }
    Ok(Command::Reply(bytes, most))
}

fn all(timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for e in COMMANDS {
        let flags = u8::from(e.action.is_some()) | if timeouts { 2 } else { 0 };
        let (action, len) = (e.action.unwrap_or(0), e.usage.len() as u8);
        bytes.extend([e.opcode(), 0, 0, action, 0, flags, 0, len]);
        if timeouts {
            bytes.extend(TIMEOUTS);
        }
    }
    let len = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL
/// UNIT RESET.
pub(super) fn task_management(cdb: &Cdb) -> Result<Command, Sense> {
    let most = be32(cdb, 6);
    if most < 4 {
        return Err(Sense::FIELD);
    }
    let mut bytes = vec![0xd8, 0, 0, 0];
    if cdb[2] & 0x80 != 0 {
        bytes[3] = 12;
        bytes.resize(16, 0);
    }
    Ok(Command::Reply(bytes, most))
}
