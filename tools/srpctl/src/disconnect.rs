// SPDX-License-Identifier: GPL-2.0

//! `srpctl disconnect`.

use crate::{
    cli::Disconnect,
    disk,
    error::{Error, Result},
    out::say,
    owner::Owner,
    session::Session,
    sysfs::Sysfs,
    target::{self, Target},
    unit,
};
use serde::Deserialize;
use std::{
    fs,
    io::ErrorKind,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit of a logout. It takes about a second, or 10 s if the target does not respond;
/// removing the disks may take as long as a command.
const PATIENCE: Duration = Duration::from_secs(80);

pub fn run(sysfs: &Sysfs, args: &Disconnect) -> Result {
    if args.all {
        let mut all = Session::all(sysfs);
        all.retain(|session| session.owner.as_deref() == Some("srpctl"));
        return log_out(sysfs, &all, args);
    }
    let mut all = Vec::new();
    let mut targets = Vec::new();
    for argument in &args.sessions {
        let meant = Session::meant(sysfs, argument)?;
        if meant.is_empty() {
            say!("{argument}: not logged in");
        }
        let name = match meant
            .iter()
            .find(|s| s.name() == *argument || s.host.to_string() == *argument)
        {
            Some(session) => session.target.clone(),
            None => Some(argument.clone()),
        };
        if args.forget && name.is_none() {
            return Err(Error::NotFound(format!(
                "{argument} has no file in {}",
                target::FOLDER
            )));
        }
        targets.extend(name);
        all.extend(meant);
    }
    // Two arguments may name the same session.
    all.sort_by_key(|session| session.host);
    all.dedup_by_key(|session| session.host);
    targets.sort();
    targets.dedup();
    log_out(sysfs, &all, args)?;
    for name in &targets {
        if args.forget {
            let path = Target::path(sysfs, name)?;
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io(&path, e)),
                _ => {}
            }
        }
        if !args.unit {
            unit::systemctl(&["stop", "--no-block"], name)?;
        }
    }
    if args.forget {
        unit::reload()?;
    }
    Ok(())
}

/// Logs out of all sessions, or of none if a disk is in use.
fn log_out(sysfs: &Sysfs, sessions: &[Session], args: &Disconnect) -> Result {
    let going: Vec<&str> = sessions
        .iter()
        .flat_map(|session| &session.disks)
        .map(|disk| disk.name.as_str())
        .collect();
    if !args.force {
        for disk in &going {
            if let Some(place) = in_use(sysfs, disk, &going, !args.unit)? {
                return Err(Error::Busy(format!("{disk} is in use: {place}")));
            }
        }
    }
    for session in sessions {
        let delete = Session::remote_port(sysfs, session.host).join("delete");
        fs::write(&delete, "1").map_err(|e| Error::io(&delete, e))?;
    }
    let end = Instant::now() + PATIENCE;
    for session in sessions {
        while session.folder(sysfs).exists() {
            if Instant::now() > end {
                return Err(Error::Late(format!(
                    "{} is still being removed after {} s",
                    session.name(),
                    PATIENCE.as_secs()
                )));
            }
            sleep(Duration::from_millis(50));
        }
        Owner::forget(sysfs, session);
        say!("{}: logged out", session.name());
    }
    Ok(())
}

/// lsblk's output for a disk, and for the devices that use it.
#[derive(Debug, Deserialize)]
struct Block {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mountpoints: Vec<Option<String>>,
    #[serde(default)]
    children: Vec<Block>,
}

#[derive(Debug, Deserialize)]
struct Lsblk {
    blockdevices: Vec<Block>,
}

/// Returns how the disk is used: where it is mounted or, with `layers`, what is built on it. A
/// multipath map with paths besides `going` does not count. During shutdown these layers still
/// exist.
fn in_use(sysfs: &Sysfs, disk: &str, going: &[&str], layers: bool) -> Result<Option<String>> {
    if !sysfs.path(format!("/dev/{disk}")).exists() {
        return Ok(None);
    }
    let out = Command::new("lsblk")
        .args(["-J", "-o", "NAME,TYPE,MOUNTPOINTS", &format!("/dev/{disk}")])
        .output()
        .map_err(|e| Error::Program(format!("lsblk: {e}")))?;
    let tree: Lsblk =
        serde_json::from_slice(&out.stdout).map_err(|e| Error::Program(format!("lsblk: {e}")))?;
    let others = disk::other_paths(sysfs, disk);
    let stays = others.iter().any(|other| !going.contains(&other.as_str()));
    Ok(tree
        .blockdevices
        .iter()
        .find_map(|block| place(block, stays, layers)))
}

/// Returns how a block device or one above it is used, or `None`.
fn place(block: &Block, other_paths: bool, layers: bool) -> Option<String> {
    if block.kind == "mpath" && other_paths {
        return None;
    }
    let mounted = block.mountpoints.iter().flatten().next();
    mounted
        .map(|place| match place.as_str() {
            "[SWAP]" => format!("{} is swap", block.name),
            place => format!("{} is mounted at {place}", block.name),
        })
        .or_else(|| {
            block
                .children
                .iter()
                .find_map(|child| place(child, other_paths, layers))
        })
        .or_else(|| {
            let made = layers && !["disk", "part", "mpath"].contains(&block.kind.as_str());
            made.then(|| format!("{} ({}) uses it", block.name, block.kind))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, other_paths: bool) -> Option<String> {
        let tree: Lsblk = serde_json::from_str(text).unwrap();
        tree.blockdevices
            .iter()
            .find_map(|block| place(block, other_paths, true))
    }

    #[test]
    fn a_path_of_several_may_go() {
        let mounted = r#"{"blockdevices": [{"name": "sda", "type": "disk", "mountpoints": [null], "children": [
            {"name": "mpatha", "type": "mpath", "mountpoints": ["/srv"]}]}]}"#;
        assert_eq!(of(mounted, true), None);
        assert_eq!(
            of(mounted, false).as_deref(),
            Some("mpatha is mounted at /srv")
        );
    }

    #[test]
    fn a_mounted_disk_may_not() {
        let part = r#"{"blockdevices": [{"name": "sda", "type": "disk", "mountpoints": [null], "children": [
            {"name": "sda1", "type": "part", "mountpoints": ["[SWAP]"]}]}]}"#;
        assert_eq!(of(part, true).as_deref(), Some("sda1 is swap"));
        let free = r#"{"blockdevices": [{"name": "sda", "type": "disk", "mountpoints": [null]}]}"#;
        assert_eq!(of(free, false), None);
    }

    #[test]
    fn a_disk_that_others_are_made_of_may_not() {
        let volume = r#"{"name": "vg-a", "type": "lvm", "mountpoints": [null]}"#;
        let one = format!(
            r#"{{"blockdevices": [{{"name": "sda", "type": "disk", "mountpoints": [null], "children": [{volume}]}}]}}"#
        );
        assert_eq!(of(&one, true).as_deref(), Some("vg-a (lvm) uses it"));
        let tree: Lsblk = serde_json::from_str(&one).unwrap();
        assert_eq!(place(&tree.blockdevices[0], true, false), None);
        // The multipath map has another path, and carries the volume.
        let map = r#"{"blockdevices": [{"name": "sda", "type": "disk", "mountpoints": [null], "children": [
            {"name": "mpatha", "type": "mpath", "mountpoints": [null], "children": [VOLUME]}]}]}"#;
        let map = map.replace("VOLUME", volume);
        assert_eq!(of(&map, true), None);
        assert_eq!(of(&map, false).as_deref(), Some("vg-a (lvm) uses it"));
    }
}
