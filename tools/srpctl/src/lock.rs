// SPDX-License-Identifier: GPL-2.0

//! Locks between srpctl processes: files in `/run/srp`.

use crate::{
    error::{Error, Result},
    out::tell,
    owner,
    sysfs::{self, Sysfs},
};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit of the wait for a lock. A login or a logout takes less, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(100);
/// Time after which the wait is reported.
const SILENCE: Duration = Duration::from_secs(3);
/// Delay between two attempts: flock() has no time limit.
const PAUSE: Duration = Duration::from_millis(20);

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Waits for the lock `name`. Its file is never removed: a lock on a removed file excludes no
    /// process that creates the file anew.
    ///
    /// # Errors
    ///
    /// [`Error::Late`], with the process that holds the lock, if it is held for too long.
    pub fn take(sysfs: &Sysfs, name: &str) -> Result<Self> {
        Self::within(sysfs, name, PATIENCE)
    }

    fn within(sysfs: &Sysfs, name: &str, patience: Duration) -> Result<Self> {
        let path = sysfs.path(owner::FOLDER).join(format!("{name}.lock"));
        let mut lock = wait(sysfs, &path, patience)?;
        // For the message of a process that waits. The lock works without it, if /run is full.
        let id = format!("{}\n", process::id());
        let _ = lock.set_len(0).and_then(|()| lock.write_all(id.as_bytes()));
        Ok(Self { _file: lock })
    }
}

/// Opens the file of a lock, which is created if it is missing.
pub fn open(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    }
    let file = File::options().create(true).append(true).open(path);
    file.map_err(|e| Error::io(path, e))
}

/// Waits for the lock of a file.
///
/// # Errors
///
/// [`Error::Late`] if it is held for longer than `patience`.
pub fn wait(sysfs: &Sysfs, path: &Path, patience: Duration) -> Result<Flock<File>> {
    let mut file = open(path)?;
    let begin = Instant::now();
    let mut said = false;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, e)) => return Err(Error::io(path, e.into())),
        }
        let waited = begin.elapsed();
        if waited >= patience {
            return Err(Error::Late(format!(
                "{} has held {} for {} s; try again when it has ended, or end it",
                holder(sysfs, path),
                path.display(),
                waited.as_secs()
            )));
        }
        if waited >= SILENCE && !said {
            tell!("waiting for {}", holder(sysfs, path));
            said = true;
        }
        sleep(PAUSE);
    }
}

/// Returns the program that holds a lock, and its process ID.
fn holder(sysfs: &Sysfs, path: &Path) -> String {
    let Some(id) = sysfs::number::<u32>(path) else {
        return "another srpctl".into();
    };
    let program = sysfs::text(sysfs.path(format!("/proc/{id}/comm")));
    format!("{} (process {id})", program.as_deref().unwrap_or("srpctl"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
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

    #[test]
    fn a_lock_that_is_held_for_long_is_not_awaited() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let held = Lock::take(&sysfs, "a").unwrap();
        let own = root.path().join(format!("proc/{}", process::id()));
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("comm"), "holder\n").unwrap();
        let error = Lock::within(&sysfs, "a", PAUSE * 2).unwrap_err();
        assert_eq!(error.status(), 8);
        let who = format!("holder (process {}) has held ", process::id());
        assert!(error.to_string().starts_with(&who), "{error}");
        drop(held);
        // The file of an earlier holder is replaced.
        let path = root.path().join("run/srp/a.lock");
        fs::write(&path, "1234567890\n").unwrap();
        let _held = Lock::within(&sysfs, "a", PAUSE).unwrap();
        assert_eq!(sysfs::number(&path), Some(process::id()));
    }
}
