// SPDX-License-Identifier: GPL-2.0

//! Locks between srpctl processes: files in `/run/srp`.

use crate::{
    disconnect,
    error::{Error, Result},
    owner, patience,
    sysfs::{self, Sysfs},
};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::stat::{major, minor},
};
use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit of the wait for a lock, as systemd's for a command. A login or a logout takes less,
/// unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(90);
const _: () = assert!(PATIENCE.as_secs() > disconnect::PATIENCE.as_secs());
/// Longest command that a message shows.
const COMMAND: usize = 120;
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
        let lock = wait(sysfs, &path, patience)?;
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
        if waited >= patience::SILENCE && !said {
            said = true;
            let (who, limit) = (holder(sysfs, path), patience.as_secs());
            patience::say(&format!("{who}, at most {limit} s"));
        }
        sleep(PAUSE);
    }
}

/// Returns the command that holds a lock, and its process ID.
fn holder(sysfs: &Sysfs, path: &Path) -> String {
    let Some(id) = process(sysfs, path) else {
        return "another srpctl".into();
    };
    let line = fs::read(sysfs.path(format!("/proc/{id}/cmdline"))).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let shown: String = line.trim_end().escape_default().take(COMMAND).collect();
    match shown.is_empty() {
        true => format!("process {id}"),
        false => format!("'{shown}' (process {id})"),
    }
}

/// Returns the process that holds the lock of a file.
fn process(sysfs: &Sysfs, path: &Path) -> Option<u32> {
    let file = fs::metadata(path).ok()?;
    let (device, inode) = (file.dev(), file.ino());
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    // NUMBER: FLOCK ADVISORY WRITE PROCESS MAJOR:MINOR:INODE START END
    let locks = sysfs::text(sysfs.path("/proc/locks"))?;
    let mut held = locks.lines().map(|line| line.split_whitespace().collect());
    held.find_map(|fields: Vec<&str>| match fields[..] {
        [_, "FLOCK", _, _, process, of, ..] if of == file => process.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::fs::symlink,
        process::{Command, Stdio},
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
        let error = Lock::within(&sysfs, "a", PAUSE * 2).unwrap_err();
        assert_eq!(error.status(), 8);
        let who = "another srpctl has held ";
        assert!(error.to_string().starts_with(who), "{error}");
        symlink("/proc", root.path().join("proc")).unwrap();
        let error = Lock::within(&sysfs, "a", PAUSE * 2).unwrap_err();
        let who = format!("' (process {}) has held ", std::process::id());
        assert!(error.to_string().contains(&who), "{error}");
        drop(held);
        let _held = Lock::within(&sysfs, "a", PAUSE).unwrap();
    }

    #[test]
    fn the_command_that_holds_a_lock_is_named() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        drop(Lock::take(&sysfs, "a").unwrap());
        symlink("/proc", root.path().join("proc")).unwrap();
        let path = root.path().join("run/srp/a.lock");
        let mut command = Command::new("flock");
        let mut child = command.arg(&path).args(["cat", "-", "a\u{1b}b"]);
        child = child.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let begin = Instant::now();
        while process(&sysfs, &path).is_none() {
            assert!(begin.elapsed() < PATIENCE, "no lock");
            sleep(PAUSE);
        }
        let path = path.display();
        let wanted = format!("'flock {path} cat - a\\u{{1b}}b' (process {})", child.id());
        let said = holder(&sysfs, &root.path().join("run/srp/a.lock"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(said, wanted);
    }
}
