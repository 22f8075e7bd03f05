// SPDX-License-Identifier: GPL-2.0

//! The disks of a session.

use crate::sysfs::{self, Sysfs};
use serde::Serialize;
use std::{fs, path::Path};

/// A SCSI disk.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Disk {
    /// Kernel name, such as `sda`.
    pub name: String,
    /// Link created by our udev rule, such as `/dev/srp0`.
    pub link: Option<String>,
    /// Persistent name in `/dev/disk/by-path`.
    pub by_path: Option<String>,
    /// LUN.
    pub lun: u64,
    /// Size in bytes.
    pub size: u64,
    /// SCSI vendor and model.
    pub model: String,
    /// World-wide identifier, identical on all paths to the disk.
    pub wwid: Option<String>,
    /// SCSI state: `running`, `blocked`, `offline` or `transport-offline`.
    pub state: String,
    /// All SRP disks that are paths to the same data, including this one.
    pub paths: Vec<String>,
    /// Name of the multipath map that this disk is a path of.
    pub multipath: Option<String>,
}

impl Disk {
    /// Returns the disks of a SCSI host, sorted by LUN.
    pub fn all(sysfs: &Sysfs, host: u32) -> Vec<Self> {
        let mut found: Vec<Self> = sysfs
            .entries("/sys/class/block")
            .iter()
            .filter_map(|block| Self::of(sysfs, host, block))
            .collect();
        found.sort_by(|a, b| {
            (a.lun, sysfs::natural(&a.name)).cmp(&(b.lun, sysfs::natural(&b.name)))
        });
        found
    }

    fn of(sysfs: &Sysfs, host: u32, block: &Path) -> Option<Self> {
        // The link ends in HOST:CHANNEL:TARGET:LUN. Partitions have no such link.
        let device = fs::read_link(block.join("device")).ok()?;
        let address = sysfs::name(&device);
        let mut numbers = address.split(':');
        if numbers.next()?.parse() != Ok(host) {
            return None;
        }
        let lun = numbers.next_back()?.parse().ok()?;
        let name = sysfs::name(block);
        let read = |file: &str| sysfs::text(block.join("device").join(file)).unwrap_or_default();
        let words = [read("vendor"), read("model")];
        Some(Self {
            link: link_to(sysfs, "/dev", "srp", &name),
            by_path: link_to(sysfs, "/dev/disk/by-path", "", &name),
            lun,
            size: sysfs::number::<u64>(block.join("size")).unwrap_or(0) * 512,
            model: words.map(|word| word.trim().to_string()).join(" "),
            wwid: Some(read("wwid")).filter(|wwid| !wwid.is_empty()),
            state: read("state"),
            paths: Vec::new(),
            multipath: holder(sysfs, &name),
            name,
        })
    }

    /// Returns the device node, such as `/dev/sda`.
    pub fn device(&self) -> String {
        format!("/dev/{}", self.name)
    }
}

/// Returns the link in `folder`, starting with `prefix`, that points to `device`.
fn link_to(sysfs: &Sysfs, folder: &str, prefix: &str, device: &str) -> Option<String> {
    let link = sysfs.entries(folder).into_iter().find(|path| {
        sysfs::name(path).starts_with(prefix)
            && fs::read_link(path).is_ok_and(|to| sysfs::name(to) == device)
    })?;
    Some(format!("{folder}/{}", sysfs::name(link)))
}

/// Returns the name of the multipath map that uses a disk.
fn holder(sysfs: &Sysfs, disk: &str) -> Option<String> {
    let holders = sysfs.entries(format!("/sys/class/block/{disk}/holders"));
    let map = holders.iter().find(|holder| {
        sysfs::text(holder.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
    })?;
    sysfs::text(map.join("dm/name"))
}

/// Returns the other disks below the devices that use `disk`: the other paths of its multipath map.
pub fn other_paths(sysfs: &Sysfs, disk: &str) -> Vec<String> {
    let holders = sysfs.entries(format!("/sys/class/block/{disk}/holders"));
    holders
        .iter()
        .flat_map(|holder| {
            sysfs.entries(format!("/sys/class/block/{}/slaves", sysfs::name(holder)))
        })
        .map(sysfs::name)
        .filter(|slave| slave != disk)
        .collect()
}

/// Formats a number of bytes with a unit.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut rest = bytes;
    while rest >= 10 * 1024 && unit + 1 < units.len() || rest >= 1024 && rest % 1024 == 0 {
        rest /= 1024;
        unit += 1;
    }
    format!("{rest} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(256 << 20), "256 MiB");
        assert_eq!(size(1 << 40), "1 TiB");
        assert_eq!(size(1_500_000_000_000), "1396 GiB");
        assert_eq!(size(u64::MAX), "15 EiB");
    }
}
