// SPDX-License-Identifier: GPL-2.0

//! Who has made a session: a file for each SCSI host in `/run/srp`.

use crate::{
    error::{Error, Result},
    session::Session,
    sysfs::Sysfs,
};
use serde::{Deserialize, Serialize};
use std::{fs, os::unix::fs::MetadataExt};

const FOLDER: &str = "/run/srp";

/// What is on record. A session without a record is srp_daemon's, or that of somebody at a shell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Owner {
    /// `srpctl`, or `initramfs`.
    pub owner: String,
    /// The target's file in targets.d.
    pub target: Option<String>,
    /// What tells two sessions at one target from each other, which the kernel shows nowhere.
    pub initiator_ext: String,
    /// Its folder in sysfs, as numbers of hosts are used again.
    pub inode: u64,
}

impl Owner {
    /// Puts a session on record.
    pub fn record(
        sysfs: &Sysfs,
        session: &Session,
        owner: &str,
        target: Option<&str>,
        initiator_ext: &str,
    ) -> Result {
        let folder = sysfs.path(FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let owner = Self {
            owner: owner.into(),
            target: target.map(str::to_string),
            initiator_ext: initiator_ext.into(),
            inode: inode(sysfs, session)?,
        };
        let path = folder.join(session.name());
        let text = toml::to_string(&owner).map_err(|e| Error::Program(e.to_string()))?;
        fs::write(&path, text).map_err(|e| Error::io(&path, e))
    }

    /// What is on record of a session.
    pub fn of(sysfs: &Sysfs, session: &Session) -> Option<Self> {
        let text = fs::read_to_string(sysfs.path(FOLDER).join(session.name())).ok()?;
        let owner: Self = toml::from_str(&text).ok()?;
        (owner.inode == inode(sysfs, session).ok()?).then_some(owner)
    }

    /// Takes a session off the record.
    pub fn forget(sysfs: &Sysfs, session: &Session) {
        // There may be none, and /run is empty after a boot.
        let _ = fs::remove_file(sysfs.path(FOLDER).join(session.name()));
    }
}

/// No two folders of sysfs have had the same since the machine was started.
fn inode(sysfs: &Sysfs, session: &Session) -> Result<u64> {
    let folder = session.folder(sysfs);
    let found = fs::metadata(&folder).map_err(|e| Error::io(&folder, e))?;
    Ok(found.ino())
}
