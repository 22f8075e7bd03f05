// SPDX-License-Identifier: GPL-2.0

//! Files of stores: locks, labels, reserved space.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use srp_target::{
    disk::Disk,
    store::{self, Label, Owner, Use},
};

struct Temporary(PathBuf);

impl Temporary {
    fn new(len: u64) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("store-{}-{n}", std::process::id()));
        File::create(&path).unwrap().set_len(len).unwrap();
        Self(path)
    }

    fn label(&self, label: Label, size: Option<u64>) -> Result<u64, String> {
        let file = store::open(&self.0, Use::Alone).unwrap();
        store::label(&file, label, size, false).map_err(|e| e.to_string())
    }

    /// Space in bytes.
    fn space(&self) -> u64 {
        fs::metadata(&self.0).unwrap().blocks() * 512
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

const LABEL: Label = Label {
    number: 7,
    object: 1,
    thin: false,
};
const MIB: u64 = 1 << 20;

fn opened(path: &Path, number: u32, object: u32) -> Result<Disk, String> {
    let name = format!("{}: ", path.display());
    let strip = |e: std::io::Error| e.to_string().replace(&name, "");
    Disk::object(path, number, object, Use::Alone).map_err(strip)
}

#[test]
fn one_process_has_a_store() {
    let file = Temporary::new(MIB);
    let why = "it is in use: another process or unit has it";
    for (first, second, good) in [
        (Use::Alone, Use::Alone, false),
        (Use::Alone, Use::Shared, false),
        (Use::Alone, Use::Reading, false),
        (Use::Shared, Use::Alone, false),
        (Use::Reading, Use::Alone, false),
        (Use::Shared, Use::Shared, true),
        (Use::Reading, Use::Reading, true),
        (Use::Alone, Use::Checking, true),
        (Use::Checking, Use::Alone, true),
    ] {
        let _has = store::open(&file.0, first).unwrap();
        let result = store::open(&file.0, second).map_err(|e| e.to_string());
        match good {
            true => assert!(result.is_ok(), "{first:?} {second:?}"),
            false => assert_eq!(result.unwrap_err(), why, "{first:?} {second:?}"),
        }
    }
    let folder = store::open(&std::env::temp_dir(), Use::Checking).unwrap_err();
    assert!(folder.to_string().contains("neither a file nor"));
}

/// udev locks a block device for a moment to probe it.
#[test]
fn a_lock_waits_for_a_probe() {
    let file = Temporary::new(MIB);
    let wait = Duration::from_secs(2);
    let probe = store::open(&file.0, Use::Shared).unwrap();
    let raw = File::open(&file.0).unwrap();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(wait / 10);
        drop(probe);
    });
    store::lock(&raw, Use::Alone, wait).unwrap();
    ends.join().unwrap();
    let other = File::open(&file.0).unwrap();
    let e = store::lock(&other, Use::Alone, wait / 10).unwrap_err();
    assert!(e.to_string().contains("it is in use"), "{e}");
}

#[test]
fn a_store_of_another_is_refused() {
    let file = Temporary::new(0);
    assert_eq!(
        file.label(LABEL, None).unwrap_err(),
        "it is new and needs --size"
    );
    assert_eq!(file.label(LABEL, Some(MIB)).unwrap(), MIB);
    assert_eq!(opened(&file.0, 7, 1).unwrap().blocks(), MIB / 512);
    for (number, object) in [(7, 0), (8, 1)] {
        let why =
            format!("it is object 1 of RS 7 of wss, and this is object {object} of RS {number}");
        assert_eq!(opened(&file.0, number, object).err().unwrap(), why);
    }
    assert_eq!(
        file.label(LABEL, None).unwrap_err(),
        "it is object 1 of RS 7 of wss: --relabel gives it a new label"
    );
    let lock = store::open(&file.0, Use::Alone).unwrap();
    let other = Label { number: 8, ..LABEL };
    assert!(store::label(&lock, other, Some(MIB), true).is_err());
    assert_eq!(store::label(&lock, other, None, true).unwrap(), MIB);
    assert_eq!(store::owner(&lock).unwrap(), Owner::Rs(other));
    assert_eq!(store::label(&lock, LABEL, None, true).unwrap(), MIB);
    drop(lock);
    // A damaged label is no label of anything.
    let raw = File::options().write(true).open(&file.0).unwrap();
    raw.write_all_at(&[9], MIB + 20).unwrap();
    let e = opened(&file.0, 7, 9).err().unwrap();
    assert!(e.starts_with("its label is damaged"), "{e}");
    // A file that has become longer has its label elsewhere.
    raw.write_all_at(&[1], MIB + 20).unwrap();
    opened(&file.0, 7, 1).unwrap();
    raw.set_len(2 * MIB).unwrap();
    let e = opened(&file.0, 7, 1).err().unwrap();
    assert!(e.starts_with("it has no label"), "{e}");

    let node = Temporary::new(MIB);
    let raw = File::options().write(true).open(&node.0).unwrap();
    raw.write_all_at(b"xorset-2", 0).unwrap();
    let e = opened(&node.0, 7, 1).err().unwrap();
    assert!(e.starts_with("it is the file of a node of xorset"), "{e}");
    let read = File::open(&node.0).unwrap();
    assert_eq!(store::owner(&read).unwrap(), Owner::Node);
}

/// Data in the blocks never makes the start of a unit fail.
#[test]
fn blocks_name_no_owner() {
    let file = Temporary::new(0);
    file.label(LABEL, Some(MIB)).unwrap();
    let disk = opened(&file.0, 7, 1).unwrap();
    disk.write(0, b"xorset-2").unwrap();
    drop(disk);
    opened(&file.0, 7, 1).unwrap();
    // A target's unit has no label: all of its bytes are blocks.
    let node = Temporary::new(MIB);
    let raw = File::options().write(true).open(&node.0).unwrap();
    raw.write_all_at(b"xorset-2", 0).unwrap();
    for unit in [&file, &node] {
        let disk = Disk::open(&unit.0, Use::Alone).unwrap();
        assert_eq!(disk.blocks(), fs::metadata(&unit.0).unwrap().len() / 512);
    }
}

#[test]
fn what_has_blocks_keeps_them() {
    let file = Temporary::new(3 * MIB + 5);
    let raw = File::options().write(true).open(&file.0).unwrap();
    raw.write_all_at(&[7; 5], 3 * MIB).unwrap();
    let e = file.label(LABEL, Some(MIB)).unwrap_err();
    assert!(e.contains("more than --size"), "{e}");
    let len = file.label(LABEL, None).unwrap();
    assert_eq!(len, 3 * MIB + (64 << 10));
    let disk = opened(&file.0, 7, 1).unwrap();
    let mut bytes = [0; 512];
    disk.read(3 * MIB / 512, &mut bytes).unwrap();
    assert_eq!((bytes[..5].to_vec(), bytes[5]), (vec![7; 5], 0));
}

/// A failed format removes only the file that it has created, which only its owner may open.
#[test]
fn a_failed_format_removes_its_own_file() {
    let file = Temporary::new(MIB);
    let fails = |_: File| Err::<(), _>(std::io::Error::other("bad"));
    store::format(&file.0, fails).unwrap_err();
    assert!(file.0.exists());
    fs::remove_file(&file.0).unwrap();
    store::format(&file.0, fails).unwrap_err();
    assert!(!file.0.exists());
    // Another process puts its file in the place of the created one.
    let other = file.0.with_extension("other");
    File::create(&other).unwrap();
    let replaced = |made| {
        fs::rename(&other, &file.0).unwrap();
        fails(made)
    };
    store::format(&file.0, replaced).unwrap_err();
    assert!(file.0.exists());
    // Another process has the file.
    let has = store::open(&file.0, Use::Alone).unwrap();
    let e = store::format(&file.0, |_| Ok(())).unwrap_err();
    assert!(e.to_string().contains("in use"), "{e}");
    assert!(file.0.exists());
    drop(has);

    fs::remove_file(&file.0).unwrap();
    store::format(&file.0, |_| Ok(())).unwrap();
    assert_eq!(fs::metadata(&file.0).unwrap().mode() & 0o077, 0);
}

/// The label of a block device overwrites no backup GPT, superblock or block.
#[test]
fn data_after_the_blocks_is_found() {
    let file = Temporary::new(MIB + 512);
    let raw = File::options()
        .read(true)
        .write(true)
        .open(&file.0)
        .unwrap();
    raw.write_all_at(&[7], MIB - (64 << 10) - 1).unwrap();
    store::spare(&raw).unwrap();
    for at in [MIB - (64 << 10), MIB - 4096, MIB + 511] {
        raw.write_all_at(&[7], at).unwrap();
        let e = store::spare(&raw).unwrap_err().to_string();
        let why = format!("it has data at offset {at}, after the blocks: --relabel overwrites it");
        assert_eq!(e, why);
        raw.write_all_at(&[0], at).unwrap();
    }
}

/// No write to a store finds the file system full, also after UNMAP; a thin one frees its space.
#[test]
fn space_is_reserved() {
    for thin in [false, true] {
        let file = Temporary::new(0);
        file.label(Label { thin, ..LABEL }, Some(4 * MIB)).unwrap();
        assert_eq!(file.space() >= 4 * MIB, !thin);
        let disk = opened(&file.0, 7, 1).unwrap();
        disk.fill(0, 4096, &[1; 512]).unwrap();
        disk.unmap(0, 4096).unwrap();
        assert_eq!(file.space() >= 4 * MIB, !thin, "{}", file.space());
        let mut bytes = [1; 512];
        disk.read(100, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 512]);
    }
    let file = Temporary::new(MIB);
    let raw = File::options().write(true).open(&file.0).unwrap();
    raw.write_all_at(&[7; 512], 0).unwrap();
    store::zeroed(&raw, 2 * MIB, false).unwrap();
    assert!(file.space() >= 2 * MIB);
    assert_eq!(fs::read(&file.0).unwrap(), vec![0; 2 * MIB as usize]);
    // More than the file system has: nothing is left behind.
    let e = store::zeroed(&raw, 1 << 60, false).unwrap_err().to_string();
    assert!(e.contains("cannot be reserved"), "{e}");
    assert_eq!(fs::metadata(&file.0).unwrap().len(), 0);
    let e = file.label(LABEL, Some(1 << 60)).unwrap_err();
    assert!(e.contains("cannot be reserved"), "{e}");
    assert_eq!(fs::metadata(&file.0).unwrap().len(), 0);
}
