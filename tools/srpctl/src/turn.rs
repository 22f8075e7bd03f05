// SPDX-License-Identifier: GPL-2.0

//! The turn of a rescan: for each SCSI host one rescan runs, and one waits for its interval. The
//! locks are files in `/run/srp/rescan`.

use crate::{
    error::{Error, Result},
    lock,
    sysfs::Sysfs,
};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

const FOLDER: &str = "/run/srp/rescan";

/// Minimum interval of the rescans that a target requests.
const INTERVAL: Duration = Duration::from_secs(30);
/// Delay of a rescan, so that LUNs that are mapped one after another are found at once.
const DELAY: Duration = Duration::from_secs(1);
/// Time limit of a queued rescan's wait for another: the kernel asks each LUN, which may not
/// respond. An administrator's rescan waits as for other locks.
const QUEUED: Duration = Duration::from_secs(600);

/// The right to rescan a host.
pub struct Turn(Flock<File>);

impl Turn {
    /// Waits until no other rescan of the host is running.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] if one runs for too long.
    pub fn now(sysfs: &Sysfs, host: &str) -> Result<Self> {
        Self::within(sysfs, host, lock::PATIENCE)
    }

    fn within(sysfs: &Sysfs, host: &str, patience: Duration) -> Result<Self> {
        lock::wait(sysfs, &path(sysfs, host), patience).map(Self)
    }

    /// Waits until the interval has passed since the last rescan, until `ready` returns, and for
    /// the turn. Returns `None` if another rescan already waits, because it will find the same
    /// changes.
    pub fn after_interval(sysfs: &Sysfs, host: &str, ready: impl FnOnce()) -> Result<Option<Self>> {
        let Some(place) = wait_place(sysfs, host)? else {
            return Ok(None);
        };
        // An administrator's rescan need not wait for the interval, so the turn is free meanwhile.
        let end = Instant::now() + QUEUED;
        let delay = Self::within(sysfs, host, QUEUED)?.delay()?;
        sleep(delay);
        ready();
        // Both waits and the connection's take less than the unit's TimeoutStartSec.
        let rest = end.saturating_duration_since(Instant::now());
        let turn = Self::within(sysfs, host, rest.max(lock::PATIENCE))?;
        // A later report of the target may be too late for this rescan, so let another one wait.
        drop(place);
        Ok(Some(turn))
    }

    /// Returns whether a rescan is going to begin.
    pub fn is_awaited(sysfs: &Sysfs, host: &str) -> Result<bool> {
        Ok(wait_place(sysfs, host)?.is_none())
    }

    /// Ends the rescan.
    pub fn end(mut self) -> Result {
        // The next interval starts at the time of this write.
        let result = self.0.write_all(b"\n");
        result.map_err(|e| Error::io(FOLDER, e))
    }

    /// Returns the remaining delay of the rescan.
    fn delay(&self) -> Result<Duration> {
        let file = self.0.metadata().map_err(|e| Error::io(FOLDER, e))?;
        if file.len() == 0 {
            return Ok(DELAY);
        }
        let ended = file.modified().map_err(|e| Error::io(FOLDER, e))?;
        // The clock may have been set back.
        let passed = SystemTime::now().duration_since(ended).unwrap_or_default();
        Ok(INTERVAL.saturating_sub(passed).max(DELAY))
    }
}

/// Takes the lock of the waiting rescan; `None` if another one has it.
fn wait_place(sysfs: &Sysfs, host: &str) -> Result<Option<Flock<File>>> {
    let path = path(sysfs, &format!("{host}.next"));
    match Flock::lock(lock::open(&path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, e)) => Err(Error::io(path, e.into())),
    }
}

fn path(sysfs: &Sysfs, name: &str) -> PathBuf {
    sysfs.path(FOLDER).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_rescan_is_awaited_once() {
        let folder = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(folder.path());
        let running = Turn::now(&sysfs, "host7").unwrap();
        assert!(!Turn::is_awaited(&sysfs, "host7").unwrap());
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let turn = Turn::after_interval(&sysfs, "host7", || ()).unwrap();
                send.send(turn.is_some()).unwrap();
            });
            while !Turn::is_awaited(&sysfs, "host7").unwrap() {
                sleep(Duration::from_millis(1));
            }
            // Other events rely on that rescan, which has not begun.
            let other = Turn::after_interval(&sysfs, "host7", || ()).unwrap();
            assert!(other.is_none());
            assert!(!Turn::is_awaited(&sysfs, "host8").unwrap());
            assert!(receive.try_recv().is_err());
            drop(running);
            // `Turn::now()` gets the turn while the thread's rescan waits for its interval.
            sleep(DELAY / 10);
            let first = Turn::now(&sysfs, "host7").unwrap();
            assert!(receive.try_recv().is_err());
            assert!(Turn::is_awaited(&sysfs, "host7").unwrap());
            drop(first);
            assert!(receive.recv().unwrap());
        });
        assert!(!Turn::is_awaited(&sysfs, "host7").unwrap());
    }

    #[test]
    fn a_rescan_that_runs_for_long_is_not_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(folder.path());
        let held = Turn::now(&sysfs, "host7").unwrap();
        let error = Turn::within(&sysfs, "host7", DELAY / 100).err().unwrap();
        assert_eq!(error.status(), 8);
        assert!(
            error.to_string().starts_with("another srpctl has held "),
            "{error}"
        );
        drop(held);
        // A wait that timed out has not changed the recorded time of the last rescan.
        let turn = Turn::within(&sysfs, "host7", DELAY / 100).unwrap();
        assert_eq!(turn.0.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_rescan_waits_for_its_interval() {
        let folder = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(folder.path());
        let before = Instant::now();
        let turn = Turn::now(&sysfs, "host7").unwrap();
        assert_eq!(turn.delay().unwrap(), DELAY);
        turn.end().unwrap();
        let turn = Turn::now(&sysfs, "host7").unwrap();
        assert!(turn.delay().unwrap() + before.elapsed() + DELAY > INTERVAL);
        let past = SystemTime::now() - INTERVAL * 2;
        turn.0.set_modified(past).unwrap();
        assert_eq!(turn.delay().unwrap(), DELAY);
        let future = SystemTime::now() + INTERVAL * 99;
        turn.0.set_modified(future).unwrap();
        assert_eq!(turn.delay().unwrap(), INTERVAL);
    }
}
