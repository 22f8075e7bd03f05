// SPDX-License-Identifier: GPL-2.0

//! Who has made a session: a file for each SCSI host in `/run/srp`.

use crate::{
    error::{Error, Result},
    session::Session,
    sysfs::Sysfs,
};
use serde::{Deserialize, Serialize};
use std::fs;

const FOLDER: &str = "/run/srp";

/// What is on record. A session without a record is srp_daemon's, or that of somebody at a shell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Owner {
    /// `srpctl`, or `initramfs`.
    pub owner: String,
    /// The target's file in targets.d.
    pub target: Option<String>,
    /// The session that is meant, as numbers of hosts are used again.
    pub session: String,
}

impl Owner {
    /// Puts a session on record.
    pub fn record(sysfs: &Sysfs, session: &Session, owner: &str, target: Option<&str>) -> Result {
        let folder = sysfs.path(FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let owner = Self {
            owner: owner.into(),
            target: target.map(str::to_string),
            session: session.identity(),
        };
        let path = folder.join(session.name());
        let text = toml::to_string(&owner).map_err(|e| Error::Program(e.to_string()))?;
        fs::write(&path, text).map_err(|e| Error::io(&path, e))
    }

    /// What is on record of a session.
    pub fn of(sysfs: &Sysfs, session: &Session) -> Option<Self> {
        let text = fs::read_to_string(sysfs.path(FOLDER).join(session.name())).ok()?;
        let owner: Self = toml::from_str(&text).ok()?;
        (owner.session == session.identity()).then_some(owner)
    }

    /// Takes a session off the record.
    pub fn forget(sysfs: &Sysfs, session: &Session) {
        // There may be none, and /run is empty after a boot.
        let _ = fs::remove_file(sysfs.path(FOLDER).join(session.name()));
    }
}
