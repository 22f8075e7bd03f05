// SPDX-License-Identifier: GPL-2.0

//! The disks of a session.

use crate::{
    multipath,
    sysfs::{self, Sysfs},
};
use serde::Serialize;
use std::{collections::BTreeMap, fs, path::Path};

/// The unit of `size` in sysfs, in bytes.
const SECTOR: u64 = 512;

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
    /// Returns the disks of each of these SCSI hosts, sorted by LUN. Each directory is read once,
    /// because a machine may have thousands of disks.
    pub fn all(sysfs: &Sysfs, hosts: &[u32]) -> BTreeMap<u32, Vec<Self>> {
        let numbered = links(sysfs, "/dev", "srp");
        // systemd's names of disks below a PCI device change from login to login, and a rename of
        // the adapter changes the path by its name.
        let mut by_paths = links(sysfs, "/dev/disk/by-path", "srp-");
        by_paths.extend(links(sysfs, "/dev/disk/by-path", "srp-0x"));
        let mut found: BTreeMap<u32, Vec<Self>> = BTreeMap::new();
        for block in sysfs.entries("/sys/class/block") {
            let Some((host, lun)) = address(&block) else {
                continue;
            };
            if !hosts.contains(&host) {
                continue;
            }
            let mut disk = Self::of(sysfs, &block, lun);
            disk.link = numbered.get(&disk.name).cloned();
            disk.by_path = by_paths.get(&disk.name).cloned();
            found.entry(host).or_default().push(disk);
        }
        let mut paths: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for disk in found.values().flatten() {
            if let Some(wwid) = &disk.wwid {
                paths
                    .entry(wwid.clone())
                    .or_default()
                    .push(disk.name.clone());
            }
        }
        for disk in found.values_mut().flatten() {
            disk.paths = match &disk.wwid {
                Some(wwid) => paths[wwid].clone(),
                None => vec![disk.name.clone()],
            };
        }
        for disks in found.values_mut() {
            disks.sort_by_cached_key(|disk| (disk.lun, sysfs::natural(&disk.name)));
        }
        found
    }

    /// Reads the files of a disk in sysfs.
    fn of(sysfs: &Sysfs, block: &Path, lun: u64) -> Self {
        let name = sysfs::name(block);
        let read = |file: &str| sysfs::text(block.join("device").join(file)).unwrap_or_default();
        let words = [read("vendor"), read("model")];
        Self {
            link: None,
            by_path: None,
            lun,
            size: sysfs::number::<u64>(block.join("size"))
                .unwrap_or(0)
                .saturating_mul(SECTOR),
            model: words.map(|word| word.trim().to_string()).join(" "),
            wwid: Some(read("wwid")).filter(|wwid| !wwid.is_empty()),
            state: read("state"),
            paths: Vec::new(),
            multipath: holder(sysfs, &name),
            name,
        }
    }

    /// Returns the device node, such as `/dev/sda`.
    pub fn device(&self) -> String {
        format!("/dev/{}", self.name)
    }
}

/// Returns the SCSI host and the LUN of a block device.
fn address(block: &Path) -> Option<(u32, u64)> {
    // The link ends in HOST:CHANNEL:TARGET:LUN. Partitions have no such link.
    let address = sysfs::name(fs::read_link(block.join("device")).ok()?);
    let mut numbers = address.split(':');
    let host = numbers.next()?.parse().ok()?;
    Some((host, numbers.next_back()?.parse().ok()?))
}

/// Returns the first link in `folder` that starts with `prefix`, for each device that has one.
fn links(sysfs: &Sysfs, folder: &str, prefix: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in sysfs.entries(folder) {
        let name = sysfs::name(&path);
        if !name.starts_with(prefix) {
            continue;
        }
        if let Ok(to) = fs::read_link(&path) {
            found
                .entry(sysfs::name(to))
                .or_insert_with(|| format!("{folder}/{name}"));
        }
    }
    found
}

/// Returns the name of the multipath map that uses a disk.
fn holder(sysfs: &Sysfs, disk: &str) -> Option<String> {
    let holders = sysfs.entries(format!("/sys/class/block/{disk}/holders"));
    let map = holders.iter().find(|holder| multipath::is_map(holder))?;
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
    use crate::{list, session::Session};
    use nix::time::{clock_gettime, ClockId};
    use std::{os::unix::fs::symlink, time::Duration};

    /// Makes a machine with sessions of 16 disks each.
    fn machine(hosts: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let link = |path: String, to: String| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, path).unwrap();
        };
        for host in 0..hosts {
            for (file, text) in [
                ("proc_name", "ib_srp"),
                ("id_ext", "0x0000000000000001"),
                ("ioc_guid", "0x0000000000000002"),
                ("local_ib_device", "rxe0"),
                ("local_ib_port", "1"),
            ] {
                put(format!("sys/class/scsi_host/host{host}/{file}"), text);
            }
            for lun in 0..16 {
                let number = host * 16 + lun;
                let block = format!("sys/class/block/sd{number}");
                let scsi = format!("sys/devices/{host}:0:0:{lun}");
                put(format!("{scsi}/wwid"), &format!("naa.{number}"));
                put(format!("{scsi}/state"), "running");
                put(format!("{block}/size"), "2048");
                let to = format!("../../../devices/{host}:0:0:{lun}");
                link(format!("{block}/device"), to);
                link(format!("dev/srp{number}"), format!("sd{number}"));
                let name = format!("dev/disk/by-path/srp-{host}-lun-{lun}");
                link(name, format!("../../sd{number}"));
            }
        }
        folder
    }

    /// Returns the CPU time of this thread.
    fn cpu() -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
            .unwrap()
            .into()
    }

    #[test]
    fn a_thousand_disks_cost_little() {
        let folder = machine(64);
        let sysfs = Sysfs::below(folder.path());
        let list = || {
            let before = cpu();
            let all = Session::all(&sysfs);
            let text = list::table(&all).to_string();
            let took = cpu() - before;
            assert_eq!(text.lines().count(), 1 + 1024);
            assert_eq!(all.iter().map(|s| s.disks.len()).max(), Some(16));
            took
        };
        // The other tests share the caches of the CPUs.
        let least = (0..5).map(|_| list()).min().unwrap();
        assert!(least < Duration::from_millis(100), "{least:?}");
    }

    #[test]
    fn only_our_names_last() {
        let folder = machine(1);
        let by_path = folder.path().join("dev/disk/by-path");
        symlink("../../sd3", by_path.join("pci-0000:01:00.0-scsi-0:0:0:3")).unwrap();
        let disks = Disk::all(&Sysfs::below(folder.path()), &[0]);
        let name = disks[&0][3].by_path.as_deref();
        assert_eq!(name, Some("/dev/disk/by-path/srp-0-lun-3"));
        // `-` comes before `0`.
        for path in ["srp--1-lun-3", "srp-0x01-1-lun-3"] {
            symlink("../../sd3", by_path.join(path)).unwrap();
        }
        let disks = Disk::all(&Sysfs::below(folder.path()), &[0]);
        let name = disks[&0][3].by_path.as_deref();
        assert_eq!(name, Some("/dev/disk/by-path/srp-0x01-1-lun-3"));
    }

    #[test]
    fn a_size_may_be_any_number() {
        let folder = machine(1);
        let sysfs = Sysfs::below(folder.path());
        let size = |text: &str| {
            fs::write(folder.path().join("sys/class/block/sd3/size"), text).unwrap();
            Disk::all(&sysfs, &[0])[&0][3].size
        };
        assert_eq!(size("18446744073709551615\n"), u64::MAX);
        assert_eq!((size("8\n"), size("-1\n")), (4096, 0));
    }

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
