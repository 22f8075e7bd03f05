// SPDX-License-Identifier: GPL-2.0

//! The kernel's messages about a login.

use crate::{port::Port, target::Target};
use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

/// The kernel log, read from a given time on.
pub struct KernelLog(File);

impl KernelLog {
    /// Skips all earlier messages. Returns `None` if this user may not read the log.
    pub fn from_now() -> Option<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Self(file))
    }

    /// Returns the messages since the previous call, or since [`KernelLog::from_now`].
    fn messages(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        // Each read returns one record.
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(n) => {
                    let text = String::from_utf8_lossy(&record[..n]);
                    let message = text.split_once(';').map(|(_, rest)| rest);
                    found.extend(message.and_then(|m| m.lines().next()).map(str::to_string));
                }
                // Records were overwritten before they were read (EPIPE).
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        found
    }

    /// Returns the reason for the failure of a login to `target` through `port`, if the log has it.
    pub fn reason(&mut self, port: &Port, target: &Target) -> Option<String> {
        let messages = self.messages();
        reason(&messages, port, target)
    }
}

/// Returns the part of a message that names the target.
pub fn id(target: &Target) -> Option<String> {
    let (id_ext, ioc_guid, _) = target.key().ok()?;
    let digits = format!("{}{}", &id_ext[2..], &ioc_guid[2..]);
    let pairs: Vec<&str> = (0..digits.len())
        .step_by(2)
        .map(|i| &digits[i..i + 2])
        .collect();
    Some(format!("target {}: ", pairs.join(":")))
}

/// Returns the reason in the last message about this login. Other logins may run on the same port.
fn reason(messages: &[String], port: &Port, target: &Target) -> Option<String> {
    let id = id(target)?;
    let ours = format!("ib_srp: {}:{}", port.device, port.number);
    messages.iter().rev().find_map(|message| {
        if !message.contains("ib_srp: ") || message.contains(" target ") && !message.contains(&id) {
            return None;
        }
        let (head, refused) = match message.split_once("login refused: ") {
            Some((head, why)) => (head, Some(why)),
            None => (message.as_str(), None),
        };
        let of_port = head.contains(&ours);
        let failed = message
            .contains("login at ")
            .then(|| message.split_once(" failed: ").map(|(_, why)| why))
            .flatten();
        let why = refused.filter(|_| of_port).or(failed)?;
        Some(why.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(messages: &[&str]) -> Option<String> {
        let port = Port {
            folder: "/x".into(),
            device: "rxe0".into(),
            number: 1,
        };
        let target = Target {
            options: vec![
                ("dest", "10.0.0.1:5555".into()),
                ("id_ext", "1".into()),
                ("ioc_guid", "2".into()),
            ],
            ..Target::default()
        };
        let messages: Vec<String> = messages.iter().map(|m| m.to_string()).collect();
        reason(&messages, &port, &target)
    }

    #[test]
    fn is_that_of_this_login() {
        let ours = "00:00:00:00:00:00:00:01:00:00:00:00:00:00:00:02";
        let failed = format!(
            "ib_srp: rxe0:1 target {ours}: login at 10.0.0.1:5555 failed: connection rejected: invalid service ID"
        );
        let other = "ib_srp: rxe0:1 target 00:00:00:00:00:00:00:01:00:00:00:00:00:00:00:03: \
            login at 10.0.0.1:5555 failed: no memory";
        assert_eq!(
            said(&[&failed, other, "eth0: link is down"]).as_deref(),
            Some("connection rejected: invalid service ID")
        );
        assert_eq!(said(&[other]), None);
        assert_eq!(
            said(&["ib_srp: rxe0:1: login refused: the port has no GID"]).as_deref(),
            Some("the port has no GID")
        );
        assert_eq!(said(&["ib_srp: rxe1:1: login refused: no"]), None);
    }
}
