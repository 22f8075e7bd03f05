// SPDX-License-Identifier: GPL-2.0

//! The losses of a session's connection, from the lines of the driver in the kernel log.

use crate::{
    kernel_log::{self, Line},
    session::Session,
    sysfs::Sysfs,
};
use humantime::format_rfc3339_millis;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, time::SystemTime};

/// The number of losses that are kept for a session.
const LIMIT: usize = 32;

/// What a line of the driver says about a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Said {
    LoggedIn,
    Lost(String),
    Reconnected,
}

impl Said {
    /// Parses `scsi hostN: ib_srp: PORT target ID: TEXT`. Returns the host, and what identifies the
    /// session there: `PORT target ID`.
    pub fn parse(text: &str) -> Option<(u32, &str, Self)> {
        let (host, rest) = text.strip_prefix("scsi host")?.split_once(": ib_srp: ")?;
        let target = rest.find(" target ")?;
        let end = target + rest[target..].find(": ")?;
        let said = &rest[end + 2..];
        let said = match said.strip_prefix("connection lost: ") {
            Some(why) => Self::Lost(why.to_string()),
            None if said.starts_with("reconnected, ") => Self::Reconnected,
            None if said.starts_with("logged in at ") => Self::LoggedIn,
            None => return None,
        };
        Some((host.parse().ok()?, &rest[..end], said))
    }
}

/// How a loss has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The session has another connection.
    Reconnected,
    /// The session was removed, and there is another one with the target.
    NewSession,
    /// The connection is still lost.
    Open,
    /// The log has no line about the end.
    Unknown,
}

/// A loss of the connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// When the connection was lost, as RFC 3339 has it.
    pub time: String,
    /// How long there was no connection; `None` if the end is unknown.
    pub seconds: Option<f64>,
    pub end: End,
    pub reason: String,
    /// The SCSI host of the session at that time.
    pub host: u32,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::Reconnected => "",
            End::NewSession => ", then a new session",
            End::Open => ", not back",
            End::Unknown => "end not logged",
        };
        let seconds = self.seconds.map(|seconds| format!("{seconds:.1} s"));
        let seconds = seconds.unwrap_or_default();
        write!(f, "{} {seconds}{end}: {}", self.time, self.reason)
    }
}

/// A loss, and what identifies its session.
struct Entry {
    begin: SystemTime,
    key: String,
    loss: Loss,
}

impl Entry {
    fn end(&mut self, end: End, time: SystemTime) {
        self.loss.end = end;
        self.loss.seconds = Some(seconds(self.begin, time));
    }
}

/// Returns a time in seconds, in whole milliseconds.
pub fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    let time = to.duration_since(from).unwrap_or_default();
    time.as_millis() as f64 / 1000.0
}

/// The indices of the entries that have not ended, by key.
type Open = BTreeMap<String, Vec<usize>>;

/// The losses of all sessions since the boot.
pub struct Losses {
    entries: Vec<Entry>,
    /// The host and the key of each session that exists.
    live: Vec<(u32, String)>,
}

impl Losses {
    /// Reads the kernel log. Returns `None` if it cannot be read.
    pub fn read(sysfs: &Sysfs) -> Option<Self> {
        let lines = kernel_log::since_boot(sysfs)?;
        Some(Self::new(&lines, &Session::hosts(sysfs), SystemTime::now()))
    }

    fn new(lines: &[Line], sessions: &[Session], now: SystemTime) -> Self {
        let live = sessions.iter().map(|session| (session.host, key(session)));
        let mut all = Self {
            entries: Vec::new(),
            live: live.collect(),
        };
        let mut open = Open::new();
        for line in lines {
            if let Some((host, key, said)) = Said::parse(&line.text) {
                all.add(&mut open, line.time, host, key, said);
            }
        }
        for index in open.into_values().flatten() {
            let entry = &mut all.entries[index];
            let is_live = all.live.contains(&(entry.loss.host, entry.key.clone()));
            let connected = sessions
                .iter()
                .any(|session| session.host == entry.loss.host && session.is_connected());
            match is_live && connected {
                // The line about the new connection is missing.
                true => entry.loss.end = End::Unknown,
                false => entry.end(End::Open, now),
            }
        }
        all
    }

    fn add(&mut self, open: &mut Open, time: SystemTime, host: u32, key: &str, said: Said) {
        let is_live = |host: u32| self.live.iter().any(|(h, k)| *h == host && k == key);
        let of_key = open.entry(key.to_string()).or_default();
        of_key.retain(|index| {
            let entry = &mut self.entries[*index];
            let of_host = entry.loss.host == host;
            if !of_host && (said != Said::LoggedIn || is_live(entry.loss.host)) {
                return true;
            }
            match said {
                Said::LoggedIn => entry.end(End::NewSession, time),
                Said::Reconnected => entry.end(End::Reconnected, time),
                // The driver limits the rate of its lines.
                Said::Lost(_) => entry.loss.end = End::Unknown,
            }
            false
        });
        if let Said::Lost(reason) = said {
            of_key.push(self.entries.len());
            let loss = Loss {
                time: format_rfc3339_millis(time).to_string(),
                seconds: None,
                end: End::Open,
                reason,
                host,
            };
            self.entries.push(Entry {
                begin: time,
                key: key.to_string(),
                loss,
            });
        }
    }

    /// Returns the last losses of a session, and of those with the same target and port that ended
    /// before it.
    pub fn of(&self, session: &Session) -> Vec<&Loss> {
        let key = key(session);
        let is_other = |host: u32| {
            host != session.host && self.live.iter().any(|(h, k)| *h == host && *k == key)
        };
        let entries = self.entries.iter();
        let mut all: Vec<&Loss> = entries
            .filter(|entry| entry.key == key && !is_other(entry.loss.host))
            .map(|entry| &entry.loss)
            .collect();
        all.drain(..all.len().saturating_sub(LIMIT));
        all
    }
}

/// Returns what identifies a session in the log.
fn key(session: &Session) -> String {
    let id = kernel_log::target_id(&session.id_ext, &session.ioc_guid);
    format!("{}:{} target {id}", session.device, session.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn session(host: u32, channels: u32) -> Session {
        Session {
            host,
            channels,
            id_ext: "0x0000000000000001".into(),
            ioc_guid: "0x0000000000000002".into(),
            device: "rxe0".into(),
            port: 1,
            state: "running".into(),
            ..Session::default()
        }
    }

    const ID: &str = "00:00:00:00:00:00:00:01:00:00:00:00:00:00:00:02";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn line(seconds: u64, host: u32, said: &str) -> Line {
        Line {
            time: at(seconds),
            text: format!("scsi host{host}: ib_srp: rxe0:1 target {ID}: {said}"),
        }
    }

    fn told(lines: &[Line], sessions: &[Session], which: usize) -> Vec<String> {
        let all = Losses::new(lines, sessions, at(100));
        let of = all.of(&sessions[which]).into_iter();
        of.map(ToString::to_string).collect()
    }

    #[test]
    fn each_loss_has_its_length() {
        let lines = [
            line(
                1,
                7,
                "logged in at 192.0.2.1:5555: 2 channels of 62 commands",
            ),
            line(10, 7, "connection lost: no response to a connection test"),
            line(
                11,
                7,
                "reconnect failed: target host does not answer (error -110)",
            ),
            line(12, 8, "connection lost: of another session"),
            line(22, 7, "reconnected, 2 of 2 channels"),
            line(30, 7, "connection lost: a: b"),
            line(40, 7, "connection lost: c"),
        ];
        assert_eq!(
            told(&lines, &[session(7, 0), session(8, 2)], 0),
            [
                "1970-01-01T00:00:10.000Z 12.0 s: no response to a connection test",
                "1970-01-01T00:00:30.000Z end not logged: a: b",
                "1970-01-01T00:00:40.000Z 60.0 s, not back: c",
            ]
        );
        let connected = told(&lines, &[session(7, 1), session(8, 2)], 0);
        assert_eq!(connected[2], "1970-01-01T00:00:40.000Z end not logged: c");
    }

    #[test]
    fn a_session_that_is_gone_counts_for_the_next() {
        let lines = [
            line(10, 7, "connection lost: a"),
            line(20, 9, "connection lost: b"),
            line(
                30,
                8,
                "logged in at 192.0.2.1:5555: 2 channels of 62 commands",
            ),
        ];
        let sessions = [session(8, 2), session(9, 0)];
        assert_eq!(
            told(&lines, &sessions, 0),
            ["1970-01-01T00:00:10.000Z 20.0 s, then a new session: a"]
        );
        let other = Session {
            device: "rxe1".into(),
            ..session(8, 2)
        };
        assert_eq!(told(&lines, &[other], 0), [""; 0]);
    }

    #[test]
    fn the_last_losses_are_kept() {
        let lines: Vec<Line> = (0..50)
            .flat_map(|n| {
                [
                    line(2 * n, 7, &format!("connection lost: {n}")),
                    line(2 * n + 1, 7, "reconnected, 2 of 2 channels"),
                ]
            })
            .collect();
        let told = told(&lines, &[session(7, 2)], 0);
        assert_eq!(told.len(), LIMIT);
        assert!(told[LIMIT - 1].ends_with(" 1.0 s: 49"));
    }
}
