// SPDX-License-Identifier: GPL-2.0

//! Holders of a disk: file systems, swap, volumes, back ends and processes that use it.

use crate::{
    mount::{self, Mount},
    multipath::{self, Staying},
    sysfs::{self, Sysfs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Time limit of an exclusive open. It waits while the midlayer handles errors of the disk.
const OPEN: Duration = Duration::from_secs(5);

/// Programs that open each disk and close it when it is removed.
const WATCHERS: [&str; 4] = ["multipathd", "systemd-udevd", "(udev-worker)", "udevd"];

/// The users of disks, and exclusive opens of the disks without a user.
pub struct Holders {
    /// A sentence for each holder.
    pub sentences: Vec<String>,
    /// Disks that are open exclusively, so no file system and no volume can start to use them.
    pub claims: Vec<File>,
}

impl Holders {
    /// Finds the holders of disks that are about to be removed. A multipath map that keeps a path
    /// that works stays, so its holders do not count. During shutdown (`layers` is false) volumes,
    /// back ends and processes still exist, and only file systems and swap count.
    pub fn of(sysfs: &Sysfs, going: &[&str], layers: bool) -> Self {
        let tree = Tree::of(sysfs, going);
        let mut sentences = tree.mounted(sysfs);
        sentences.extend(tree.swap(sysfs));
        let mut claims = Vec::new();
        if layers {
            sentences.extend(tree.layers.iter().cloned());
            sentences.extend(tree.back_ends(sysfs));
            sentences.extend(tree.processes(sysfs));
            let (free, held) = tree.claim(sysfs);
            claims = free;
            // A file system or a back end that already has a sentence also claims the disk.
            if sentences.is_empty() {
                sentences = held;
            }
        }
        Self { sentences, claims }
    }
}

/// A block device that is about to be removed.
struct Device {
    /// Number in the format of `mountinfo`.
    number: String,
    /// The name that administrators know: the device mapper's, or the kernel's.
    shown: String,
}

/// The block devices that are removed with a disk, by the kernel's names.
#[derive(Default)]
struct Tree {
    devices: BTreeMap<String, Device>,
    /// Devices without anything on top, which can be opened exclusively.
    free: Vec<String>,
    /// A sentence for each device that is built on another one.
    layers: Vec<String>,
    /// The multipath maps that keep paths, none of which works, with the names and states of these.
    dead: BTreeMap<String, String>,
}

impl Tree {
    fn of(sysfs: &Sysfs, going: &[&str]) -> Self {
        let mut tree = Self::default();
        let loops = loops(sysfs);
        let mut waiting: Vec<String> = going.iter().rev().map(|name| name.to_string()).collect();
        while let Some(name) = waiting.pop() {
            let folder = sysfs.path(format!("/sys/class/block/{name}"));
            if tree.devices.contains_key(&name) || !folder.exists() {
                continue;
            }
            let mut shown = sysfs::text(folder.join("dm/name")).unwrap_or_else(|| name.clone());
            if let Some(paths) = tree.dead.get(&name) {
                shown += &format!(" (no other path works: {paths})");
            }
            let device = Device {
                number: sysfs::text(folder.join("dev")).unwrap_or_default(),
                shown: shown.clone(),
            };
            tree.devices.insert(name.clone(), device);
            let mut free = !folder.join("partition").exists();
            let holders = sysfs.entries(format!("/sys/class/block/{name}/holders"));
            for path in holders {
                free = false;
                let holder = sysfs::name(&path);
                let block = sysfs.path(format!("/sys/class/block/{holder}"));
                if multipath::is_map(&block) {
                    match multipath::staying(sysfs, &holder, going) {
                        Staying::Map => continue,
                        Staying::Dead(paths) => {
                            tree.dead.insert(holder.clone(), paths);
                        }
                        Staying::Nothing => {}
                    }
                } else if !multipath::is_partition(&block) {
                    tree.layers.push(layer(&block, &holder, &shown));
                }
                waiting.push(holder);
            }
            for device in loops.iter().filter(|(_, of)| *of == name).map(|(l, _)| l) {
                tree.layers
                    .push(format!("{device} (loop device) is made of {shown}"));
                waiting.push(device.clone());
            }
            let parts = sysfs.entries(format!("/sys/class/block/{name}"));
            let parts = parts.iter().filter(|part| part.join("partition").exists());
            for part in parts {
                let part = sysfs::name(part);
                free &= sysfs
                    .entries(format!("/sys/class/block/{part}/holders"))
                    .is_empty();
                waiting.push(part);
            }
            if free {
                tree.free.push(name);
            }
        }
        tree
    }

    /// Returns the mounted file systems, in all mount namespaces.
    fn mounted(&self, sysfs: &Sysfs) -> Vec<String> {
        let mounts = mount::all(sysfs);
        let mut sentences = Vec::new();
        let mut done = BTreeSet::new();
        for (name, device) in &self.devices {
            let here = |mount: &&Mount| {
                mount.number == device.number || mount.device.as_ref() == Some(name)
            };
            let mut places = BTreeSet::new();
            // A copy of the namespace has the same mounts.
            for mount in mounts.iter().filter(here) {
                if places.insert(&mount.place) {
                    sentences.push(format!("{} is mounted at {}", device.shown, mount.shown()));
                    done.insert(name.clone());
                }
            }
        }
        for system in mount::of_several(sysfs) {
            let member = |device: &String| self.devices.contains_key(device);
            for name in system.devices.iter().filter(|name| member(name)) {
                let shown = &self.devices[name].shown;
                if done.insert(name.clone()) {
                    let of = |device: &String| system.devices.contains(device);
                    let mount = mounts.iter().find(|m| m.device.as_ref().is_some_and(of));
                    let place = mount.map(|m| format!(", which is mounted at {}", m.shown()));
                    let place = place.unwrap_or_default();
                    sentences.push(format!("{shown} is part of {}{place}", system.name));
                }
            }
        }
        // A file system that is unmounted lazily, or in a namespace without a process, is in no
        // `mountinfo`, but has a directory in sysfs.
        let kinds = sysfs.entries("/sys/fs");
        for (name, device) in self
            .devices
            .iter()
            .filter(|(name, _)| !done.contains(*name))
        {
            let kind = kinds.iter().find(|kind| kind.join(name).exists());
            if let Some(kind) = kind.map(sysfs::name) {
                sentences.push(format!("{} has an active {kind} file system", device.shown));
            }
        }
        sentences
    }

    fn swap(&self, sysfs: &Sysfs) -> Vec<String> {
        let text = sysfs::text(sysfs.path("/proc/swaps")).unwrap_or_default();
        let areas = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        areas
            .filter_map(|path| mount::device(sysfs, &mount::unescaped(path)))
            .filter_map(|name| self.devices.get(&name))
            .map(|device| format!("{} is swap", device.shown))
            .collect()
    }

    /// Returns the back ends of LIO and of the NVMe target.
    fn back_ends(&self, sysfs: &Sysfs) -> Vec<String> {
        let mut sentences = Vec::new();
        for kind in sysfs.entries("/sys/kernel/config/target/core") {
            for folder in children(&kind) {
                for name in lio_devices(sysfs, &folder) {
                    if let Some(Device { shown, .. }) = self.devices.get(&name) {
                        let back_end = format!("{}/{}", sysfs::name(&kind), sysfs::name(&folder));
                        sentences.push(format!("{shown} is the back end {back_end} of LIO"));
                    }
                }
            }
        }
        for subsystem in sysfs.entries("/sys/kernel/config/nvmet/subsystems") {
            for folder in children(&subsystem.join("namespaces")) {
                let path = sysfs::text(folder.join("device_path")).unwrap_or_default();
                let name = mount::device(sysfs, &path);
                let device = name.and_then(|name| self.devices.get(&name));
                let enabled = sysfs::text(folder.join("enable")).as_deref() == Some("1");
                if let Some(Device { shown, .. }) = device.filter(|_| enabled) {
                    sentences.push(format!(
                        "{shown} is namespace {} of the NVMe subsystem {}",
                        sysfs::name(&folder),
                        sysfs::name(&subsystem)
                    ));
                }
            }
        }
        sentences
    }

    /// Returns the processes that have a device open.
    fn processes(&self, sysfs: &Sysfs) -> Vec<String> {
        let own = std::process::id().to_string();
        let mut sentences = Vec::new();
        for process in sysfs.entries("/proc") {
            let id = sysfs::name(&process);
            if id == own || !id.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let links = fs::read_dir(process.join("fd")).into_iter().flatten();
            let open: BTreeSet<&String> = links
                .flatten()
                .filter_map(|fd| self.opened(sysfs, &fd.path()))
                .map(|device| &device.shown)
                .collect();
            let program = sysfs::text(process.join("comm")).unwrap_or_default();
            if !WATCHERS.contains(&program.as_str()) {
                let sentence = |name| format!("{name} is open in {program} (process {id})");
                sentences.extend(open.into_iter().map(sentence));
            }
        }
        sentences
    }

    /// Returns the device that a process has open, by a link in `/proc/PID/fd`.
    fn opened(&self, sysfs: &Sysfs, fd: &Path) -> Option<&Device> {
        let to = fs::read_link(fd).ok()?;
        let to = to.to_string_lossy();
        // stat() of another file may wait for a server.
        if !to.contains("/dev/") {
            return None;
        }
        // The name is relative to the process's own /dev, so compare the open file.
        match fs::metadata(fd) {
            Ok(file) => {
                let number = mount::number(&file)?;
                self.devices.values().find(|device| device.number == number)
            }
            Err(_) => self.devices.get(&mount::device(sysfs, &to)?),
        }
    }

    /// Opens the free devices exclusively. Returns them, and a sentence for each that is already
    /// claimed.
    fn claim(&self, sysfs: &Sysfs) -> (Vec<File>, Vec<String>) {
        let (mut claims, mut sentences) = (Vec::new(), Vec::new());
        for name in &self.free {
            match exclusive(sysfs.path(format!("/dev/{name}"))) {
                Ok(file) => claims.extend(file),
                Err(()) => {
                    let zfs = sysfs.path("/proc/spl/kstat/zfs").exists();
                    let zfs = if zfs { "; see zpool status" } else { "" };
                    let shown = &self.devices[name].shown;
                    sentences.push(format!(
                        "{shown} is claimed by a file system, a driver or a program that \
                         does not show itself{zfs}"
                    ));
                }
            }
        }
        (claims, sentences)
    }
}

/// Opens a device exclusively. Returns an error if it is already claimed, and `None` if it does not
/// respond.
fn exclusive(path: PathBuf) -> Result<Option<File>, ()> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let flags = nix::fcntl::OFlag::O_EXCL.bits();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        // Closes the file at once if the time limit has passed.
        let _ = send.send(file);
    });
    match receive.recv_timeout(OPEN) {
        Ok(Ok(file)) => Ok(Some(file)),
        Ok(Err(e)) if e.kind() == ErrorKind::ResourceBusy => Err(()),
        _ => Ok(None),
    }
}

/// Returns each loop device with its backing device.
fn loops(sysfs: &Sysfs) -> Vec<(String, String)> {
    let blocks = sysfs.entries("/sys/class/block");
    blocks
        .iter()
        .filter(|block| sysfs::name(block).starts_with("loop"))
        .filter_map(|block| {
            let file = sysfs::text(block.join("loop/backing_file"))?;
            Some((sysfs::name(block), mount::device(sysfs, &file)?))
        })
        .collect()
}

/// Returns a sentence for a device `holder` that is built on `name`.
fn layer(block: &Path, holder: &str, name: &str) -> String {
    let uuid = sysfs::text(block.join("dm/uuid")).unwrap_or_default();
    let shown = sysfs::text(block.join("dm/name")).unwrap_or_else(|| holder.to_string());
    let kind = match uuid.split('-').next() {
        Some("LVM") => "logical volume",
        Some("CRYPT") => "encrypted device",
        _ if block.join("dm").exists() => "device mapper",
        _ if block.join("md").exists() => "RAID array",
        _ => "block device",
    };
    format!("{shown} ({kind}) is made of {name}")
}

/// Returns the block devices that a back end of LIO names.
fn lio_devices(sysfs: &Sysfs, folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let path = sysfs::text(folder.join("udev_path")).unwrap_or_default();
    found.extend(mount::device(sysfs, &path));
    // "iBlock device: sda  UDEV PATH: /dev/sda", "File: /dev/sda".
    let info = sysfs::text(folder.join("info")).unwrap_or_default();
    let words: Vec<&str> = info.split_whitespace().collect();
    for pair in words.windows(2) {
        match pair[0] {
            "device:" => found.extend([pair[1].to_string()]),
            "PATH:" | "File:" => found.extend(mount::device(sysfs, pair[1])),
            _ => {}
        }
    }
    found
}

/// Returns the directories in a directory.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine in a directory, with the disks sda and sdb.
    pub struct Machine(tempfile::TempDir);

    impl Machine {
        pub fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for (name, number) in [("sda", "8:0"), ("sdb", "8:16")] {
                machine.put(&format!("sys/class/block/{name}/dev"), number);
                machine.put(&format!("dev/{name}"), "");
            }
            machine.link("proc/self/ns/mnt", "mnt:[1]");
            machine
        }

        pub fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, path).unwrap();
        }

        /// Makes a device of the device mapper on others.
        pub fn map(&self, dm: &str, name: &str, uuid: &str, on: &[&str]) {
            let folder = format!("sys/class/block/{dm}");
            self.put(&format!("{folder}/dm/name"), name);
            self.put(&format!("{folder}/dm/uuid"), uuid);
            for disk in on {
                let to = format!("../../{dm}");
                self.link(&format!("sys/class/block/{disk}/holders/{dm}"), &to);
                self.link(&format!("{folder}/slaves/{disk}"), &format!("../../{disk}"));
            }
        }

        pub fn sentences(&self, going: &[&str]) -> Vec<String> {
            Holders::of(&Sysfs::below(self.0.path()), going, true).sentences
        }

        pub fn at_shutdown(&self, going: &[&str]) -> Vec<String> {
            Holders::of(&Sysfs::below(self.0.path()), going, false).sentences
        }
    }

    #[test]
    fn a_free_disk_is_claimed() {
        let machine = Machine::new();
        let sysfs = Sysfs::below(machine.0.path());
        let holders = Holders::of(&sysfs, &["sda", "sdb"], true);
        assert_eq!(holders.sentences, [""; 0]);
        assert_eq!(holders.claims.len(), 2);
        assert_eq!(Holders::of(&sysfs, &["sda"], false).claims.len(), 0);
    }

    #[test]
    fn a_mount_counts_in_each_namespace() {
        let machine = Machine::new();
        machine.put(
            "proc/self/mountinfo",
            "30 1 8:0 / /srv/a\\040b rw - ext4 /dev/sda rw\n31 1 0:5 / /sys rw - sysfs sysfs rw\n",
        );
        machine.link("proc/9/ns/mnt", "mnt:[1]");
        machine.put(
            "proc/9/mountinfo",
            "30 1 8:16 / /no rw - ext4 /dev/sdb rw\n",
        );
        assert_eq!(machine.sentences(&["sda"]), ["sda is mounted at /srv/a b"]);
        assert_eq!(
            machine.at_shutdown(&["sda"]),
            ["sda is mounted at /srv/a b"]
        );
        assert_eq!(machine.sentences(&["sdb"]), [""; 0]);
        machine.link("proc/812/ns/mnt", "mnt:[2]");
        machine.put("proc/812/comm", "sleep\n");
        machine.put(
            "proc/812/mountinfo",
            "30 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n",
        );
        // Another process of that namespace, and a copy of the namespace.
        for (process, namespace) in [("813", "mnt:[2]"), ("814", "mnt:[3]")] {
            machine.link(&format!("proc/{process}/ns/mnt"), namespace);
            let text = "30 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n";
            machine.put(&format!("proc/{process}/mountinfo"), text);
        }
        assert_eq!(
            machine.sentences(&["sdb"]),
            ["sdb is mounted at /mnt in the mount namespace of sleep (process 812)"]
        );
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_mount() {
        let machine = Machine::new();
        let text =
            b"29 1 8:0 / /\xff rw - ext4 /dev/sda rw\n30 1 8:16 / /b rw - ext4 /dev/sdb rw\n";
        let path = machine.0.path().join("proc/self/mountinfo");
        fs::write(path, text).unwrap();
        assert_eq!(machine.sentences(&["sdb"]), ["sdb is mounted at /b"]);
        assert_eq!(machine.sentences(&["sda"]), ["sda is mounted at /\u{fffd}"]);
    }

    #[test]
    fn an_open_file_counts_whatever_its_name() {
        let machine = Machine::new();
        // A regular file with a path like that of a block device.
        machine.put("srv/dev/sdb", "");
        let file = machine.0.path().join("srv/dev/sdb");
        machine.put("proc/812/comm", "sleep");
        machine.link("proc/812/fd/3", file.to_str().unwrap());
        assert_eq!(machine.sentences(&["sdb"]), [""; 0]);
    }

    #[test]
    fn a_file_system_of_several_disks_has_each() {
        let machine = Machine::new();
        machine.link("sys/fs/btrfs/b1/devices/sda", "../../../../class/block/sda");
        machine.link("sys/fs/btrfs/b1/devices/sdb", "../../../../class/block/sdb");
        machine.link(
            "sys/fs/bcachefs/c1/dev-0/block",
            "../../../../class/block/sdc",
        );
        machine.put("sys/class/block/sdc/dev", "8:32");
        machine.put(
            "proc/self/mountinfo",
            "30 1 0:40 / /srv rw - btrfs /dev/sda rw\n",
        );
        assert_eq!(
            machine.sentences(&["sdb"]),
            ["sdb is part of the btrfs file system b1, which is mounted at /srv"]
        );
        assert_eq!(machine.sentences(&["sda"]), ["sda is mounted at /srv"]);
        assert_eq!(
            machine.at_shutdown(&["sdc"]),
            ["sdc is part of the bcachefs file system c1"]
        );
    }

    #[test]
    fn a_file_system_without_a_mount_counts() {
        let machine = Machine::new();
        machine.put("sys/fs/ext4/sdb/delayed_allocation_blocks", "0");
        assert_eq!(machine.sentences(&["sda"]), [""; 0]);
        assert_eq!(
            machine.at_shutdown(&["sdb"]),
            ["sdb has an active ext4 file system"]
        );
    }

    #[test]
    fn partitions_count() {
        let machine = Machine::new();
        machine.put("sys/class/block/sda/sda1/partition", "1");
        machine.put("sys/class/block/sda1/partition", "1");
        machine.put("sys/class/block/sda1/dev", "8:1");
        machine.put(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/sda1 partition 9 0 -2\n",
        );
        assert_eq!(machine.sentences(&["sda"]), ["sda1 is swap"]);
        assert_eq!(machine.sentences(&["sdb"]), [""; 0]);
    }

    #[test]
    fn back_ends_and_processes_count() {
        let machine = Machine::new();
        machine.put("sys/class/block/loop0/loop/backing_file", "/dev/sdb");
        let lio = "sys/kernel/config/target/core/iblock_0/d0";
        let info =
            "Status: ACTIVATED\n        iBlock device: sdb  UDEV PATH: /dev/sdb  readonly: 0\n";
        machine.put(&format!("{lio}/info"), info);
        let nvmet = "sys/kernel/config/nvmet/subsystems/nqn.a/namespaces";
        for (namespace, disk, enable) in [("1", "sdb", "1"), ("2", "sda", "0")] {
            machine.put(
                &format!("{nvmet}/{namespace}/device_path"),
                &format!("/dev/{disk}\n"),
            );
            machine.put(&format!("{nvmet}/{namespace}/enable"), enable);
        }
        for (process, program) in [("7", "multipathd"), ("812", "qemu-system-x86")] {
            machine.put(&format!("proc/{process}/comm"), program);
            machine.link(&format!("proc/{process}/fd/3"), "/dev/sdb");
            machine.link(&format!("proc/{process}/fd/4"), "socket:[5]");
        }
        assert_eq!(
            machine.sentences(&["sdb", "sda"]),
            [
                "loop0 (loop device) is made of sdb",
                "sdb is the back end iblock_0/d0 of LIO",
                "sdb is namespace 1 of the NVMe subsystem nqn.a",
                "sdb is open in qemu-system-x86 (process 812)",
            ]
        );
        assert_eq!(machine.at_shutdown(&["sdb"]), [""; 0]);
    }

    #[test]
    fn a_path_of_several_may_go() {
        let machine = Machine::new();
        machine.map("dm-0", "mpatha", "mpath-1", &["sda", "sdb"]);
        machine.map("dm-1", "mpatha-part1", "part1-mpath-1", &["dm-0"]);
        machine.map("dm-2", "vg-a", "LVM-1", &["dm-1"]);
        machine.put("sys/class/block/dm-2/dev", "253:2");
        machine.put(
            "proc/self/mountinfo",
            "30 1 253:2 / /srv rw - ext4 /dev/mapper/vg-a rw\n",
        );
        assert_eq!(machine.sentences(&["sda"]), [""; 0]);
        assert_eq!(
            machine.sentences(&["sda", "sdb"]),
            [
                "vg-a is mounted at /srv",
                "vg-a (logical volume) is made of mpatha-part1",
            ]
        );
        assert_eq!(
            machine.at_shutdown(&["sda", "sdb"]),
            ["vg-a is mounted at /srv"]
        );
    }
}
