// SPDX-License-Identifier: GPL-2.0

//! Calls of the system.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use crate::{check, ffi};

/// From now on SIGTERM and SIGINT end no thread of the process; the descriptor can be read when one has come. Threads
/// that run already are not changed.
pub fn signals() -> io::Result<OwnedFd> {
    // SAFETY: No arguments.
    let fd = check(unsafe { ffi::shim_signals() })?;
    // SAFETY: The call has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of at most 64 descriptors can be read, or for `ms` milliseconds (-1: for ever). Returns which can.
pub fn wait(fds: &[RawFd], ms: i32) -> io::Result<Vec<bool>> {
    let mut ready = vec![0u8; fds.len()];
    // SAFETY: Both lists have this length.
    let result = unsafe { ffi::shim_wait(fds.as_ptr(), ready.as_mut_ptr(), fds.len() as u32, ms) };
    match check(result) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
        _ => {}
    }
    Ok(ready.into_iter().map(|r| r != 0).collect())
}

/// Makes zeros of these bytes of a file or block device and gives their place back (`fallocate(2)`). Fails with
/// EOPNOTSUPP where the file system or the device cannot do that.
pub fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: The descriptor is open as long as `file`.
    check(unsafe { ffi::shim_punch(file.as_raw_fd(), at, len) })?;
    Ok(())
}

/// Takes a file for this process alone, until it is closed here (`flock(2)`). Fails with [`io::ErrorKind::WouldBlock`] if
/// another one has taken it, also if that one was killed and still waits for a write to it.
pub fn lock(file: &File) -> io::Result<()> {
    // SAFETY: The descriptor is open as long as `file`.
    check(unsafe { ffi::shim_lock(file.as_raw_fd()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_a_file() {
        let path = std::env::temp_dir().join(format!("lock-{}", std::process::id()));
        let open = || {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let first = open();
        lock(&first).unwrap();
        assert_eq!(lock(&open()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        lock(&open()).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
