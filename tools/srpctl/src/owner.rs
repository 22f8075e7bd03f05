// SPDX-License-Identifier: GPL-2.0

//! The owner of a session: a file for each SCSI host in `/run/srp`.

use crate::{
    error::{Error, Result},
    session::Session,
    sysfs::{self, Sysfs},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
};
use tempfile::NamedTempFile;

pub const FOLDER: &str = "/run/srp";
/// The creator of a session that srpctl may log out of.
pub const OURS: &str = "srpctl";
/// The creator of a session that the initramfs logs in to.
pub const INITRAMFS: &str = "initramfs";

/// The record of a session. Sessions created by srp_daemon or by hand have none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Owner {
    /// Creator of the session: `srpctl` or `initramfs`.
    pub owner: String,
    /// Name of the target's file in targets.d.
    pub target: Option<String>,
    /// Initiator extension, which distinguishes sessions with one target. The C driver does not
    /// show it.
    pub initiator_ext: String,
    /// Inode of the host's directory in sysfs, because host numbers are reused.
    pub inode: u64,
    /// Login options of the target, as its file has them. A host name stays a name.
    #[serde(default)]
    pub login: Option<String>,
}

impl Owner {
    pub fn record(
        sysfs: &Sysfs,
        session: &Session,
        owner: &str,
        target: Option<&str>,
        initiator_ext: &str,
        login: Option<&str>,
    ) -> Result {
        let folder = sysfs.path(FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let owner = Self {
            owner: owner.into(),
            target: target.map(str::to_string),
            initiator_ext: initiator_ext.into(),
            inode: inode(sysfs, session)?,
            login: login.map(str::to_string),
        };
        let path = folder.join(session.name());
        let text = toml::to_string(&owner).map_err(|e| Error::Program(e.to_string()))?;
        // Other users' monitoring programs read the file, so set its mode regardless of the umask.
        let write = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(&folder)?;
            file.write_all(text.as_bytes())?;
            let mode = Permissions::from_mode(0o644);
            file.as_file().set_permissions(mode)?;
            file.persist(&path)?;
            fs::set_permissions(&folder, Permissions::from_mode(0o755))
        };
        write().map_err(|e| Error::io(&path, e))
    }

    pub fn of(sysfs: &Sysfs, session: &Session) -> Option<Self> {
        let text = fs::read_to_string(sysfs.path(FOLDER).join(session.name())).ok()?;
        let owner: Self = toml::from_str(&text).ok()?;
        (owner.inode == inode(sysfs, session).ok()?).then_some(owner)
    }

    pub fn forget(sysfs: &Sysfs, session: &Session) {
        // There may be no record, because /run is empty after a boot.
        let _ = fs::remove_file(sysfs.path(FOLDER).join(session.name()));
        let _ = fs::remove_file(leaving(sysfs, session));
    }

    /// Records that the logout of a session has begun. Its remote port stays for a moment.
    pub fn begin_leaving(sysfs: &Sysfs, session: &Session) -> Result {
        let path = leaving(sysfs, session);
        let inode = inode(sysfs, session)?.to_string();
        let folder = sysfs.path(FOLDER);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, inode))
            .map_err(|e| Error::io(path, e))
    }

    /// Returns whether the logout of a session has begun.
    pub fn is_leaving(sysfs: &Sysfs, session: &Session) -> bool {
        let inode = inode(sysfs, session).ok();
        inode.is_some() && sysfs::number(leaving(sysfs, session)) == inode
    }
}

fn leaving(sysfs: &Sysfs, session: &Session) -> PathBuf {
    sysfs
        .path(FOLDER)
        .join(format!("{}.leaving", session.name()))
}

/// Returns the inode of the host's directory. sysfs does not reuse inodes until a reboot.
fn inode(sysfs: &Sysfs, session: &Session) -> Result<u64> {
    let folder = session.folder(sysfs);
    let found = fs::metadata(&folder).map_err(|e| Error::io(&folder, e))?;
    Ok(found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_read_it() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let session = Session::default();
        fs::create_dir_all(session.folder(&sysfs)).unwrap();
        // As with a umask of 077.
        let folder = root.path().join("run/srp");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        Owner::record(&sysfs, &session, "srpctl", None, "0x1", None).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.join("host0")), 0o644);
        assert_eq!(mode(folder.clone()), 0o755);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }
}
