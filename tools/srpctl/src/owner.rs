// SPDX-License-Identifier: GPL-2.0

//! The owner of a session: a file for each SCSI host in `/run/srp`.

use crate::{
    error::{Error, Result},
    session::Session,
    sysfs::Sysfs,
};
use serde::{Deserialize, Serialize};
use std::{fs, os::unix::fs::MetadataExt};

const FOLDER: &str = "/run/srp";

/// The record of a session. Sessions created by srp_daemon or by hand have none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Owner {
    /// Creator of the session: `srpctl` or `initramfs`.
    pub owner: String,
    /// Name of the target's file in targets.d.
    pub target: Option<String>,
    /// Initiator extension, which distinguishes sessions with one target. The kernel does not show
    /// it.
    pub initiator_ext: String,
    /// Inode of the host's directory in sysfs, because host numbers are reused.
    pub inode: u64,
}

impl Owner {
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

    pub fn of(sysfs: &Sysfs, session: &Session) -> Option<Self> {
        let text = fs::read_to_string(sysfs.path(FOLDER).join(session.name())).ok()?;
        let owner: Self = toml::from_str(&text).ok()?;
        (owner.inode == inode(sysfs, session).ok()?).then_some(owner)
    }

    pub fn forget(sysfs: &Sysfs, session: &Session) {
        // There may be no record, because /run is empty after a boot.
        let _ = fs::remove_file(sysfs.path(FOLDER).join(session.name()));
    }
}

/// Returns the inode of the host's directory. sysfs does not reuse inodes until a reboot.
fn inode(sysfs: &Sysfs, session: &Session) -> Result<u64> {
    let folder = session.folder(sysfs);
    let found = fs::metadata(&folder).map_err(|e| Error::io(&folder, e))?;
    Ok(found.ino())
}
