// SPDX-License-Identifier: GPL-2.0

//! Checks whether a logical unit still exists: sends an INQUIRY through the read() and write()
//! interface of the SCSI generic driver.

use crate::sysfs::{self, Sysfs};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit of an INQUIRY.
const PATIENCE: Duration = Duration::from_secs(10);

/// Length of `struct sg_header`.
const HEADER: usize = 36;
/// Length of standard INQUIRY data.
const DATA: usize = 36;
/// Offset of `reply_len` in `struct sg_header`, and of `sense_buffer`, which is at its end.
const REPLY_LEN: usize = 4;
const SENSE: usize = 20;
/// The bits of `target_status` and `host_status` after `twelve_byte`.
const STATUSES: u32 = 0x3ffe;
/// ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED: sense key, additional sense code.
const NOT_SUPPORTED: (u8, u8) = (5, 0x25);

/// The answer of a logical unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The logical unit exists.
    There,
    /// The target has no such logical unit.
    Gone,
    /// No answer, or an unexpected one.
    None,
    /// Not asked, because the module sg is missing.
    Unasked,
}

/// Sends an INQUIRY to the logical unit of a disk.
pub fn ask(sysfs: &Sysfs, disk: &str) -> Answer {
    let folder = format!("/sys/class/block/{disk}/device/scsi_generic");
    let Some(generic) = sysfs.entries(folder).first().map(sysfs::name) else {
        return Answer::Unasked;
    };
    reply(sysfs, &generic).map_or(Answer::None, |reply| answer(&reply))
}

/// Sends an INQUIRY and returns the reply with its header.
fn reply(sysfs: &Sysfs, generic: &str) -> Option<[u8; HEADER + DATA]> {
    let mut file: File = OpenOptions::new()
        .read(true)
        .write(true)
        // Otherwise the open waits while the midlayer handles errors.
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(sysfs.path(format!("/dev/{generic}")))
        .ok()?;
    let mut request = [0; HEADER + 6];
    let length = u32::try_from(HEADER + DATA).ok()?;
    request[REPLY_LEN..REPLY_LEN + 4].copy_from_slice(&length.to_ne_bytes());
    request[HEADER..].copy_from_slice(&[0x12, 0, 0, 0, DATA as u8, 0]);
    file.write_all(&request).ok()?;
    let end = Instant::now() + PATIENCE;
    let mut reply = [0; HEADER + DATA];
    loop {
        match file.read(&mut reply) {
            Ok(_) => return Some(reply),
            Err(e) if e.raw_os_error() == Some(Errno::EAGAIN as i32) && Instant::now() < end => {
                sleep(Duration::from_millis(2));
            }
            Err(_) => return None,
        }
    }
}

/// Interprets the reply to an INQUIRY.
fn answer(reply: &[u8; HEADER + DATA]) -> Answer {
    let status = u32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
    let sense = &reply[SENSE..HEADER];
    let (key, code) = match sense[0] & 0x7f {
        0x70 => (sense[2] & 0xf, sense[12]),
        0x72 => (sense[1] & 0xf, sense[2]),
        _ => (0, 0),
    };
    if (key, code) == NOT_SUPPORTED {
        return Answer::Gone;
    }
    if status & STATUSES != 0 {
        return Answer::None;
    }
    // The peripheral qualifier is 0 if a device is connected.
    match reply[HEADER] >> 5 {
        0 => Answer::There,
        _ => Answer::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u32, sense: &[u8], data: u8) -> [u8; HEADER + DATA] {
        let mut reply = [0; HEADER + DATA];
        reply[16..20].copy_from_slice(&status.to_ne_bytes());
        reply[SENSE..SENSE + sense.len()].copy_from_slice(sense);
        reply[HEADER] = data;
        reply
    }

    #[test]
    fn only_a_target_that_says_so_has_no_unit() {
        let fixed = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0];
        let check = 1 << 1;
        assert_eq!(answer(&reply(0, &[], 0)), Answer::There);
        assert_eq!(answer(&reply(0, &[], 0x3f)), Answer::Gone);
        assert_eq!(answer(&reply(0, &[], 0x7f)), Answer::Gone);
        assert_eq!(answer(&reply(check, &fixed, 0)), Answer::Gone);
        assert_eq!(answer(&reply(check, &[0x72, 5, 0x25, 0], 0)), Answer::Gone);
        // A unit attention, and a command that has timed out in the transport.
        assert_eq!(
            answer(&reply(check, &[0x72, 6, 0x3f, 0xe], 0x7f)),
            Answer::None
        );
        assert_eq!(answer(&reply(3 << 6, &[], 0x7f)), Answer::None);
    }
}
