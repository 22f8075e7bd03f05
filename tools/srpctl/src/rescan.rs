// SPDX-License-Identifier: GPL-2.0

//! `srpctl rescan`.

use crate::{
    cli::Rescan,
    disconnect,
    disk::{self, Disk},
    error::{Error, Result},
    lun::{self, Answer},
    out::say,
    session::Session,
    sysfs::{self, Sysfs},
    turn::Turn,
};
use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit for the block devices of new disks, which appear after the scan.
const PROBES: Duration = Duration::from_secs(5);

pub fn run(sysfs: &Sysfs, args: &Rescan) -> Result {
    if args.event {
        return args.sessions.iter().try_for_each(|host| event(sysfs, host));
    }
    if args.queued {
        return args
            .sessions
            .iter()
            .try_for_each(|unit| queued(sysfs, unit));
    }
    let sessions = if args.sessions.is_empty() {
        Session::all(sysfs)
    } else {
        let mut all = Vec::new();
        for argument in &args.sessions {
            let meant = Session::meant(sysfs, argument)?;
            if meant.is_empty() {
                return Err(Error::NotFound(format!("{argument}: not logged in")));
            }
            all.extend(meant);
        }
        // Two arguments may name the same session.
        all.sort_by_key(|session| session.host);
        all.dedup_by_key(|session| session.host);
        all
    };
    let mut result = Ok(());
    let mut gone = Vec::new();
    for session in &sessions {
        let turn = Turn::now(sysfs, &session.name())?;
        match look(sysfs, session) {
            Ok(found) => gone.extend(found),
            Err(error) => result = later(result, error),
        }
        turn.end()?;
    }
    if args.remove {
        for name in &gone {
            if let Err(error) = remove(sysfs, name, &gone) {
                result = later(result, error);
            }
        }
    }
    result
}

/// Returns the later of two errors, and prints the earlier one.
fn later(before: Result, error: Error) -> Result {
    if let Err(before) = before {
        eprintln!("srpctl: {before}");
    }
    Err(error)
}

/// Acts on a unit attention, for udev: has a rescan done, in the background if systemd is there.
fn event(sysfs: &Sysfs, host: &str) -> Result {
    // A rescan that has not begun suffices.
    if Turn::is_awaited(sysfs, host)? {
        return Ok(());
    }
    if !sysfs.path("/run/systemd/system").exists() {
        return queued(sysfs, host);
    }
    // A unit for each event: one that has begun its rescan must not swallow the next event.
    let unit = format!("srp-rescan@{host}:{}.service", std::process::id());
    let status = Command::new("systemctl")
        .args(["--no-block", "--quiet", "start", &unit])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Program(format!("systemctl start {unit}: {status}"))),
        Err(e) => Err(Error::Program(format!("systemctl: {e}"))),
    }
}

/// Rescans a host, named by itself or by its unit, when its interval has passed.
fn queued(sysfs: &Sysfs, unit: &str) -> Result {
    let host = unit.split(':').next().unwrap_or(unit);
    let Some(turn) = Turn::after_interval(sysfs, host)? else {
        return Ok(());
    };
    // The session may have ended meanwhile.
    let sessions = Session::meant(sysfs, host).unwrap_or_default();
    for session in &sessions {
        look(sysfs, session)?;
    }
    turn.end()
}

/// Returns the disks that a session has now.
fn disks(sysfs: &Sysfs, session: &Session) -> Vec<Disk> {
    let mut all = Disk::all(sysfs, &[session.host]);
    all.remove(&session.host).unwrap_or_default()
}

/// Rescans a session and prints what has changed. Returns the disks that are gone at the target.
pub fn look(sysfs: &Sysfs, session: &Session) -> Result<Vec<String>> {
    let host = session.name();
    if session.state != "running" {
        let state = &session.state;
        return Err(Error::Program(format!("{host} is {state}, not rescanned")));
    }
    // Another rescan may have found some of them while this one waited for its turn.
    let before = disks(sysfs, session);
    let scan = session.folder(sysfs).join("scan");
    fs::write(&scan, "- - -").map_err(|e| Error::io(&scan, e))?;
    let mut answers = BTreeMap::new();
    for disk in &before {
        let answer = lun::ask(sysfs, disk);
        // The size of a disk that is gone would become 0.
        if answer == Answer::There {
            let rescan = folder(sysfs, &disk.name).join("rescan");
            fs::write(&rescan, "1").map_err(|e| Error::io(&rescan, e))?;
        }
        answers.insert(disk.name.clone(), answer);
    }
    await_probes(sysfs, session.host);
    let now = disks(sysfs, session);
    let said = changes(&before, &now, &answers);
    for line in &said {
        say!("{host}: {line}");
    }
    if said.is_empty() {
        say!("{host}: no change");
    }
    answers.retain(|_, answer| *answer == Answer::Gone);
    Ok(answers.into_keys().collect())
}

/// Returns a sentence for each change of the disks.
fn changes(before: &[Disk], now: &[Disk], answers: &BTreeMap<String, Answer>) -> Vec<String> {
    let old: BTreeMap<&str, &Disk> = before
        .iter()
        .map(|disk| (disk.name.as_str(), disk))
        .collect();
    let mut sentences = Vec::new();
    for disk in now {
        let (name, lun, size) = (&disk.name, disk.lun, disk::size(disk.size));
        match (old.get(name.as_str()), answers.get(name)) {
            (None, _) => {
                sentences.push(format!("{name} is new: LUN {lun}, {size}, {}", disk.model));
            }
            (Some(_), Some(Answer::Gone)) => sentences.push(format!(
                "{name} (LUN {lun}) is gone at the target; 'srpctl rescan --remove' removes it"
            )),
            (Some(_), Some(Answer::None)) => {
                sentences.push(format!("{name} (LUN {lun}) does not answer"));
            }
            (Some(old), _) if old.size != disk.size => {
                let was = disk::size(old.size);
                sentences.push(format!(
                    "{name} (LUN {lun}) changes its size from {was} to {size}"
                ));
            }
            _ => {}
        }
    }
    for disk in before
        .iter()
        .filter(|disk| now.iter().all(|d| d.name != disk.name))
    {
        sentences.push(format!("{} (LUN {}) is removed", disk.name, disk.lun));
    }
    sentences
}

/// Removes a disk that is gone at the target, as are those of `gone`, unless it is in use.
fn remove(sysfs: &Sysfs, name: &str, gone: &[String]) -> Result {
    let all: Vec<&str> = gone.iter().map(String::as_str).collect();
    // A claim on the disk ends with it.
    let going: Vec<&str> = match disk::other_paths(sysfs, name).is_empty() {
        true => vec![name],
        false => all,
    };
    disconnect::free(sysfs, &going, true)?;
    let delete = folder(sysfs, name).join("delete");
    fs::write(&delete, "1").map_err(|e| Error::io(&delete, e))?;
    say!("{name} is removed");
    Ok(())
}

/// Returns the directory of a disk's SCSI device.
fn folder(sysfs: &Sysfs, name: &str) -> std::path::PathBuf {
    sysfs.path(format!("/sys/class/block/{name}/device"))
}

/// Waits until each disk of a SCSI host has its block device.
fn await_probes(sysfs: &Sysfs, host: u32) {
    let end = Instant::now() + PROBES;
    let start = format!("{host}:");
    let is_probed = |device: &std::path::PathBuf| {
        let folder = device.join("device");
        !sysfs::name(device).starts_with(&start)
            || sysfs::text(folder.join("type")).as_deref() != Some("0")
            || folder.join("block").exists()
    };
    while !sysfs
        .entries("/sys/class/scsi_device")
        .iter()
        .all(is_probed)
        && Instant::now() < end
    {
        sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, lun: u64, size: u64) -> Disk {
        Disk {
            name: name.into(),
            link: None,
            by_path: None,
            lun,
            size,
            model: "LIO-ORG disk".into(),
            wwid: None,
            state: "running".into(),
            paths: Vec::new(),
            multipath: None,
        }
    }

    #[test]
    fn each_change_is_said() {
        let before = [
            disk("sda", 0, 1 << 20),
            disk("sdb", 1, 1 << 20),
            disk("sdc", 2, 1 << 20),
            disk("sdd", 3, 1 << 20),
            disk("sde", 4, 1 << 20),
        ];
        let now = [
            disk("sda", 0, 1 << 20),
            disk("sdb", 1, 2 << 20),
            disk("sdc", 2, 1 << 20),
            disk("sdd", 3, 1 << 20),
            disk("sdf", 5, 1 << 20),
        ];
        let answers = [
            ("sda", Answer::There),
            ("sdb", Answer::There),
            ("sdc", Answer::Gone),
            ("sdd", Answer::None),
        ];
        let answers = answers
            .map(|(name, answer)| (name.to_string(), answer))
            .into();
        assert_eq!(
            changes(&before, &now, &answers),
            [
                "sdb (LUN 1) changes its size from 1 MiB to 2 MiB",
                "sdc (LUN 2) is gone at the target; 'srpctl rescan --remove' removes it",
                "sdd (LUN 3) does not answer",
                "sdf is new: LUN 5, 1 MiB, LIO-ORG disk",
                "sde (LUN 4) is removed",
            ]
        );
        assert_eq!(changes(&now[..2], &now[..2], &answers), [""; 0]);
    }

    #[test]
    fn a_session_without_a_connection_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session {
            host: 7,
            state: "blocked".into(),
            ..Session::default()
        };
        let error = look(&Sysfs::below(folder.path()), &session).unwrap_err();
        assert_eq!(error.to_string(), "host7 is blocked, not rescanned");
    }
}
