// SPDX-License-Identifier: GPL-2.0

//! Files and block devices with blocks, their locks and their owners. A label in the last whole
//! 4096 bytes names the owner, so the blocks begin at offset 0.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    fs::{fallocate, flock, FallocateFlags, FlockOperation},
    io::Errno,
};

/// Length of a label in bytes.
pub const LABEL: u64 = 4096;
/// The blocks of a labelled store are a multiple of this, in bytes.
const UNIT: u64 = 64 << 10;
const MAGIC: &[u8; 16] = b"srp-rs-store-1\0\0";
/// The first bytes of the file of a node of `xorset`.
const NODE: &[u8; 7] = b"xorset-";
/// Bytes that are written at once where the file system cannot zero a range.
const ZEROS: u64 = 1 << 20;

/// How long udev may have a block device locked after it is closed, to probe it.
const PROBE: Duration = Duration::from_secs(2);

/// Which other programs may have a store open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// Nothing else.
    Alone,
    /// Others that share it, too.
    Shared,
    /// Only reading: others that share it, too.
    Reading,
    /// Only reading, without a lock, to check a store that may be in use.
    Checking,
}

impl Use {
    /// Returns whether nothing is written.
    pub fn reads(self) -> bool {
        matches!(self, Self::Reading | Self::Checking)
    }
}

/// The owner of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Label {
    /// Number of the RS.
    pub number: u32,
    /// Number of the object at the RS.
    pub object: u32,
    /// Whether unmapped blocks free their space, so that writes may meet a full file system.
    pub thin: bool,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object {} of RS {}", self.object, self.number)
    }
}

/// What the bytes of a store say about its owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Owner {
    /// Nothing.
    Unknown,
    /// An RS.
    Rs(Label),
    /// A node of `xorset`.
    Node,
    /// A label that this program does not understand.
    Damaged,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => write!(f, "it has no label"),
            Self::Rs(label) => write!(f, "it is {label} of wss"),
            Self::Node => write!(f, "it is the file of a node of xorset"),
            Self::Damaged => write!(f, "its label is damaged"),
        }
    }
}

fn bad(why: impl std::fmt::Display) -> io::Error {
    io::Error::other(why.to_string())
}

fn device(file: &File) -> io::Result<bool> {
    let kind = file.metadata()?.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(kind.is_block_device()),
        false => Err(bad("it is neither a file nor a block device")),
    }
}

/// Opens and locks a file or block device until it is closed. A killed process that still waits for
/// a write has its lock, too.
pub fn open(path: &Path, how: Use) -> io::Result<File> {
    open_with(path, how, OpenOptions::new().read(true).write(!how.reads()))
}

/// Does `work` with a file or block device that nothing else has open. A missing file is created,
/// and removed if the work fails.
pub fn format<T>(path: &Path, work: impl FnOnce(File) -> io::Result<T>) -> io::Result<T> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let new = open_with(path, Use::Alone, options.clone().create_new(true));
    let (file, created) = match new {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            (open_with(path, Use::Alone, options.create(true))?, false)
        }
        result => (result?, true),
    };
    // Another process may have had it between its creation and the lock.
    let ours = created && len(&file)? == 0;
    // Keep the lock until the file is removed.
    let held = file.try_clone()?;
    let result = work(file);
    if ours && result.is_err() && at_path(&held, path) {
        // The error of the work says more.
        let _ = fs::remove_file(path);
    }
    result
}

fn at_path(file: &File, path: &Path) -> bool {
    let both = file.metadata().and_then(|f| Ok((f, path.metadata()?)));
    both.is_ok_and(|(f, p)| (f.dev(), f.ino()) == (p.dev(), p.ino()))
}

fn open_with(path: &Path, how: Use, options: &mut OpenOptions) -> io::Result<File> {
    // Of a block device this is the kernel's own lock, which file systems, md and LVM take, too.
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let is_device = path
        .metadata()
        .is_ok_and(|m| m.file_type().is_block_device());
    if is_device && how == Use::Alone {
        options.create(false).custom_flags(exclusive);
    }
    let file = options
        .open(path)
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::BUSY) => bad("the device is in use: mounted, or another program has it"),
            _ => e,
        })?;
    let wait = if device(&file)? {
        PROBE
    } else {
        Duration::ZERO
    };
    lock(&file, how, wait)?;
    Ok(file)
}

/// Locks a file, and waits this long for another process that has it.
pub fn lock(file: &File, how: Use, wait: Duration) -> io::Result<()> {
    let lock = match how {
        Use::Alone => FlockOperation::NonBlockingLockExclusive,
        Use::Shared | Use::Reading => FlockOperation::NonBlockingLockShared,
        Use::Checking => return Ok(()),
    };
    let begin = Instant::now();
    loop {
        match flock(file, lock) {
            Err(Errno::WOULDBLOCK) if begin.elapsed() < wait => sleep(wait / 40),
            Err(Errno::WOULDBLOCK) => {
                return Err(bad("it is in use: another process or unit has it"))
            }
            result => return Ok(result?),
        }
    }
}

/// Length of a file or block device in bytes.
pub fn len(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Offset of the label in a store of this length, if it has room for blocks.
fn place(len: u64) -> Option<u64> {
    let at = (len / LABEL).checked_sub(1)? * LABEL;
    (at >= UNIT).then_some(at)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// Reads the owner of a store. Initiators write the first blocks of an RS, and cannot reach its
/// label, so the label says more than they do.
pub fn owner(file: &File) -> io::Result<Owner> {
    let len = len(file)?;
    if let Some(at) = place(len) {
        let mut bytes = [0; LABEL as usize];
        file.read_exact_at(&mut bytes, at)?;
        if bytes.starts_with(MAGIC) {
            return Ok(understood(&bytes, at));
        }
    }
    let mut first = [0; NODE.len()];
    if len >= first.len() as u64 {
        file.read_exact_at(&mut first, 0)?;
    }
    Ok(match &first == NODE {
        true => Owner::Node,
        false => Owner::Unknown,
    })
}

/// The owner that a label at this offset names.
fn understood(bytes: &[u8; LABEL as usize], at: u64) -> Owner {
    let sum = u32::from_le_bytes(field(bytes, 36));
    let flags = u32::from_le_bytes(field(bytes, 24));
    let length = u64::from_le_bytes(field(bytes, 28));
    if sum != crc32c::crc32c(&bytes[..36]) || flags > 1 || length != at {
        return Owner::Damaged;
    }
    Owner::Rs(Label {
        number: u32::from_le_bytes(field(bytes, 16)),
        object: u32::from_le_bytes(field(bytes, 20)),
        thin: flags == 1,
    })
}

/// Returns the length of the blocks of a store with this label, in bytes, and whether it is thin.
/// The error names the owner.
pub fn labelled(file: &File, number: u32, object: u32) -> io::Result<(u64, bool)> {
    let wanted = |label: &Label| label.number == number && label.object == object;
    match owner(file)? {
        Owner::Rs(label) if wanted(&label) => {
            let blocks = place(len(file)?).unwrap_or(0) / UNIT * UNIT;
            Ok((blocks, label.thin))
        }
        Owner::Unknown => Err(bad(format!(
            "it has no label: `wss format --number {number} --object {object}` writes one, and \
             keeps its blocks"
        ))),
        other => Err(bad(format!(
            "{other}, and this is object {object} of RS {number}"
        ))),
    }
}

/// Reserves the space of a file, so that no write meets a full file system.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    fallocate(file, FallocateFlags::empty(), 0, len).map_err(|e| match e {
        Errno::OPNOTSUPP => bad("its file system cannot reserve space; --thin does without"),
        e => bad(format!("{len} bytes cannot be reserved: {e}")),
    })
}

/// Fails unless the bytes after the blocks are zeros. The end of a block device may have a backup
/// GPT, the superblock of an md array or blocks.
pub fn spare(file: &File) -> io::Result<()> {
    let len = len(file)?;
    let start = place(len).ok_or_else(|| bad("it is too small"))? / UNIT * UNIT;
    let mut bytes = vec![0; (len - start) as usize];
    file.read_exact_at(&mut bytes, start)?;
    match bytes.iter().position(|byte| *byte != 0) {
        Some(n) => Err(bad(format!(
            "it has data at offset {}, after the blocks: --relabel overwrites it",
            start + n as u64
        ))),
        None => Ok(()),
    }
}

/// Labels a store for an RS, with `size` bytes of blocks if it is a new file. A file that has
/// blocks keeps them, a block device those before its end. `again`: it may be of another object,
/// or have data at its end. Returns the length of the blocks.
pub fn label(file: &File, label: Label, size: Option<u64>, again: bool) -> io::Result<u64> {
    let labelled = match owner(file)? {
        Owner::Unknown => false,
        Owner::Rs(_) | Owner::Damaged if again => true,
        other @ (Owner::Rs(_) | Owner::Damaged) => {
            return Err(bad(format!("{other}: --relabel gives it a new label")));
        }
        other => return Err(bad(other)),
    };
    let had = len(file)?;
    if labelled && size.is_some() {
        return Err(bad("it has blocks: --size does not apply"));
    }
    if labelled && !label.thin && !device(file)? {
        reserve(file, had)?;
    }
    if labelled {
        // The new label takes the place of the other one.
    } else if !device(file)? {
        let size = size.unwrap_or(had).next_multiple_of(UNIT);
        if size == 0 {
            return Err(bad("it is new and needs --size"));
        }
        if size < had {
            return Err(bad(format!(
                "it has {had} bytes, more than --size: they would be lost"
            )));
        }
        if label.thin {
            file.set_len(size + LABEL)?;
        } else {
            let reserved = reserve(file, size + LABEL);
            if reserved.is_err() {
                file.set_len(had)?;
            }
            reserved?;
        }
    } else if size.is_some() {
        return Err(bad("it is a block device: --size does not apply"));
    } else if !again {
        spare(file)?;
    }
    let at = place(len(file)?).ok_or_else(|| bad("it is too small"))?;
    let mut bytes = [0; LABEL as usize];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&label.number.to_le_bytes());
    bytes[20..24].copy_from_slice(&label.object.to_le_bytes());
    bytes[24..28].copy_from_slice(&u32::from(label.thin).to_le_bytes());
    bytes[28..36].copy_from_slice(&at.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&bytes, at)?;
    file.sync_all()?;
    Ok(at / UNIT * UNIT)
}

/// Makes the first `len` bytes zeros, and reserves their space unless `thin`. A file gets this
/// length; a block device must have it.
pub fn zeroed(file: &File, len: u64, thin: bool) -> io::Result<()> {
    if device(file)? {
        let has = self::len(file)?;
        if has < len {
            return Err(bad(format!("it has {has} bytes and needs {len}")));
        }
        return zero(file, 0, len);
    }
    // Discard the old content: everything is zeros.
    file.set_len(0)?;
    if thin {
        return file.set_len(len);
    }
    let reserved = reserve(file, len);
    if reserved.is_err() {
        file.set_len(0)?;
    }
    reserved
}

/// Zeroes a range and keeps its space.
pub fn zero(file: &File, mut at: u64, mut len: u64) -> io::Result<()> {
    let how = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, how, at, len) {
        Err(Errno::OPNOTSUPP) => {}
        result => return Ok(result?),
    }
    let zeros = vec![0; len.min(ZEROS) as usize];
    while len > 0 {
        let part = len.min(ZEROS);
        file.write_all_at(&zeros[..part as usize], at)?;
        at += part;
        len -= part;
    }
    Ok(())
}

/// Zeroes a range and frees its space, or only zeroes it where that is not possible.
pub fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, how, at, len) {
        Err(Errno::OPNOTSUPP) => zero(file, at, len),
        result => Ok(result?),
    }
}
