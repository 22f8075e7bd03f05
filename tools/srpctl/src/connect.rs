// SPDX-License-Identifier: GPL-2.0

//! `srpctl connect`.

use crate::{
    cli::Connect,
    disk,
    draft::Draft,
    error::{Error, Result},
    kernel_log::KernelLog,
    out::say,
    owner::Owner,
    port::{self, Port},
    session::Session,
    sysfs::Sysfs,
    target::Target,
    timeouts::Timeouts,
    unit,
};
use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

/// Delay between two login attempts.
const PAUSE: Duration = Duration::from_secs(2);
/// Time limit for a session that is logging out: it exists for a moment longer than its SCSI host.
const LOGOUT: Duration = Duration::from_secs(5);

/// A session, its port, and whether this login created it.
struct Login {
    session: Session,
    port: Port,
    new: bool,
}

/// Logs in, waits for the disks, and prints them.
pub fn run(sysfs: &Sysfs, args: &Connect) -> Result {
    let mut target = Target::of(sysfs, args)?;
    target.check()?;
    let draft = match &args.save {
        Some(name) => Some((name, Draft::new(sysfs, name, &target)?)),
        None => None,
    };
    load(sysfs)?;
    let timeouts = match target.timeouts.is_empty() {
        true => None,
        false => Some(Timeouts::of_module(sysfs).with(&target.timeouts)?),
    };
    let end = Instant::now() + Duration::from_secs(args.retry.unwrap_or(0));
    let login = loop {
        match log_in(sysfs, &target) {
            Ok(login) => break login,
            Err(error) if error.may_pass() && Instant::now() < end => {
                eprintln!("srpctl: {error}; trying again");
                sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    };
    let session = &login.session;
    let name = args.save.as_deref().or(args.name.as_deref());
    // Do not take over a session of another owner.
    if login.new || name.is_some() && session.owner.as_ref() == Some(&args.owner) {
        let (_, _, initiator_ext) = target.key()?;
        Owner::record(sysfs, session, &args.owner, name, &initiator_ext)?;
    }
    if let Some(timeouts) = timeouts {
        timeouts.set(sysfs, session)?;
    }
    if let Some((name, draft)) = draft {
        target.device = Some(login.port.device.clone());
        target.port = Some(login.port.number);
        draft.keep(name, &target)?;
        // Tell systemd of the new file, and start its unit, because the session exists.
        unit::reload()?;
        unit::systemctl(&["start", "--no-block"], name)?;
    }
    let verb = if login.new {
        "logged in"
    } else {
        "already logged in"
    };
    let through = target
        .option("dest")
        .or(target.option("dgid"))
        .unwrap_or_default();
    say!(
        "{}: {verb} at {through} through {}",
        session.name(),
        login.port.name()
    );
    for disk in &session.disks {
        let names = [Some(disk.device()), disk.link.clone(), disk.by_path.clone()];
        let names: Vec<String> = names.into_iter().flatten().collect();
        say!(
            "  {}, {}, {}",
            names.join(", "),
            disk::size(disk.size),
            disk.model
        );
    }
    if session.disks.is_empty() {
        say!("  no disks: the target exports none to this initiator (LIO: map a LUN in its ACL)");
    }
    Ok(())
}

/// Loads the driver unless its files are in sysfs.
fn load(sysfs: &Sysfs) -> Result {
    if sysfs.path("/sys/class/infiniband_srp").exists() {
        return Ok(());
    }
    let out = Command::new("modprobe").arg("ib_srp").output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.trim();
            let advice = advice(said);
            Err(Error::NoModule(format!(" and cannot be: {said}{advice}")))
        }
        Err(e) => Err(Error::NoModule(format!(": modprobe: {e}"))),
    }
}

/// Returns advice for an error message of modprobe, or an empty string.
fn advice(said: &str) -> &'static str {
    if said.contains("Key was rejected") {
        "; Secure Boot does not know the key that signed it: mokutil --import /var/lib/dkms/mok.pub, reboot, confirm"
    } else {
        ""
    }
}

/// Makes one login attempt. If there is a session already, returns that one.
fn log_in(sysfs: &Sysfs, target: &Target) -> Result<Login> {
    let dest = target.dest(sysfs)?;
    let port = port::choose(sysfs, target.device.as_deref(), target.port, dest)?;
    let end = Instant::now() + LOGOUT;
    let before = loop {
        let before = Session::to(sysfs, target, &port)?;
        let mut log = KernelLog::from_now();
        let Err(e) = add_target(&port, target) else {
            break before;
        };
        let Error::Io { source, .. } = &e else {
            return Err(e);
        };
        if source.kind() != ErrorKind::AlreadyExists {
            let why = log.as_mut().and_then(|log| log.reason(&port, target));
            return Err(Error::Login(why.unwrap_or_else(|| source.to_string())));
        }
        // A session on record certainly matches; prefer it.
        if let Some(session) = before.into_iter().min_by_key(|s| s.initiator_ext.is_none()) {
            return Ok(Login {
                session,
                port,
                new: false,
            });
        }
        if Instant::now() >= end {
            return Err(Error::Login(
                "the session already exists, but has no SCSI host; it may be logging out".into(),
            ));
        }
        sleep(LOGOUT / 50);
    };
    settle();
    let new = Session::to(sysfs, target, &port)?
        .into_iter()
        .find(|session| before.iter().all(|old| old.host != session.host));
    let session = new.ok_or_else(|| {
        Error::Login("the session ended right after the login; see the kernel log".into())
    })?;
    Ok(Login {
        session,
        port,
        new: true,
    })
}

fn add_target(port: &Port, target: &Target) -> Result {
    let path = port.folder.join("add_target");
    let mut file = OpenOptions::new()
        .write(true)
        .open(&path)
        .map_err(|e| Error::io(&path, e))?;
    // A login string must be written with a single write().
    file.write(target.login_string().as_bytes())
        .map_err(|e| Error::io(&path, e))?;
    Ok(())
}

/// Waits until udev has named the disks.
fn settle() {
    // Without udev there is nothing to wait for.
    let _ = Command::new("udevadm")
        .args(["settle", "--timeout=30"])
        .status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_known() {
        let said = "modprobe: ERROR: could not insert 'ib_srp': Key was rejected by service";
        assert!(advice(said).contains("mokutil --import"));
        assert_eq!(
            advice("modprobe: FATAL: Module ib_srp not found in directory"),
            ""
        );
    }
}
