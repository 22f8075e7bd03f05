// SPDX-License-Identifier: GPL-2.0

//! Multipath maps, and what a map can still do without some of its paths.

use crate::sysfs::{self, Sysfs};
use std::path::Path;

/// Returns whether a block device, a directory in sysfs, is a multipath map.
pub fn is_map(block: &Path) -> bool {
    sysfs::text(block.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
}

/// Returns whether a device is a partition of a multipath map, as kpartx makes it.
pub fn is_partition(block: &Path) -> bool {
    let uuid = sysfs::text(block.join("dm/uuid")).unwrap_or_default();
    uuid.starts_with("part") && uuid.contains("-mpath-")
}

/// The remains of a multipath map when disks are removed.
pub enum Staying {
    /// The map, with a path that works, or without one, as before.
    Map,
    /// These paths, none of which works. A path that works is removed.
    Dead(String),
    /// No path.
    Nothing,
}

/// Returns what stays of the map `holder` without the disks `going`.
pub fn staying(sysfs: &Sysfs, holder: &str, going: &[&str]) -> Staying {
    let paths = sysfs.entries(format!("/sys/class/block/{holder}/slaves"));
    let paths = paths.iter().map(sysfs::name);
    let (gone, stays): (Vec<_>, Vec<_>) = paths.partition(|path| going.contains(&path.as_str()));
    let works = |path: &String| fault(sysfs, path).is_none();
    if stays.is_empty() {
        Staying::Nothing
    } else if stays.iter().any(works) || !gone.iter().any(works) {
        Staying::Map
    } else {
        let faults = stays
            .iter()
            .filter_map(|path| Some(format!("{path} is {}", fault(sysfs, path)?)));
        Staying::Dead(faults.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the state of a disk that does no I/O, `None` if it does. Only SCSI and NVMe disks have a
/// state.
fn fault(sysfs: &Sysfs, disk: &str) -> Option<String> {
    let state = sysfs::text(sysfs.path(format!("/sys/class/block/{disk}/device/state")))?;
    (!matches!(state.as_str(), "running" | "live")).then_some(state)
}

#[cfg(test)]
mod tests {
    use crate::holder::tests::Machine;

    #[test]
    fn the_last_path_that_works_stays() {
        let machine = Machine::new();
        machine.map("dm-0", "mpatha", "mpath-1", &["sda", "sdb"]);
        machine.put("sys/class/block/dm-0/dev", "253:0");
        machine.put(
            "proc/self/mountinfo",
            "30 1 253:0 / /srv rw - ext4 /dev/mapper/mpatha rw\n",
        );
        let state = |disk: &str, state: &str| {
            machine.put(&format!("sys/class/block/{disk}/device/state"), state);
        };
        state("sda", "running\n");
        state("sdb", "running\n");
        assert_eq!(machine.sentences(&["sda"]), [""; 0]);
        for fault in ["blocked", "offline", "transport-offline"] {
            state("sdb", &format!("{fault}\n"));
            let said = format!("mpatha (no other path works: sdb is {fault}) is mounted at /srv");
            assert_eq!(machine.sentences(&["sda"]), std::slice::from_ref(&said));
            assert_eq!(machine.at_shutdown(&["sda"]), [said]);
            // The path that does not work may go.
            assert_eq!(machine.sentences(&["sdb"]), [""; 0]);
        }
        // No path works: the map stays as it is.
        state("sda", "blocked\n");
        assert_eq!(machine.sentences(&["sda"]), [""; 0]);
        assert_eq!(
            machine.sentences(&["sda", "sdb"]),
            ["mpatha is mounted at /srv"]
        );
    }
}
