// SPDX-License-Identifier: GPL-2.0

//! `srpctl rescan`.

use crate::{
    cli::Rescan,
    connect, disconnect,
    disk::{self, Disk},
    error::{Error, Result},
    lun::{self, Answer},
    out::{say, tell},
    patience,
    session::{self, Session},
    sysfs::{self, Sysfs},
    turn::Turn,
    unit,
};
use std::{
    collections::BTreeMap,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit for the block devices of new disks, which appear after the scan.
const PROBES: Duration = Duration::from_secs(5);
/// Time limit of a reconnect that a queued rescan waits for.
const RECONNECT: Duration = Duration::from_secs(600);
/// Polling interval for the state of a session.
const POLL: Duration = Duration::from_secs(1);

/// A disk that is gone at the target.
#[derive(Debug)]
pub struct Gone {
    name: String,
    /// The kernel may give the name to another disk, but not with the same identity.
    identity: Identity,
}

/// HOST:CHANNEL:TARGET:LUN of a disk and its sequence number, which some kernels do not have.
type Identity = (String, Option<String>);

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
        let mut rescan = || {
            let turn = Turn::now(sysfs, &session.name())?;
            let looked = look_and_say(sysfs, session, &mut gone);
            let ended = turn.end();
            looked.and(ended)
        };
        if let Err(error) = rescan() {
            result = error.after(result);
        }
    }
    if args.remove {
        for disk in &gone {
            if let Err(error) = remove(sysfs, disk, &gone) {
                result = error.after(result);
            }
        }
    }
    result
}

/// Rescans a session that a login has found, and reads its disks again. A session without a disk
/// receives no unit attention. Without a connection it does nothing.
pub fn found(sysfs: &Sysfs, session: &mut Session) {
    if !session.is_connected() {
        return;
    }
    let rescan = || {
        let turn = Turn::now(sysfs, &session.name())?;
        let looked = look(sysfs, session, &mut Vec::new()).map(drop);
        let ended = turn.end();
        looked.and(ended)
    };
    if let Err(error) = rescan() {
        tell!("{error}");
    }
    connect::settle();
    session.disks = disks(sysfs, session);
}

/// Handles a unit attention, for udev: starts a rescan, in the background if systemd is there.
fn event(sysfs: &Sysfs, host: &str) -> Result {
    // A rescan that has not begun will find this change, too.
    if Turn::is_awaited(sysfs, host)? {
        return Ok(());
    }
    if !sysfs.path("/run/systemd/system").exists() {
        return queued(sysfs, host);
    }
    // Each event gets its own unit: a unit that has begun its rescan would swallow the next event.
    let name = format!("srp-rescan@{host}:{}.service", std::process::id());
    unit::run(&["--no-block", "--quiet", "start", &name]).map(drop)
}

/// Rescans a host, named by itself or by its unit, when its interval has passed and it is
/// connected.
fn queued(sysfs: &Sysfs, unit: &str) -> Result {
    let host = unit.split(':').next().unwrap_or(unit);
    let end = Instant::now() + RECONNECT;
    loop {
        let ready = || await_connection(sysfs, host, end);
        let Some(turn) = Turn::after_interval(sysfs, host, ready)? else {
            return Ok(());
        };
        // The session may have ended meanwhile.
        let sessions = Session::meant(sysfs, host).unwrap_or_default();
        let mut result = Ok(());
        for session in &sessions {
            if let Err(error) = look_and_say(sysfs, session, &mut Vec::new()) {
                result = error.after(result);
            }
        }
        turn.end()?;
        // Repeat a rescan that failed because of a lost connection: the target does not report
        // again.
        let lost = sessions
            .iter()
            .any(|session| state(sysfs, session.host) != "running");
        if result.is_ok() || !lost || Instant::now() >= end {
            return result;
        }
    }
}

/// Waits until a session is connected or has ended.
fn await_connection(sysfs: &Sysfs, host: &str, end: Instant) {
    let Some(number) = session::host(host) else {
        return;
    };
    let folder = sysfs.path(format!("/sys/class/scsi_host/host{number}"));
    while folder.exists() && state(sysfs, number) != "running" && Instant::now() < end {
        sleep(POLL);
    }
}

/// Returns the present state of a session.
fn state(sysfs: &Sysfs, host: u32) -> String {
    let file = Session::remote_port(sysfs, host).join("state");
    sysfs::text(file).unwrap_or_else(|| "lost".into())
}

/// Returns the disks that a session has now.
fn disks(sysfs: &Sysfs, session: &Session) -> Vec<Disk> {
    let mut all = Disk::all(sysfs, &[session.host]);
    all.remove(&session.host).unwrap_or_default()
}

/// As [`look`], and prints that there is no change.
fn look_and_say(sysfs: &Sysfs, session: &Session, gone: &mut Vec<Gone>) -> Result {
    if !look(sysfs, session, gone)? {
        say!("{}: no change", session.name());
    }
    Ok(())
}

/// Rescans a session, prints the changes, and returns whether there are any. Adds the disks that
/// are gone at the target to `gone`.
fn look(sysfs: &Sysfs, session: &Session, gone: &mut Vec<Gone>) -> Result<bool> {
    let host = session.name();
    // The state may have changed while this rescan waited for its turn.
    let state = state(sysfs, session.host);
    if state != "running" {
        return Err(Error::Program(format!("{host} is {state}, not rescanned")));
    }
    // Another rescan may have found some disks while this one waited for its turn.
    let before = disks(sysfs, session);
    let scan = session.folder(sysfs).join("scan");
    let wait = format!("the LUNs of {host}");
    patience::waiting(&wait, || fs::write(&scan, "- - -")).map_err(|e| Error::io(&scan, e))?;
    let mut answers = BTreeMap::new();
    let mut result = Ok(());
    for disk in &before {
        let identity = identity(sysfs, &disk.name);
        let answer = lun::ask(sysfs, &disk.name);
        // The size of a disk that is gone would become 0.
        if matches!(answer, Answer::There | Answer::Unasked) {
            let rescan = folder(sysfs, &disk.name).join("rescan");
            if let Err(e) = fs::write(&rescan, "1") {
                result = Error::io(&rescan, e).after(result);
            }
        }
        if let (Answer::Gone, Some(identity)) = (answer, identity) {
            let name = disk.name.clone();
            gone.push(Gone { name, identity });
        }
        answers.insert(disk.name.clone(), answer);
    }
    if answers.values().any(|answer| *answer == Answer::Unasked) {
        tell!("{host}: without the module sg, disks that are gone are not found");
    }
    await_probes(sysfs, session.host);
    let now = disks(sysfs, session);
    let said = changes(&before, &now, &answers);
    for line in &said {
        say!("{host}: {line}");
    }
    result.map(|()| !said.is_empty())
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

/// Removes a disk that is gone at the target, unless it is in use. `gone` contains all such disks.
fn remove(sysfs: &Sysfs, disk: &Gone, gone: &[Gone]) -> Result {
    let Gone { name, identity } = disk;
    let is_same = || self::identity(sysfs, name).as_ref() == Some(identity);
    if !is_same() {
        return Ok(());
    }
    // A multipath map is removed only with all of its paths, so these are checked together.
    let going: Vec<&str> = match disk::other_paths(sysfs, name).is_empty() {
        true => vec![name],
        false => gone
            .iter()
            .filter(|other| {
                let now = self::identity(sysfs, &other.name);
                now.is_none_or(|now| now == other.identity)
            })
            .map(|other| other.name.as_str())
            .collect(),
    };
    // The claims keep others from using the disk until it is removed.
    let claims = disconnect::free(sysfs, &going, true)?;
    // The rescans of other sessions may have taken long, so ask again.
    let answer = lun::ask(sysfs, name);
    if !is_same() {
        return Ok(());
    }
    if answer != Answer::Gone {
        say!("{name} is not removed: it is no longer gone at the target");
        return Ok(());
    }
    // Delete the disk by its address, because another disk may get its name even now.
    let delete = sysfs.path(format!(
        "/sys/class/scsi_device/{}/device/delete",
        identity.0
    ));
    fs::write(&delete, "1").map_err(|e| Error::io(&delete, e))?;
    drop(claims);
    say!("{name} is removed");
    Ok(())
}

/// Returns the identity of the disk that has this name now.
fn identity(sysfs: &Sysfs, name: &str) -> Option<Identity> {
    let address = fs::read_link(folder(sysfs, name)).ok()?;
    let sequence = sysfs::text(sysfs.path(format!("/sys/class/block/{name}/diskseq")));
    Some((sysfs::name(address), sequence))
}

/// Returns the directory of a disk's SCSI device.
fn folder(sysfs: &Sysfs, name: &str) -> std::path::PathBuf {
    sysfs.path(format!("/sys/class/block/{name}/device"))
}

/// Waits until each disk of a SCSI host has its block device.
pub fn await_probes(sysfs: &Sysfs, host: u32) {
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
    use crate::session::tests::machine;

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
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        // The session as it was before the rescan waited for its turn.
        let session = &Session::all(&sysfs)[0];
        let file = Session::remote_port(&sysfs, 9).join("state");
        fs::write(file, "blocked\n").unwrap();
        let error = look(&sysfs, session, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "host9 is blocked, not rescanned");
    }

    #[test]
    fn a_queued_rescan_waits_for_the_connection() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let file = Session::remote_port(&sysfs, 9).join("state");
        fs::write(&file, "blocked\n").unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(POLL / 4);
                fs::write(&file, "running\n").unwrap();
            });
            await_connection(&sysfs, "host9", start + RECONNECT);
        });
        assert!(start.elapsed() >= POLL / 4);
        assert_eq!(state(&sysfs, 9), "running");
        // A session that has ended is not waited for.
        await_connection(&sysfs, "host7", start + RECONNECT);
        assert!(start.elapsed() < RECONNECT);
    }

    #[test]
    fn without_the_module_sg_sizes_are_still_read() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let session = &Session::all(&sysfs)[0];
        let mut gone = Vec::new();
        look(&sysfs, session, &mut gone).unwrap();
        assert!(gone.is_empty());
        let device = super::folder(&sysfs, "sdb");
        assert_eq!(fs::read_to_string(device.join("rescan")).unwrap(), "1");
    }

    #[test]
    fn a_disk_that_has_the_name_of_one_that_is_gone_stays() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let device = folder.path().join("sys/class/scsi_device/9:0:0:3/device");
        fs::create_dir_all(&device).unwrap();
        let block = sysfs.path("/sys/class/block/sdb");
        fs::write(block.join("diskseq"), "41\n").unwrap();
        let identity = identity(&sysfs, "sdb").unwrap();
        assert_eq!(identity, ("9:0:0:3".into(), Some("41".into())));
        let name = "sdb".to_string();
        let gone = [Gone { name, identity }];
        // The disk does not report that it is gone.
        remove(&sysfs, &gone[0], &gone).unwrap();
        // Another disk at the same address.
        fs::write(block.join("diskseq"), "42\n").unwrap();
        remove(&sysfs, &gone[0], &gone).unwrap();
        assert!(!device.join("delete").exists());
        // There is no such disk.
        fs::remove_dir_all(block).unwrap();
        remove(&sysfs, &gone[0], &gone).unwrap();
    }
}
