// SPDX-License-Identifier: GPL-2.0

//! What `srpctl events` prints.

use crate::{disk, session::Session};
use humantime::format_rfc3339_millis;
use serde::Serialize;
use std::{fmt, time::SystemTime};

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// When, as RFC 3339 has it.
    time: String,
    /// The session; `None` at the start.
    #[serde(flatten)]
    subject: Option<Subject>,
    #[serde(flatten)]
    what: What,
}

/// The session of an event, as in `srpctl list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Subject {
    host: u32,
    target: Option<String>,
    id_ext: String,
    ioc_guid: String,
    device: String,
    port: u32,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// Events from now on are printed.
    Start { sessions: usize },
    /// There is a new session.
    Login { address: String, channels: u32 },
    /// The session is gone.
    Logout { reason: Option<String> },
    /// The connection was lost, `count` times since the event before.
    Loss { reason: Option<String>, count: u64 },
    /// There is a connection again.
    Reconnect { seconds: f64, channels: u32 },
    /// Channels have come or gone while others remained.
    Channels {
        channels: u32,
        requested: Option<u32>,
    },
    /// The state of the remote port has changed.
    State { from: String, state: String },
    /// A disk is new.
    DiskNew {
        disk: String,
        lun: u64,
        size: u64,
        model: String,
    },
    /// A disk is gone.
    DiskGone { disk: String, lun: u64 },
    /// A disk has another size.
    DiskSize { disk: String, lun: u64, size: u64 },
    /// A multipath map has stopped using the disk.
    PathFailed(Path),
    /// A multipath map uses the disk again.
    PathReinstated(Path),
}

/// A disk as a path of a multipath map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Path {
    pub disk: String,
    pub multipath: String,
    /// The number of paths that the map can use.
    pub paths: Option<u32>,
}

impl Event {
    pub fn new(time: SystemTime, session: Option<&Session>, what: What) -> Self {
        Self {
            time: format_rfc3339_millis(time).to_string(),
            subject: session.map(|session| Subject {
                host: session.host,
                target: session.target.clone(),
                id_ext: session.id_ext.clone(),
                ioc_guid: session.ioc_guid.clone(),
                device: session.device.clone(),
                port: session.port,
            }),
            what,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.time)?;
        if let Some(subject) = &self.subject {
            let id = format!("{}:{}", subject.id_ext, subject.ioc_guid);
            let target = subject.target.as_ref().unwrap_or(&id);
            write!(f, "host{} {target}: ", subject.host)?;
            if let What::Login { address, channels } = &self.what {
                let through = format!("{}/{}", subject.device, subject.port);
                return write!(
                    f,
                    "logged in at {address} through {through}, channels: {channels}"
                );
            }
        }
        self.what.fmt(f)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = |path: &Path| path.paths.map_or("-".into(), |paths| paths.to_string());
        match self {
            Self::Start { sessions } => write!(f, "sessions: {sessions}"),
            Self::Login { address, .. } => write!(f, "logged in at {address}"),
            Self::Logout { reason: Some(why) } => write!(f, "logged out: {why}"),
            Self::Logout { reason: None } => write!(f, "logged out"),
            Self::Loss { reason, count } => {
                let why = reason.as_deref().unwrap_or("reason unknown");
                match count {
                    1 => write!(f, "connection lost: {why}"),
                    _ => write!(f, "connection lost {count} times, last: {why}"),
                }
            }
            Self::Reconnect { seconds, channels } => {
                write!(f, "reconnected after {seconds:.1} s, channels: {channels}")
            }
            Self::Channels {
                channels,
                requested: Some(all),
            } => write!(f, "channels: {channels} of {all}"),
            Self::Channels { channels, .. } => write!(f, "channels: {channels}"),
            Self::State { from, state } => write!(f, "{from} -> {state}"),
            Self::DiskNew {
                disk,
                lun,
                size,
                model,
            } => write!(
                f,
                "{disk} is new: LUN {lun}, {}, {model}",
                disk::size(*size)
            ),
            Self::DiskGone { disk, lun } => write!(f, "{disk} (LUN {lun}) is gone"),
            Self::DiskSize { disk, lun, size } => {
                write!(f, "{disk} (LUN {lun}) has {}", disk::size(*size))
            }
            Self::PathFailed(path) => write!(
                f,
                "{} is a failed path of {}, paths left: {}",
                path.disk,
                path.multipath,
                paths(path)
            ),
            Self::PathReinstated(path) => write!(
                f,
                "{} is a path of {} again, paths: {}",
                path.disk,
                path.multipath,
                paths(path)
            ),
        }
    }
}
