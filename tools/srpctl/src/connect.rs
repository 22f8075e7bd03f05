// SPDX-License-Identifier: GPL-2.0

//! `srpctl connect`.

use crate::{
    cli::Connect,
    disk,
    error::{Error, Result},
    kernel_log::KernelLog,
    owner::Owner,
    port::{self, Port},
    session::Session,
    sysfs::Sysfs,
    target::{self, Target},
};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    process::Command,
};

/// Logs in, waits for the disks, and prints them.
pub fn run(sysfs: &Sysfs, args: &Connect) -> Result {
    let mut target = Target::of(sysfs, args)?;
    target.check()?;
    load(sysfs)?;
    let dest = target.dest(sysfs)?;
    let port = port::choose(sysfs, target.device.as_deref(), target.port, dest)?;
    let before = Session::to(sysfs, &target, &port)?;
    let (session, verb) = match log_in(sysfs, &target, &port, &before)? {
        Some(session) => {
            Owner::record(sysfs, &session, args.save.as_deref().or(args.name.as_deref()))?;
            (session, "logged in")
        }
        None => (
            before.into_iter().next().ok_or_else(|| {
                Error::Login("the driver has that session, but no host for it; it may be going".into())
            })?,
            "is logged in already",
        ),
    };
    if let Some(name) = &args.save {
        target.device = Some(port.device.clone());
        target.port = Some(port.number);
        save(sysfs, name, &target)?;
    }
    let through = target.option("dest").or(target.option("dgid")).unwrap_or_default();
    println!("{}: {verb} at {through} through {}", session.name(), port.name());
    for disk in &session.disks {
        let names = [Some(disk.device()), disk.link.clone(), disk.by_path.clone()];
        let names: Vec<String> = names.into_iter().flatten().collect();
        println!("  {}, {}, {}", names.join(", "), disk::size(disk.size), disk.model);
    }
    if session.disks.is_empty() {
        println!("  no disks: the target shows none to this initiator (LIO: no LUN in an ACL for it)");
    }
    Ok(())
}

/// The driver's files must be there.
fn load(sysfs: &Sysfs) -> Result {
    if sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    let out = Command::new("modprobe").arg("ib_srp").output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr);
            Err(Error::NoModule(format!(" and cannot be: {}", said.trim())))
        }
        Err(e) => Err(Error::NoModule(format!(": modprobe: {e}"))),
    }
}

/// The new session; nothing if there is one already.
fn log_in(sysfs: &Sysfs, target: &Target, port: &Port, before: &[Session]) -> Result<Option<Session>> {
    let path = port.folder.join("add_target");
    let mut log = KernelLog::from_now();
    let mut file = OpenOptions::new()
        .write(true)
        .open(&path)
        .map_err(|e| Error::io(&path, e))?;
    // In one piece, which is one login.
    if let Err(e) = file.write(target.login_string().as_bytes()) {
        if e.kind() == ErrorKind::AlreadyExists {
            return Ok(None);
        }
        let why = log.as_mut().and_then(|log| log.reason(port, target));
        return Err(Error::Login(why.unwrap_or_else(|| e.to_string())));
    }
    settle();
    let new = Session::to(sysfs, target, port)?
        .into_iter()
        .find(|session| before.iter().all(|old| old.host != session.host));
    new.map(Some)
        .ok_or_else(|| Error::Login("the session has gone again; the kernel's log says why".into()))
}

/// Waits until udev has given the disks their names.
pub fn settle() {
    // Without udev nobody has to be waited for.
    let _ = Command::new("udevadm").args(["settle", "--timeout=30"]).status();
}

/// Keeps the target for the next boot.
fn save(sysfs: &Sysfs, name: &str, target: &Target) -> Result {
    let path = Target::path(sysfs, name)?;
    let folder = sysfs.path(target::FOLDER);
    fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => {
                Error::Usage(format!("there is a target {name} already: {}", path.display()))
            }
            _ => Error::io(&path, e),
        })?;
    file.write_all(target.to_file().as_bytes())
        .map_err(|e| Error::io(&path, e))?;
    systemctl("enable", name)
}

/// Has systemd log in to a target at boot, or not any more.
pub fn systemctl(verb: &str, name: &str) -> Result {
    let unit = format!("srp-connect@{name}.service");
    let out = Command::new("systemctl")
        .args(["--quiet", verb, &unit])
        .output()
        .map_err(|e| Error::Program(format!("systemctl: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::Program(format!("systemctl {verb} {unit}: {}", said.trim())))
}
