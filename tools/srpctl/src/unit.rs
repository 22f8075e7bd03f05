// SPDX-License-Identifier: GPL-2.0

//! `srp-connect@.service`, which logs in to a target of targets.d at boot, and again when its
//! session is gone. srp-generator(8) enables it for each file.

use crate::{
    error::{Error, Result},
    lock::Lock,
    out::{say, tell},
    patience,
    program::{self, Failure},
    session::Session,
    sysfs::{self, Sysfs},
    target::Target,
};
use std::{path::Path, time::Duration};

/// Time that systemd may take. It runs all generators when it reloads.
const PATIENCE: Duration = Duration::from_secs(100);
/// Begin and end of a unit's name, around the name of the target.
const PARTS: (&str, &str) = ("srp-connect@", ".service");

/// Returns whether systemd manages this machine.
fn is_there() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Runs systemctl, and returns its output. Without systemd it does nothing.
pub fn run(arguments: &[&str]) -> Result<String> {
    if !is_there() {
        return Ok(String::new());
    }
    let command = [&["systemctl"], arguments].concat();
    let line = command.join(" ");
    match patience::waiting(&line, || program::within(PATIENCE, &command)) {
        Ok(out) => Ok(String::from_utf8_lossy(&out).into_owned()),
        Err(Failure::Failed(_, said)) => Err(Error::Program(format!("{line}: {said}"))),
        Err(failure) => Err(Error::Program(failure.to_string())),
    }
}

/// Returns the name of the unit of a target, or with `*` the pattern of all.
pub fn unit(target: &str) -> String {
    format!("{}{target}{}", PARTS.0, PARTS.1)
}

/// Excludes the restart of units by [`restore`] while `srpctl disconnect` logs out and stops them.
pub fn lock(sysfs: &Sysfs) -> Result<Lock> {
    Lock::take(sysfs, "units")
}

/// Makes systemd run the generator again.
pub fn reload() -> Result {
    run(&["--quiet", "daemon-reload"]).map(drop)
}

/// Runs systemctl on the unit of a target.
pub fn systemctl(verb: &[&str], name: &str) -> Result {
    let unit = unit(name);
    let mut arguments = vec!["--quiet"];
    arguments.extend(verb);
    arguments.push(&unit);
    run(&arguments).map(drop)
}

/// Queues the stop of the units of targets.
pub fn stop(names: &[String]) -> Result {
    let stops = |name: &String| systemctl(&["stop", "--no-block"], name);
    // A failure does not keep the other units running.
    names.iter().map(stops).fold(Ok(()), Result::and)
}

/// Lists the units of targets, further limited by the options.
fn list(options: &[&str]) -> Result<String> {
    let unit = unit("*");
    let mut arguments = vec!["list-units", "--plain", "--no-legend", "--full"];
    arguments.extend(options);
    arguments.push(&unit);
    run(&arguments)
}

/// Returns the targets that have a unit, including those whose login is in progress. A unit that
/// found the session of another owner is left out, because its stop would log out.
pub fn ours(sysfs: &Sysfs) -> Result<Vec<String>> {
    let units = list(&[])?;
    let names = without_others(sysfs, &targets(&units));
    Ok(names.into_iter().map(str::to_string).collect())
}

/// Returns the targets whose unit runs or starts; `None` without systemd.
pub fn running() -> Result<Option<Vec<String>>> {
    let units = list(&["--state=active,activating,reloading"])?;
    let names = targets(&units).into_iter().map(str::to_string).collect();
    Ok(is_there().then_some(names))
}

/// Returns the targets without sessions of other owners.
fn without_others<'a>(sysfs: &Sysfs, targets: &[&'a str]) -> Vec<&'a str> {
    let sessions = Session::hosts(sysfs);
    // The unit of a file that cannot be read has no session to log out of.
    let has_other = |name: &str| {
        Session::named(sysfs, sessions.clone(), name)
            .is_ok_and(|found| !found.iter().all(Session::is_ours))
    };
    let all = targets.iter().copied();
    all.filter(|name| !has_other(name)).collect()
}

/// Returns whether the driver is loaded, and is not being loaded or unloaded.
fn is_live(sysfs: &Sysfs) -> bool {
    let state = sysfs.path("/sys/module/ib_srp/initstate");
    sysfs::text(state).as_deref() == Some("live")
}

/// Restarts the unit of each target whose unit logs in and whose session is gone. Does nothing
/// while the driver is not loaded or is being unloaded: a login would load it again, against the
/// administrator's decision.
pub fn restore(sysfs: &Sysfs) -> Result {
    if !is_live(sysfs) {
        return Ok(());
    }
    let _lock = lock(sysfs)?;
    let active = list(&["--state=active"])?;
    for name in lost(sysfs, &targets(&active)) {
        say!("{name}: the session is gone; logging in again");
        // A unit that is about to be stopped stays as it is.
        let restart = ["try-restart", "--no-block", "--job-mode=fail"];
        if let Err(error) = systemctl(&restart, name) {
            tell!("{error}");
        }
    }
    Ok(())
}

/// Returns the targets of the units that `systemctl list-units` lists.
pub fn targets(list: &str) -> Vec<&str> {
    let units = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    units
        .filter_map(|unit| unit.strip_prefix(PARTS.0)?.strip_suffix(PARTS.1))
        .collect()
}

/// Returns the targets that have no session, except those with `onboot = false`.
fn lost<'a>(sysfs: &Sysfs, targets: &[&'a str]) -> Vec<&'a str> {
    let sessions = Session::hosts(sysfs);
    // A file that cannot be read counts as lost: the unit reports why.
    let is_there = |name: &str| {
        Session::named(sysfs, sessions.clone(), name).is_ok_and(|found| !found.is_empty())
    };
    let is_manual = |name: &str| Target::named(sysfs, name).is_ok_and(|target| target.manual);
    let all = targets.iter().copied();
    all.filter(|name| !is_there(name) && !is_manual(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{owner::Owner, session::tests::machine};

    #[test]
    fn the_units_of_a_list_have_targets() {
        let list = "srp-connect@disk-1.service loaded active exited SRP target disk-1\n\
            srp-connect@a.b.service loaded active exited SRP target a.b\n\n";
        assert_eq!(targets(list), ["disk-1", "a.b"]);
    }

    #[test]
    fn a_unit_with_the_session_of_another_is_not_ours() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let all = ["one", "none"];
        assert_eq!(without_others(&sysfs, &all), ["none"]);
        let session = &Session::hosts(&sysfs)[1];
        let record =
            |owner| Owner::record(&sysfs, session, owner, Some("one"), "0x0", None).unwrap();
        record("initramfs");
        assert_eq!(without_others(&sysfs, &all), ["none"]);
        record("srpctl");
        assert_eq!(without_others(&sysfs, &all), all);
        std::fs::remove_dir_all(session.folder(&sysfs)).unwrap();
        assert_eq!(without_others(&sysfs, &all), all);
    }

    #[test]
    fn a_module_that_is_being_unloaded_is_not_live() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("sys/module/ib_srp");
        std::fs::create_dir_all(&folder).unwrap();
        assert!(!is_live(&sysfs));
        for (state, live) in [("coming", false), ("live", true), ("going", false)] {
            std::fs::write(folder.join("initstate"), format!("{state}\n")).unwrap();
            assert_eq!(is_live(&sysfs), live);
        }
    }

    #[test]
    fn a_target_without_a_session_is_lost() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let file = folder.path().join("etc/srp/targets.d");
        let text = "id_ext = \"9\"\nioc_guid = \"2\"\ndest = \"10.0.0.1:5555\"\n";
        std::fs::write(file.join("two.conf"), text).unwrap();
        assert_eq!(lost(&sysfs, &["one", "two", "three"]), ["two", "three"]);
        let host = folder.path().join("sys/class/scsi_host/host10");
        std::fs::remove_dir_all(host).unwrap();
        assert_eq!(lost(&sysfs, &["one"]), ["one"]);
        std::fs::write(file.join("two.conf"), format!("{text}onboot = false\n")).unwrap();
        assert_eq!(lost(&sysfs, &["one", "two"]), ["one"]);
    }

    #[test]
    fn a_session_of_the_initramfs_is_there_under_its_old_name() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let session = &Session::hosts(&sysfs)[1];
        let zero = "0x0000000000000000";
        Owner::record(&sysfs, session, "initramfs", Some("root"), zero, None).unwrap();
        assert_eq!(lost(&sysfs, &["one"]), [""; 0]);
    }
}
