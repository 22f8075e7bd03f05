// SPDX-License-Identifier: GPL-2.0

//! The backing store of a unit: a file or a block device.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering},
        Mutex, PoisonError,
    },
};

use serde_json::json;

use crate::{
    sense::Sense,
    store::{self, Owner, Use},
};

/// Logical block size in bytes.
pub const BLOCK: u64 = 512;

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// The blocks of a unit. All calls are synchronous.
pub struct Disk {
    file: File,
    path: PathBuf,
    blocks: u64,
    read_only: bool,
    /// Whether unmapped blocks free their space.
    thin: bool,
    counters: Counters,
    /// Whether a sync has failed. The kernel reports a failed write once, to any caller; without
    /// this, the next flush would succeed although the data is lost.
    failed: Mutex<bool>,
}

fn failed(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

impl Disk {
    /// Opens a file or a block device. Its size must be a positive multiple of 512 bytes. Blocks
    /// that look like the store of another program only give a warning: initiators write them.
    pub fn open(path: &Path, how: Use) -> io::Result<Self> {
        let open = || {
            let file = store::open(path, how)?;
            match store::owner(&file)? {
                Owner::Unknown => {}
                other => tracing::warn!(
                    "{}: to judge by its content, {other}; if so, remove the unit",
                    path.display()
                ),
            }
            let size = store::len(&file)?;
            if size == 0 || size % BLOCK != 0 {
                return Err(io::Error::other(format!(
                    "its size, {size} bytes, is no positive multiple of {BLOCK}"
                )));
            }
            Self::new(path, file, size, how.reads(), true)
        };
        open().map_err(|e| failed(path, e))
    }

    /// Opens the store of an object of an RS.
    pub fn object(path: &Path, number: u32, object: u32, how: Use) -> io::Result<Self> {
        let open = || {
            let file = store::open(path, how)?;
            let (len, thin) = store::labelled(&file, number, object)?;
            Self::new(path, file, len, how.reads(), thin)
        };
        open().map_err(|e| failed(path, e))
    }

    fn new(path: &Path, file: File, len: u64, read_only: bool, thin: bool) -> io::Result<Self> {
        Ok(Self {
            file,
            path: path.canonicalize()?,
            blocks: len / BLOCK,
            read_only,
            thin,
            counters: Counters::default(),
            failed: Mutex::new(false),
        })
    }

    /// The canonical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns whether writes are refused.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the status of the disk, which is called `name`.
    pub fn status(&self, name: &str) -> serde_json::Value {
        let c = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "name": name,
            "path": self.path,
            "blocks": self.blocks,
            "read_only": self.read_only,
            "counters": {
                "reads": get(&c.reads),
                "read_bytes": get(&c.read_bytes),
                "writes": get(&c.writes),
                "written_bytes": get(&c.written_bytes),
                "flushes": get(&c.flushes),
                "errors": get(&c.errors),
            },
        })
    }

    /// Reads `bytes.len()` bytes from the start of a block. The length need not be a multiple of
    /// the block size.
    pub fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), Sense> {
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes.len() as u64);
        let result = self.file.read_exact_at(bytes, block * BLOCK);
        result.map_err(|e| self.sense("read", block, &e))
    }

    /// Writes whole blocks. They may be lost on power failure until [`Disk::flush`].
    pub fn write(&self, block: u64, bytes: &[u8]) -> Result<(), Sense> {
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes.len() as u64);
        let result = self.file.write_all_at(bytes, block * BLOCK);
        result.map_err(|e| self.sense("write", block, &e))
    }

    /// Makes all earlier writes durable.
    pub fn flush(&self) -> Result<(), Sense> {
        count(&self.counters.flushes, 1);
        // The lock also covers the sync: a second one must not succeed before the first has failed.
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = self.file.sync_data() {
            *failed = true;
            count(&self.counters.errors, 1);
            let path = self.path.display();
            tracing::error!(
                "{path}: flush: {e}; every flush fails until this process is started again"
            );
        }
        match *failed {
            true => Err(Sense::WRITE_ERROR),
            false => Ok(()),
        }
    }

    /// Zeroes blocks, and frees the space of a thin store where possible.
    pub fn unmap(&self, block: u64, count: u64) -> Result<(), Sense> {
        if count == 0 {
            return Ok(());
        }
        let (at, len) = (block * BLOCK, count * BLOCK);
        let result = match self.thin {
            true => store::punch(&self.file, at, len),
            false => store::zero(&self.file, at, len),
        };
        result.map_err(|e| self.sense("unmap", block, &e))
    }

    /// Writes the same block `count` times.
    pub fn fill(
        &self,
        mut block: u64,
        mut count: u64,
        with: &[u8; BLOCK as usize],
    ) -> Result<(), Sense> {
        const AT_ONCE: u64 = 2048;
        let bytes = with.repeat(count.min(AT_ONCE) as usize);
        while count > 0 {
            let n = count.min(AT_ONCE);
            self.write(block, &bytes[..(n * BLOCK) as usize])?;
            block += n;
            count -= n;
        }
        Ok(())
    }

    fn sense(&self, what: &str, block: u64, error: &io::Error) -> Sense {
        count(&self.counters.errors, 1);
        tracing::error!("{}: {what} at block {block}: {error}", self.path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Sense::FULL,
            // The file does not report which block failed.
            _ if what == "read" => Sense::READ_ERROR,
            _ => Sense::WRITE_ERROR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel reports a lost write once, to one of the threads that flush.
    #[test]
    fn each_flush_after_a_failed_one_fails() {
        let path = std::env::temp_dir().join(format!("disk-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let mut disk = Disk::open(&path, Use::Shared).unwrap();
        assert_eq!(disk.flush(), Ok(()));
        // It cannot be synced.
        let null = File::open("/dev/null").unwrap();
        let whole = std::mem::replace(&mut disk.file, null);
        assert_eq!(disk.flush(), Err(Sense::WRITE_ERROR));
        disk.file = whole;
        assert_eq!(disk.flush(), Err(Sense::WRITE_ERROR));
        let again = Disk::open(&path, Use::Shared).unwrap();
        assert_eq!(again.flush(), Ok(()));
        std::fs::remove_file(&path).unwrap();
    }
}
