// SPDX-License-Identifier: GPL-2.0

//! `srpctl disconnect`.

use crate::{
    cli::Disconnect,
    error::{Error, Result},
    holder::Holders,
    lock::Lock,
    out::say,
    owner::{Owner, INITRAMFS},
    patience::{self, SILENCE},
    session::Session,
    sysfs::Sysfs,
    target::{self, Target},
    unit,
};
use nix::errno::Errno;
use std::{
    fs::{self, File},
    io::ErrorKind,
    thread::sleep,
    time::{Duration, Instant},
};

/// Error of a write to a file of sysfs that is being removed.
const ENODEV: i32 = Errno::ENODEV as i32;
/// Time limit of a logout. It takes about a second, or 10 s if the target does not respond;
/// removing the disks may take as long as a command.
pub const PATIENCE: Duration = Duration::from_secs(80);
/// Delay before disks in use are checked again: a program may read a disk for a moment.
const MOMENT: Duration = Duration::from_millis(500);

pub fn run(sysfs: &Sysfs, args: &Disconnect) -> Result {
    let _lock = match args.unit {
        true => None,
        false => Some(unit::lock(sysfs)?),
    };
    if args.all {
        let mut all = Session::all(sysfs);
        all.retain(Session::is_ours);
        let names = unit::ours(sysfs)?;
        let (ending, failed) = begin(sysfs, &all, args.force, true)?;
        let stopped = unit::stop(&names);
        return failed.and(wait(sysfs, &ending, say)).and(stopped);
    }
    let mut all = Vec::new();
    let mut targets = Vec::new();
    for argument in &args.sessions {
        // The root file system is on it until the machine is off.
        if args.unit && has_root(sysfs, argument) {
            continue;
        }
        let meant = match Session::meant(sysfs, argument) {
            // If --forget stops a unit, the unit's file may already be gone.
            Err(Error::NotFound(_)) if args.unit => Vec::new(),
            meant => meant?,
        };
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
    let (ending, failed) = begin(sysfs, &all, args.force, !args.unit)?;
    // Before the wait, which may fail or be interrupted: no unit may log in again.
    let stopped = match args.unit {
        true => Ok(()),
        false => unit::stop(&targets),
    };
    let forgotten = match args.forget {
        true => forget(sysfs, &targets),
        false => Ok(()),
    };
    let ended = wait(sysfs, &ending, say);
    failed.and(ended).and(stopped).and(forgotten)
}

/// Returns whether the root file system may be on a target: the initramfs has made its session, or
/// its file says so. If the file cannot be read, another path to the target counts, too.
fn has_root(sysfs: &Sysfs, name: &str) -> bool {
    let of_initramfs = |session: &&Session| session.owner.as_deref() == Some(INITRAMFS);
    if let Ok(target) = Target::named(sysfs, name) {
        // The initramfs may have used a table of the firmware, or an older version of the file.
        let own = || Session::meant(sysfs, name).unwrap_or_default();
        return target.initramfs || own().iter().any(|session| of_initramfs(&session));
    }
    let all = Session::hosts(sysfs);
    let key = |session: &Session| (session.id_ext.clone(), session.ioc_guid.clone());
    let roots: Vec<_> = all.iter().filter(of_initramfs).map(key).collect();
    let mut own = all
        .iter()
        .filter(|session| session.target.as_deref() == Some(name));
    own.any(|session| roots.contains(&key(session)))
}

fn say(session: &Session) {
    say!("{}: logged out", session.name());
}

/// Logs out of sessions and stops these units, without output. Fails if a disk is in use. The lock
/// comes from [`unit::lock`].
pub fn log_out(sysfs: &Sysfs, _lock: &Lock, sessions: &[Session], units: &[String]) -> Result {
    let (ending, failed) = begin(sysfs, sessions, false, true)?;
    let stopped = unit::stop(units);
    let ended = wait(sysfs, &ending, |_| ());
    failed.and(ended).and(stopped)
}

/// Removes the files of targets, and tells systemd.
fn forget(sysfs: &Sysfs, targets: &[String]) -> Result {
    let mut result = Ok(());
    for name in targets {
        let removed = Target::path(sysfs, name).and_then(|path| match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(&path, e)),
            _ => Ok(()),
        });
        result = result.and(removed);
    }
    result.and(unit::reload())
}

/// Begins the logout of all sessions, or, without `force`, of none if a disk is in use; `layers` is
/// as for [`Holders::of`]. Returns the ending sessions and the first error of the others. Fails if
/// no session is ending.
fn begin<'a>(
    sysfs: &Sysfs,
    sessions: &'a [Session],
    force: bool,
    layers: bool,
) -> Result<(Vec<&'a Session>, Result)> {
    let going: Vec<&str> = sessions
        .iter()
        // The disks of a session that is already ending cannot be kept.
        .filter(|session| Session::remote_port(sysfs, session.host).exists())
        .filter(|session| !Owner::is_leaving(sysfs, session))
        .flat_map(|session| &session.disks)
        .map(|disk| disk.name.as_str())
        .collect();
    // The claims keep others from using the disks until the logout begins.
    let claims = match force {
        true => Vec::new(),
        false => free(sysfs, &going, layers)?,
    };
    let mut ending = Vec::new();
    let mut failed = Ok(());
    for session in sessions {
        let delete = Session::remote_port(sysfs, session.host).join("delete");
        match fs::write(&delete, "1") {
            // The remote port is already gone if the unit or the driver has begun to end the
            // session.
            Err(e) if e.kind() != ErrorKind::NotFound && e.raw_os_error() != Some(ENODEV) => {
                failed = failed.and(Err(Error::io(&delete, e)));
            }
            written => {
                // The unit, which stops next, does not look at the disks again. A full /run does
                // not matter. A session that has no remote port yet is not leaving.
                if written.is_ok() {
                    let _ = Owner::begin_leaving(sysfs, session);
                }
                ending.push(session);
            }
        }
    }
    drop(claims);
    match failed {
        Err(error) if ending.is_empty() => Err(error),
        failed => Ok((ending, failed)),
    }
}

/// Waits until the sessions are gone, and calls `say` for each.
fn wait(sysfs: &Sysfs, sessions: &[&Session], say: fn(&Session)) -> Result {
    let begin = Instant::now();
    let end = begin + PATIENCE;
    for session in sessions {
        while session.folder(sysfs).exists() {
            let (host, limit) = (session.name(), PATIENCE.as_secs());
            if Instant::now() > end {
                let why = format!("{host} is still being removed after {limit} s");
                return Err(Error::Late(why));
            }
            if begin.elapsed() >= SILENCE {
                patience::say(&format!("the end of {host}, at most {limit} s"));
            }
            sleep(Duration::from_millis(50));
        }
        Owner::forget(sysfs, session);
        say(session);
    }
    Ok(())
}

/// Opens disks exclusively before they are removed. Returns an error if one is in use.
pub fn free(sysfs: &Sysfs, going: &[&str], layers: bool) -> Result<Vec<File>> {
    let mut holders = Holders::of(sysfs, going, layers);
    if !holders.sentences.is_empty() {
        // The second scan would report our exclusive opens as users.
        holders.claims.clear();
        sleep(MOMENT);
        holders = Holders::of(sysfs, going, layers);
    }
    let said = match &holders.sentences[..] {
        [] => return Ok(holders.claims),
        [one] => format!(" {one}"),
        several => format!("\n  {}", several.join("\n  ")),
    };
    Err(Error::Busy(format!("in use:{said}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{owner::OURS, session::tests::machine};

    /// `srpctl disconnect` of the unit of a target.
    fn unit_stop(name: &str) -> Disconnect {
        Disconnect {
            sessions: vec![name.into()],
            all: false,
            forget: false,
            force: false,
            unit: true,
        }
    }

    #[test]
    fn a_unit_of_a_forced_logout_stops() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        let mounts = root.path().join("proc/self/mountinfo");
        fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink("mnt:[1]", root.path().join("proc/self/ns/mnt")).unwrap();
        fs::write(mounts, "30 1 8:32 / /srv rw - ext4 /dev/sdc rw\n").unwrap();
        fs::write(root.path().join("sys/class/block/sdc/dev"), "8:32\n").unwrap();
        let sessions = Session::meant(&sysfs, "one").unwrap();
        assert_eq!(
            begin(&sysfs, &sessions, false, false).unwrap_err().status(),
            7
        );
        assert_eq!(begin(&sysfs, &sessions, true, true).unwrap().0.len(), 1);
        // The remote port is still there.
        assert!(Session::remote_port(&sysfs, 10).join("delete").exists());
        assert_eq!(begin(&sysfs, &sessions, false, false).unwrap().0.len(), 1);
        Owner::forget(&sysfs, &sessions[0]);
        assert_eq!(
            begin(&sysfs, &sessions, false, false).unwrap_err().status(),
            7
        );
    }

    #[test]
    fn the_unit_of_the_root_does_not_log_out() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        let file = Target::path(&sysfs, "one").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + "initramfs = true\n").unwrap();
        let args = Disconnect {
            force: true,
            ..unit_stop("one")
        };
        run(&sysfs, &args).unwrap();
        let delete = Session::remote_port(&sysfs, 10).join("delete");
        assert!(!delete.exists());
    }

    #[test]
    fn the_unit_of_the_root_does_not_log_out_without_a_valid_file() {
        let zero = "0x0000000000000000";
        // The second is another path to the target.
        for owners in [[INITRAMFS, OURS], [OURS, INITRAMFS], [OURS, OURS]] {
            let root = machine();
            let sysfs = Sysfs::below(root.path());
            let sessions = Session::meant(&sysfs, "one").unwrap();
            let other = &Session::meant(&sysfs, "host9").unwrap()[0];
            for (session, owner, name) in
                [(&sessions[0], owners[0], "one"), (other, owners[1], "b")]
            {
                Owner::record(&sysfs, session, owner, Some(name), zero, None).unwrap();
            }
            let file = Target::path(&sysfs, "one").unwrap();
            fs::write(&file, "queue_sise = 1\n").unwrap();
            let has_root = owners.contains(&INITRAMFS);
            assert_eq!(super::has_root(&sysfs, "one"), has_root, "{owners:?}");
            if has_root {
                run(&sysfs, &unit_stop("one")).unwrap();
                assert!(!Session::remote_port(&sysfs, 10).join("delete").exists());
            }
            fs::remove_file(file).unwrap();
            assert_eq!(super::has_root(&sysfs, "one"), has_root, "{owners:?}");
        }
    }

    /// The login used a table of the firmware, and its file was saved later.
    #[test]
    fn the_unit_does_not_log_out_of_a_session_of_the_initramfs() {
        for (owner, name) in [(INITRAMFS, None), (INITRAMFS, Some("one")), (OURS, None)] {
            let root = machine();
            let sysfs = Sysfs::below(root.path());
            let session = &Session::meant(&sysfs, "one").unwrap()[0];
            let zero = "0x0000000000000000";
            Owner::record(&sysfs, session, owner, name, zero, None).unwrap();
            assert!(!Target::named(&sysfs, "one").unwrap().initramfs);
            let has_root = owner == INITRAMFS;
            assert_eq!(super::has_root(&sysfs, "one"), has_root, "{owner} {name:?}");
        }
    }

    #[test]
    fn a_unit_stops_without_its_file() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let mut args = unit_stop("gone");
        run(&sysfs, &args).unwrap();
        args.unit = false;
        assert_eq!(run(&sysfs, &args).unwrap_err().status(), 6);
    }
}
