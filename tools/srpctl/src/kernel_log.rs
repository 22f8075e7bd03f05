// SPDX-License-Identifier: GPL-2.0

//! The kernel's messages about sessions.

use crate::{
    port::Port,
    program::{self, Output},
    sysfs::Sysfs,
    target::{End, Target},
};
use nix::time::{clock_gettime, ClockId};
use serde_json::Value;
use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const FILE: &str = "/dev/kmsg";
/// The part of a line that names the driver.
const DRIVER: &str = "ib_srp: ";

/// A line of the kernel log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    pub time: SystemTime,
    pub text: String,
}

/// The kernel log, read from a given time on.
pub struct KernelLog(File);

impl KernelLog {
    /// Skips all earlier messages. Returns `None` if this user may not read the log.
    pub fn from_now() -> Option<Self> {
        let mut log = Self::from_start(&Sysfs::system())?;
        log.0.seek(SeekFrom::End(0)).ok()?;
        Some(log)
    }

    /// Begins with the oldest message in the kernel's buffer.
    fn from_start(sysfs: &Sysfs) -> Option<Self> {
        OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(sysfs.path(FILE))
            .ok()
            .map(Self)
    }

    /// Returns the lines since the previous call, or since [`KernelLog::from_now`].
    pub fn lines(&mut self) -> Vec<Line> {
        let mut found = Vec::new();
        // The log counts from the boot.
        let uptime = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Into::into);
        let boot = SystemTime::now() - uptime;
        // Each read returns one record.
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(n) => found.extend(line(&String::from_utf8_lossy(&record[..n]), boot)),
                // Records were overwritten before they were read (EPIPE).
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        found
    }

    /// Returns the reason for the failure of a login to `target` through `port`, if the log has it.
    pub fn reason(&mut self, port: &Port, target: &Target) -> Option<String> {
        let lines = self.lines().into_iter();
        let messages: Vec<String> = lines.map(|line| line.text).collect();
        reason(&messages, port, target)
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parses a record: `PRIORITY,NUMBER,MICROSECONDS,...;TEXT`, then lines of other data.
fn line(record: &str, boot: SystemTime) -> Option<Line> {
    let (head, rest) = record.split_once(';')?;
    let microseconds = head.split(',').nth(2)?.parse().ok()?;
    Some(Line {
        time: boot + Duration::from_micros(microseconds),
        text: rest.lines().next()?.to_string(),
    })
}

/// Returns the lines of the driver since the boot: from systemd's journal, or if that has none from
/// the kernel's buffer, which is smaller. Returns `None` if this user may read neither.
pub fn since_boot(sysfs: &Sysfs) -> Option<Vec<Line>> {
    lines_by(sysfs, program::run)
}

/// As [`since_boot`], with this function to run journalctl.
pub fn lines_by(sysfs: &Sysfs, run: impl Fn(&[&str]) -> Output) -> Option<Vec<Line>> {
    let journal = journal(sysfs, run).filter(|lines| !lines.is_empty());
    journal.or_else(|| {
        let mut lines = KernelLog::from_start(sysfs)?.lines();
        lines.retain(|line| line.text.contains(DRIVER));
        Some(lines)
    })
}

/// The command that prints the driver's lines of systemd's journal.
pub const JOURNAL: [&str; 7] = [
    "journalctl",
    "--quiet",
    "--dmesg",
    "--boot",
    "--output=json",
    "--output-fields=MESSAGE",
    "--grep=ib_srp: ",
];

/// Returns the lines of the driver in systemd's journal.
fn journal(sysfs: &Sysfs, run: impl Fn(&[&str]) -> Output) -> Option<Vec<Line>> {
    if !sysfs.path("/run/systemd/journal").exists() {
        return None;
    }
    let text = run(&JOURNAL).ok()?;
    Some(entries(&String::from_utf8_lossy(&text)))
}

/// Parses what journalctl prints: one object a line.
fn entries(text: &str) -> Vec<Line> {
    let parse = |line: &str| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let microseconds = entry["__REALTIME_TIMESTAMP"].as_str()?.parse().ok()?;
        Some(Line {
            time: UNIX_EPOCH + Duration::from_micros(microseconds),
            text: entry["MESSAGE"].as_str()?.to_string(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns how the log names a target: its 16 bytes in hexadecimal, with colons.
pub fn target_id(id_ext: &str, ioc_guid: &str) -> String {
    let digits: Vec<char> = [id_ext, ioc_guid]
        .iter()
        .flat_map(|number| number.trim_start_matches("0x").chars())
        .collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs.collect::<Vec<_>>().join(":")
}

/// Returns the part of a message that names the target.
pub fn id(target: &Target) -> Option<String> {
    let (id_ext, ioc_guid, _) = target.key().ok()?;
    Some(format!("target {}: ", target_id(&id_ext, &ioc_guid)))
}

/// Returns the reason in the last message about this login. Other logins may run on the same port.
fn reason(messages: &[String], port: &Port, target: &Target) -> Option<String> {
    let id = id(target)?;
    let ours = format!("ib_srp: {}:{}", port.device, port.number);
    let dest = target.ends().ok().flatten().map(|(_, dest)| dest);
    let dgid = target.dgid().ok().flatten();
    // Another path to the target has another address or GID.
    let is_at = |at: &str| match (End::parse(at), &dest, &dgid) {
        (Some(at), Some(dest), _) => at.is(dest),
        (None, _, Some(dgid)) => at == dgid,
        _ => true,
    };
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
            .split_once("login at ")
            .and_then(|(_, rest)| rest.split_once(" failed: "))
            .filter(|(at, _)| is_at(at))
            .map(|(_, why)| why);
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
        assert_eq!(said(&[&failed.replace("10.0.0.1", "10.0.0.3")]), None);
        assert_eq!(
            said(&["ib_srp: rxe0:1: login refused: the port has no GID"]).as_deref(),
            Some("the port has no GID")
        );
        assert_eq!(said(&["ib_srp: rxe1:1: login refused: no"]), None);
    }

    #[test]
    fn a_line_has_its_time() {
        let boot = UNIX_EPOCH + Duration::from_secs(1000);
        let text = "scsi host7: ib_srp: x";
        let record = format!("3,339,2500000,-;{text}\n SUBSYSTEM=scsi\n");
        let expected = Line {
            time: UNIX_EPOCH + Duration::from_millis(1_002_500),
            text: text.into(),
        };
        assert_eq!(line(&record, boot), Some(expected.clone()));
        let entry = format!(
            "{{\"MESSAGE\":\"{text}\",\"__REALTIME_TIMESTAMP\":\"1002500000\"}}\n\
             {{\"MESSAGE\":[1,2],\"__REALTIME_TIMESTAMP\":\"1\"}}\n"
        );
        assert_eq!(entries(&entry), [expected]);
    }

    #[test]
    fn a_log_that_cannot_be_read_is_not_an_empty_one() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        assert_eq!(since_boot(&sysfs), None);
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kmsg"), "6,1,1,-;eth0: up\n").unwrap();
        assert_eq!(since_boot(&sysfs), Some(Vec::new()));
    }
}
