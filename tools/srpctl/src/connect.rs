// SPDX-License-Identifier: GPL-2.0

//! `srpctl connect`.

use crate::{
    adapter, apply, boot,
    cli::Connect,
    disk::{self, Disk},
    draft::Draft,
    driver,
    error::{Error, Result},
    firmware,
    kernel_log::KernelLog,
    lock::Lock,
    out::{say, tell},
    owner::{Owner, OURS},
    patience,
    port::{self, Port},
    rescan, resolve, retry,
    session::Session,
    sysfs::{self, Sysfs},
    target::{End, Target},
    timeouts::Timeouts,
    unit,
};
use std::{
    collections::BTreeSet,
    io::ErrorKind,
    net::IpAddr,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit for a session that is logging out: it exists for a moment longer than its SCSI host.
const LOGOUT: Duration = Duration::from_secs(5);

/// A session, and whether this login created it.
pub struct Login {
    pub session: Session,
    pub new: bool,
}

/// A login attempt through a chosen port.
struct Attempt {
    /// The target with the chosen port, and an address in place of a host name.
    target: Target,
    /// `dest` as a file in targets.d has it.
    dest: Option<String>,
    port: Port,
    /// Held until the session is on record.
    _locks: Vec<Lock>,
}

impl Attempt {
    /// Chooses the port and, for another path, the initiator extension. `resolved` is `target` with
    /// an address.
    fn new(sysfs: &Sysfs, target: &Target, resolved: &Target, another_path: bool) -> Result<Self> {
        let dest = target.option("dest").map(str::to_string);
        let mut target = resolved.clone();
        let port = port::choose(sysfs, &target)?;
        let locks = locks(sysfs, &mut target, &port, another_path)?;
        target.device = Some(adapter::lasting(sysfs, &port.device));
        target.port = Some(port.number);
        Ok(Self {
            target,
            dest,
            port,
            _locks: locks,
        })
    }

    /// Returns the target as a file in targets.d specifies it.
    fn of_file(&self) -> Target {
        let mut target = self.target.clone();
        if let Some(dest) = &self.dest {
            target.set("dest", dest.clone());
        }
        target
    }

    /// Returns the string for add_target.
    fn login_string(&self, sysfs: &Sysfs) -> Result<String> {
        let mut target = self.target.clone();
        if let Some((None, dest)) = target.ends()? {
            let dest = port::with_scope(sysfs, dest)?;
            match port::source(sysfs, &self.port, dest) {
                Some(IpAddr::V4(ip)) => target.set("src", ip.to_string()),
                Some(IpAddr::V6(ip)) => target.set("src", format!("[{ip}]")),
                None => true,
            };
        }
        Ok(target.login_string())
    }
}

/// Excludes other logins of the same session, and chooses the initiator extension of another path.
/// An unreachable path delays no other: its login takes half a minute. Logins that choose an
/// extension exclude each other, as do all logins with the C driver, which does not show whose
/// session is new.
fn locks(sysfs: &Sysfs, target: &mut Target, port: &Port, another_path: bool) -> Result<Vec<Lock>> {
    let (id_ext, ioc_guid, initiator_ext) = target.key()?;
    let all = format!("login-{}-{}-{id_ext}-{ioc_guid}", port.device, port.number);
    let one = |extension: &str| Lock::take(sysfs, &format!("{all}-{extension}"));
    let mut locks = Vec::new();
    if another_path || !sysfs.path(driver::OURS).exists() {
        locks.push(Lock::take(sysfs, &all)?);
    }
    if !another_path {
        locks.push(one(&initiator_ext)?);
        return Ok(locks);
    }
    loop {
        let number = unused(sysfs, target, port)?;
        let lock = one(&extension(number))?;
        // A login with this extension may have held the lock.
        if unused(sysfs, target, port)? == number {
            target.set("initiator_ext", format!("{number:x}"));
            locks.push(lock);
            return Ok(locks);
        }
    }
}

/// Returns the lowest initiator extension that is used neither by a session with the target through
/// `port` nor by a file.
fn unused(sysfs: &Sysfs, target: &Target, port: &Port) -> Result<u64> {
    let (id_ext, ioc_guid, _) = target.key()?;
    let sessions = Session::hosts(sysfs).into_iter().filter(|session| {
        (&session.id_ext, &session.ioc_guid) == (&id_ext, &ioc_guid)
            && (session.device.as_str(), session.port) == (port.device.as_str(), port.number)
    });
    // A session of the C driver without a record most likely has the default.
    let used = sessions.map(|session| session.initiator_ext.unwrap_or_else(|| extension(0)));
    let files = boot::files(sysfs)
        .into_iter()
        .filter_map(|(_, target)| target.ok()?.key().ok())
        .filter(|key| (&key.0, &key.1) == (&id_ext, &ioc_guid))
        .map(|key| key.2);
    let used: BTreeSet<String> = used.chain(files).collect();
    let mut number = 0;
    while used.contains(&extension(number)) {
        number += 1;
    }
    Ok(number)
}

/// Returns an initiator extension in the format of sysfs.
fn extension(number: u64) -> String {
    format!("{number:#018x}")
}

/// Logs in to the targets that the command line means.
pub fn run(sysfs: &Sysfs, args: &Connect) -> Result {
    if args.all {
        return all(sysfs, args);
    }
    if let Some(table) = &args.firmware {
        return firmware::log_in(sysfs, args, table);
    }
    log_in_to(sysfs, args, &Target::of(sysfs, args)?).map(drop)
}

/// Logs in, waits for the disks, and prints them.
pub fn log_in_to(sysfs: &Sysfs, args: &Connect, target: &Target) -> Result<Session> {
    target.check()?;
    let (mut login, rest) = log_in_as(sysfs, args, target)?;
    // The initramfs and the unit only want the session.
    if !login.new && args.owner == OURS && !args.unit {
        rescan::found(sysfs, &mut login.session);
    }
    report(&login.session, login.new);
    let other = apply::other_options(sysfs, &login.session, target, "wanted");
    if let (false, Some(other)) = (login.new, other) {
        let host = login.session.name();
        tell!("{host} keeps its options until a logout: {other}");
    }
    rest?;
    start_unit(sysfs, args, target)?;
    Ok(login.session)
}

/// Logs in to all targets with a file, except those with `onboot = false`. Returns the last error,
/// and prints the others.
fn all(sysfs: &Sysfs, args: &Connect) -> Result {
    if !args.settings.options.is_empty() || !args.settings.timeouts.is_empty() {
        let why = "--all logs in as the files say: leave out the options of the login";
        return Err(Error::Usage(why.into()));
    }
    let mut result = Ok(());
    let files = boot::all(sysfs)?;
    if files.is_empty() {
        say!("{}", boot::NONE);
    }
    for (name, target) in files {
        if target.is_ok_and(|target| target.manual) {
            continue;
        }
        let one = Connect {
            retry: args.retry,
            owner: args.owner.clone(),
            unit: args.unit,
            ..Connect::of(&name)
        };
        if let Err(error) = run(sysfs, &one) {
            result = error.of(name).after(result);
        }
    }
    result
}

/// Checks that a login can begin, before a session is ended for it.
pub fn check(sysfs: &Sysfs, target: &Target) -> Result {
    Timeouts::of_module(sysfs).with(&target.timeouts)?;
    let resolved = target.resolved(&resolve::system)?;
    let mut result = Ok(());
    for one in &resolved {
        match port::check(sysfs, one) {
            // One address of a host name is enough.
            Ok(()) => return Ok(()),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// Makes the session `target`, unless it is there, and records it. Returns it with its disks, and
/// the first error of what follows a login: the file, the record, the timeouts.
pub fn log_in_as(sysfs: &Sysfs, args: &Connect, target: &Target) -> Result<(Login, Result)> {
    let draft = match &args.save {
        Some(name) => Some((name.as_str(), Draft::new(sysfs, name, target)?)),
        None => None,
    };
    driver::load(sysfs)?;
    let timeouts = match target.timeouts.is_empty() {
        true => None,
        false => Some(Timeouts::of_module(sysfs).with(&target.timeouts)?),
    };
    let name = args.save.as_deref().or(args.name.as_deref());
    let try_one = |resolved: &Target| {
        let attempt = Attempt::new(sysfs, target, resolved, args.path)?;
        // The whole file is on the disk before the login. Afterwards it only has to be renamed.
        if let Some((_, draft)) = &draft {
            draft.write(&attempt.of_file())?;
        }
        let login = log_in(sysfs, &attempt, name)?;
        Ok((Some(attempt), login))
    };
    let (attempt, login) = retry::retry(args.retry.unwrap_or(0), || {
        let resolved = target.resolved(&resolve::system)?;
        if let Some(session) = present(sysfs, args, target, &resolved)? {
            let new = false;
            return Ok((None, Login { session, new }));
        }
        let host = target.host().map(|(host, _)| host);
        resolve::first(host, &resolved, try_one)
    })?;
    let Login { mut session, new } = login;
    if args.path && !new {
        return Err(Error::Usage(format!(
            "{} is already logged in with this initiator_ext; choose one with --initiator-ext",
            session.name()
        )));
    }
    let mut rest = draft.map_or(Ok(()), |(name, draft)| draft.keep(name));
    let name = name.filter(|_| rest.is_ok());
    // Do not take over a session of another owner.
    if new || name.is_some() && session.owner.as_ref() == Some(&args.owner) {
        let made = attempt.as_ref().map_or(target, |attempt| &attempt.target);
        let (_, _, initiator_ext) = made.key()?;
        // The record of a session that is there keeps the options of its login.
        let login = match &attempt {
            Some(attempt) if new => Some(attempt.of_file().login_string()),
            _ => Owner::of(sysfs, &session).and_then(|known| known.login),
        };
        let login = login.as_deref();
        let recorded = Owner::record(sysfs, &session, &args.owner, name, &initiator_ext, login);
        rest = rest.and(recorded);
    }
    // The next login need not wait for udev.
    drop(attempt);
    if let Some(timeouts) = timeouts {
        rest = rest.and(timeouts.set(sysfs, &session));
    }
    if new {
        settle();
        if !session.folder(sysfs).exists() {
            return Err(ended());
        }
    }
    session.disks = Disk::all(sysfs, &[session.host])
        .remove(&session.host)
        .unwrap_or_default();
    Ok((Login { session, new }, rest))
}

/// Returns a session of the named target that leads to its address, or to one of its host name. It
/// may go through another port than a login would.
fn present(
    sysfs: &Sysfs,
    args: &Connect,
    target: &Target,
    resolved: &[Target],
) -> Result<Option<Session>> {
    let name = args.name.as_deref().filter(|_| !args.path);
    let (Some(name), None) = (name, &args.save) else {
        return Ok(None);
    };
    let key = target.key()?;
    for session in Session::named(sysfs, Session::hosts(sysfs), name)? {
        let known = target.host().is_some() || session.target.as_deref() == Some(name);
        if !known || !session.is_of(sysfs, target, &key) || Owner::is_leaving(sysfs, &session) {
            continue;
        }
        for one in resolved {
            if elsewhere(sysfs, &session, one)?.is_none() {
                return Ok(Some(session));
            }
        }
    }
    Ok(None)
}

/// Starts the unit that logs in again when the session is lost.
pub fn start_unit(sysfs: &Sysfs, args: &Connect, target: &Target) -> Result {
    let name = args.save.as_deref().or(args.name.as_deref());
    // The initramfs has no units.
    let name = name.filter(|_| args.owner == OURS && !args.unit && !target.manual);
    let Some(name) = name else {
        return Ok(());
    };
    if args.save.is_some() {
        // Tell systemd of the new file.
        unit::reload()?;
    }
    // The unit would log in with the file alone, which makes another session.
    if args.save.is_none() && !is_of_file(sysfs, name, target)? {
        tell!("the options differ from {name}.conf; no login again when the session is gone");
        return Ok(());
    }
    if let Err(error) = unit::systemctl(&["start", "--no-block"], name) {
        tell!("{error}; no login again when the session is gone");
    }
    Ok(())
}

/// Returns whether the file `name` alone leads to the same session as `target`.
fn is_of_file(sysfs: &Sysfs, name: &str, target: &Target) -> Result<bool> {
    let file = Target::named(sysfs, name)?;
    let is_device = match (&file.device, &target.device) {
        (Some(file), Some(target)) => {
            adapter::is(sysfs, file, target) || adapter::is(sysfs, target, file)
        }
        (file, target) => file == target,
    };
    Ok(is_device
        && file.port == target.port
        && file.key()? == target.key()?
        && file.host() == target.host()
        && file.ends()? == target.ends()?
        && file.dgid()? == target.dgid()?)
}

/// Prints the session and its disks.
fn report(session: &Session, new: bool) {
    let verb = ["already logged in", "logged in"][usize::from(new)];
    say!(
        "{}: {verb} at {} through {}",
        session.name(),
        session.address,
        session.port_name()
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
}

/// Makes one login attempt. Returns an existing session instead, if there is one.
fn log_in(sysfs: &Sysfs, attempt: &Attempt, name: Option<&str>) -> Result<Login> {
    let Attempt { target, port, .. } = attempt;
    let login = attempt.login_string(sysfs)?;
    let end = Instant::now() + LOGOUT;
    let before = loop {
        let before = Session::to(sysfs, target, port)?;
        let mut log = KernelLog::from_now();
        let answer = format!("an answer to the login through {}", port.name());
        let Err(e) = patience::waiting(&answer, || port.add_target(&login)) else {
            break before;
        };
        let Error::Io { source, .. } = &e else {
            return Err(e);
        };
        if source.kind() != ErrorKind::AlreadyExists {
            let why = log.as_mut().and_then(|log| log.reason(port, target));
            return Err(Error::Login(why.unwrap_or_else(|| source.to_string())));
        }
        // A session whose key is known certainly matches; prefer it.
        if let Some(session) = before.into_iter().min_by_key(|s| s.initiator_ext.is_none()) {
            agree(sysfs, &session, target, name)?;
            return Ok(Login {
                session,
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
    let new = Session::to(sysfs, target, port)?
        .into_iter()
        .find(|session| before.iter().all(|old| old.host != session.host));
    let session = new.ok_or_else(ended)?;
    Ok(Login { session, new: true })
}

fn ended() -> Error {
    Error::Login("the session ended right after the login; see the kernel log".into())
}

/// Checks that the existing session is the wanted one. The key alone does not show that.
fn agree(sysfs: &Sysfs, session: &Session, target: &Target, name: Option<&str>) -> Result {
    let host = session.name();
    let other = |what: String| {
        Err(Error::Usage(format!(
            "{host} is already logged in {what}; for one more session use --path, or another \
             initiator_ext"
        )))
    };
    if let Some(what) = elsewhere(sysfs, session, target)? {
        return other(what);
    }
    match (name, session.target.as_deref()) {
        (Some(name), Some(known)) if name != known && session.has_file(sysfs) => {
            other(format!("as target {known}"))
        }
        _ => Ok(()),
    }
}

/// Returns where a session leads to, unless it leads to `target`.
pub fn elsewhere(sysfs: &Sysfs, session: &Session, target: &Target) -> Result<Option<String>> {
    let file = |file: &str| sysfs::text(session.folder(sysfs).join(file));
    if let Some((src, dest)) = target.ends()? {
        let present = End::parse(&session.address);
        if present.is_some_and(|present| !present.is(&dest)) {
            return Ok(Some(format!("at {}", session.address)));
        }
        let present = file("src").and_then(|text| End::parse(&text));
        if let (Some(src), Some(present)) = (src, present) {
            if src.ip.to_canonical() != present.ip.to_canonical() {
                return Ok(Some(format!("from {}", present.ip)));
            }
        }
    }
    if let (Some(dgid), Some(present)) = (target.dgid()?, file("orig_dgid")) {
        if dgid != present {
            return Ok(Some(format!("at {present}")));
        }
    }
    Ok(None)
}

/// Waits until udev has named the disks.
pub fn settle() {
    // Without udev there is nothing to wait for. This waits for the events of all devices: an event
    // of a removed disk may be pending whose number a new one has.
    let mut command = Command::new("udevadm");
    let settle = || command.args(["settle", "--timeout=30"]).status();
    let _ = patience::waiting("udev to name the disks, at most 30 s", settle);
}

#[cfg(test)]
mod tests;
