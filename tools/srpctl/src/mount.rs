// SPDX-License-Identifier: GPL-2.0

//! Mounted file systems, in all mount namespaces.

use crate::sysfs::{self, Sysfs};
use nix::sys::stat::{major, minor};
use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// A mount.
pub struct Mount {
    /// Number of the block device, such as `8:16`.
    pub number: String,
    /// Name of the mounted block device.
    pub device: Option<String>,
    /// Mount point.
    pub place: String,
    /// A process of the mount namespace, unless that is the namespace of this program.
    process: Option<String>,
}

impl Mount {
    /// Returns the mount point, for another mount namespace with one of its processes.
    pub fn shown(&self) -> String {
        match &self.process {
            None => self.place.clone(),
            Some(process) => format!("{} in the mount namespace of {process}", self.place),
        }
    }
}

/// Returns the mounts of all namespaces, those of this program first.
pub fn all(sysfs: &Sysfs) -> Vec<Mount> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let own = sysfs.path("/proc/self");
    let others = sysfs.entries("/proc").into_iter().filter(|path| {
        let name = sysfs::name(path);
        name.starts_with(|c: char| c.is_ascii_digit())
    });
    for path in [own.clone()].into_iter().chain(others) {
        let Ok(namespace) = fs::read_link(path.join("ns/mnt")) else {
            continue;
        };
        // A process sees only the mounts below its root.
        if !known.insert((namespace, fs::read_link(path.join("root")).ok())) {
            continue;
        }
        let program = sysfs::text(path.join("comm")).unwrap_or_default();
        let process = (path != own).then(|| format!("{program} (process {})", sysfs::name(&path)));
        // A name in the file may be invalid UTF-8.
        let text = fs::read(path.join("mountinfo")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines();
        found.extend(lines.filter_map(|line| parse(sysfs, line, process.clone())));
    }
    found
}

/// Parses a line of `mountinfo`, proc_pid_mountinfo(5).
fn parse(sysfs: &Sysfs, line: &str, process: Option<String>) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let [_, _, number, _, place, ..] = before[..] else {
        return None;
    };
    Some(Mount {
        number: number.to_string(),
        device: device(sysfs, &unescaped(after.split(' ').nth(1)?)),
        place: unescaped(place),
        process,
    })
}

/// Replaces the escapes of files in `/proc`, such as `\040` for a space.
pub fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                result.push(code.into());
                result.push_str(&part[3..]);
            }
            None => {
                result.push('\\');
                result.push_str(part);
            }
        }
    }
    result
}

/// A mounted file system of several devices.
pub struct OfSeveral {
    /// Kind and identifier of the file system.
    pub name: String,
    /// Names of the block devices.
    pub devices: BTreeSet<String>,
}

/// Returns the mounted file systems that list their devices in sysfs: btrfs and bcachefs.
pub fn of_several(sysfs: &Sysfs) -> Vec<OfSeveral> {
    let btrfs = sysfs.entries("/sys/fs/btrfs").into_iter().map(|folder| {
        let label = sysfs::text(folder.join("label")).filter(|label| !label.is_empty());
        let devices = Sysfs::below(&folder).entries("devices");
        OfSeveral {
            name: format!(
                "the btrfs file system {}",
                label.unwrap_or_else(|| sysfs::name(&folder))
            ),
            devices: devices.iter().map(sysfs::name).collect(),
        }
    });
    let bcachefs = sysfs.entries("/sys/fs/bcachefs").into_iter().map(|folder| {
        let members = Sysfs::below(&folder).entries("");
        let blocks = members.iter().map(|member| member.join("block"));
        OfSeveral {
            name: format!("the bcachefs file system {}", sysfs::name(&folder)),
            devices: blocks
                .filter_map(|block| fs::read_link(block).ok())
                .map(sysfs::name)
                .collect(),
        }
    });
    btrfs.chain(bcachefs).collect()
}

/// Returns the number of a block device, such as `8:16`; `None` for other files.
pub fn number(file: &Metadata) -> Option<String> {
    let device = file.rdev();
    let is_block = file.file_type().is_block_device();
    is_block.then(|| format!("{}:{}", major(device), minor(device)))
}

/// Returns the kernel's name of the block device at `path`; `None` for a path outside of `/dev`,
/// whose stat() may wait for a server.
pub fn device(sysfs: &Sysfs, path: &str) -> Option<String> {
    if !path.contains("/dev/") {
        return None;
    }
    let node = sysfs.path(path);
    let number = fs::metadata(&node).ok().and_then(|found| number(&found));
    let link = number.and_then(|number| {
        fs::read_link(sysfs.path(Path::new("/sys/dev/block").join(number))).ok()
    });
    let found = link.or_else(|| fs::canonicalize(node).ok());
    Some(sysfs::name(found.unwrap_or_else(|| path.into())))
}
