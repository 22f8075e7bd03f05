// SPDX-License-Identifier: GPL-2.0

//! Locks between srpctl processes: files in `/run/srp`.

use crate::{
    error::{Error, Result},
    owner,
    sysfs::Sysfs,
};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Waits for the lock `name`. Its file is never removed: a lock on a removed file excludes no
    /// process that creates the file anew.
    pub fn take(sysfs: &Sysfs, name: &str) -> Result<Self> {
        let folder = sysfs.path(owner::FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let path = folder.join(format!("{name}.lock"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Error::io(&path, e))?;
        let file = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, e)| Error::io(&path, e.into()))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    #[test]
    fn excludes_the_same_name_only() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let held = Lock::take(&sysfs, "a").unwrap();
        let _other = Lock::take(&sysfs, "b").unwrap();
        let taken = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _again = Lock::take(&sysfs, "a").unwrap();
                taken.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(200));
            assert!(!taken.load(Ordering::SeqCst));
            drop(held);
        });
        assert!(taken.load(Ordering::SeqCst));
    }
}
