// SPDX-License-Identifier: GPL-2.0

//! System calls.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use crate::{check, ffi};

/// Blocks SIGTERM and SIGINT in the calling thread and the threads that it creates later. The
/// returned descriptor is readable when one of them is pending. Threads that already run are not
/// affected.
pub fn signals() -> io::Result<OwnedFd> {
    // SAFETY: The function has no preconditions.
    let fd = check(unsafe { ffi::shim_signals() })?;
    // SAFETY: `shim_signals` has just opened the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of at most 64 descriptors is readable, or for `ms` milliseconds (-1: no
/// timeout). Returns for each whether it is readable.
pub fn wait(fds: &[RawFd], ms: i32) -> io::Result<Vec<bool>> {
    let mut ready = vec![0u8; fds.len()];
    // SAFETY: Both arrays have `fds.len()` elements.
    let result = unsafe { ffi::shim_wait(fds.as_ptr(), ready.as_mut_ptr(), fds.len() as u32, ms) };
    match check(result) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
        _ => {}
    }
    Ok(ready.into_iter().map(|r| r != 0).collect())
}

/// Zeroes a range of a file or block device and frees its space (`fallocate(2)`). Fails with
/// EOPNOTSUPP if the file system or the device does not support that.
pub fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: The descriptor is open as long as `file`.
    check(unsafe { ffi::shim_punch(file.as_raw_fd(), at, len) })?;
    Ok(())
}

/// Locks a file exclusively until it is closed (`flock(2)`). Fails with
/// [`io::ErrorKind::WouldBlock`] if another process holds the lock, even a killed process that
/// still waits for a write to the file.
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
