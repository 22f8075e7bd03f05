// SPDX-License-Identifier: GPL-2.0

//! `srp-connect@.service`, which logs in to a target of targets.d at boot, and again when its
//! session is gone. srp-generator(8) enables it for each file.

use crate::{
    error::{Error, Result},
    lock::Lock,
    out::say,
    session::Session,
    sysfs::Sysfs,
};
use std::{path::Path, process::Command};

/// Begin and end of a unit's name, around the name of the target.
const PARTS: (&str, &str) = ("srp-connect@", ".service");

/// Returns whether systemd manages this machine.
fn is_there() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Runs systemctl, and returns its output. Without systemd it does nothing.
fn run(arguments: &[&str]) -> Result<String> {
    if !is_there() {
        return Ok(String::new());
    }
    let out = Command::new("systemctl")
        .args(arguments)
        .output()
        .map_err(|e| Error::Program(format!("systemctl: {e}")))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::Program(format!(
        "systemctl {}: {}",
        arguments.join(" "),
        said.trim()
    )))
}

/// Returns the name of the unit of a target, or with `*` the pattern of all.
fn unit(target: &str) -> String {
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

/// Stops the units of all targets, also of those that are being logged in to.
pub fn stop_all() -> Result {
    systemctl(&["stop", "--no-block"], "*")
}

/// Restarts the unit of each target that is logged in to by its unit, and whose session is gone.
/// Without the driver there is nothing to log in with: that it is not loaded is the decision of an
/// administrator.
pub fn restore(sysfs: &Sysfs) -> Result {
    if !sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    let _lock = lock(sysfs)?;
    let active = run(&[
        "list-units",
        "--state=active",
        "--plain",
        "--no-legend",
        "--full",
        &unit("*"),
    ])?;
    for name in lost(sysfs, &targets(&active)) {
        say!("{name}: the session is gone; logging in again");
        // A unit that is about to be stopped stays as it is.
        let restart = ["try-restart", "--no-block", "--job-mode=fail"];
        if let Err(error) = systemctl(&restart, name) {
            eprintln!("srpctl: {error}");
        }
    }
    Ok(())
}

/// Returns the targets of the units that `systemctl list-units` lists.
fn targets(list: &str) -> Vec<&str> {
    let units = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    units
        .filter_map(|unit| unit.strip_prefix(PARTS.0)?.strip_suffix(PARTS.1))
        .collect()
}

/// Returns those of the targets that have no session.
fn lost<'a>(sysfs: &Sysfs, targets: &[&'a str]) -> Vec<&'a str> {
    let sessions = Session::hosts(sysfs);
    // A file that cannot be read counts as lost: the unit reports why.
    let is_there = |name: &str| {
        Session::named(sysfs, sessions.clone(), name).is_ok_and(|found| !found.is_empty())
    };
    let all = targets.iter().copied();
    all.filter(|name| !is_there(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::machine;

    #[test]
    fn the_units_of_a_list_have_targets() {
        let list = "srp-connect@disk-1.service loaded active exited SRP target disk-1\n\
            srp-connect@a.b.service loaded active exited SRP target a.b\n\n";
        assert_eq!(targets(list), ["disk-1", "a.b"]);
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
    }
}
