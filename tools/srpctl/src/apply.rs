// SPDX-License-Identifier: GPL-2.0

//! `srpctl apply`: makes the sessions match the files in targets.d.

use crate::{
    adapter, boot,
    cli::{Apply, Connect},
    connect, disconnect,
    error::{Error, Result},
    list,
    out::say,
    owner::Owner,
    resolve::{self, Lookup},
    session::Session,
    sysfs::Sysfs,
    target::{Target, FOLDER},
    timeouts::Timeouts,
    unit,
};
use serde::Serialize;
use std::{collections::BTreeSet, fs, io::ErrorKind};

/// The action for a target. The names are part of the JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    None,
    LogIn,
    /// Log out and in again: the options of a login cannot be changed.
    LogInAgain,
    SetTimeouts,
    /// Start the unit, which logs in again when the session is lost.
    StartUnit,
    LogOut,
}

impl Action {
    /// Returns the words for the action before and after it is done.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("nothing to do", "nothing to do"),
            Self::LogIn => ("would log in", "logged in"),
            Self::LogInAgain => ("would log out and in again", "logged out and in again"),
            Self::SetTimeouts => ("would set the timeouts", "timeouts set"),
            Self::StartUnit => ("would start the unit", "unit started"),
            Self::LogOut => ("would log out", "logged out"),
        }
    }
}

/// A target: a file in targets.d, or the sessions of a file that is removed.
#[derive(Debug, Serialize)]
struct Item {
    target: String,
    file: String,
    /// Whether the action was done, at least in part, or with `--check` would be.
    changed: bool,
    action: Action,
    /// The difference that the action removes.
    why: Option<String>,
    /// The SCSI hosts of the sessions.
    hosts: Vec<String>,
    error: Option<String>,
    #[serde(skip)]
    wanted: Option<Target>,
    #[serde(skip)]
    sessions: Vec<Session>,
    #[serde(skip)]
    failure: Option<Error>,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    changed: bool,
    check: bool,
    targets: &'a [Item],
}

impl Item {
    fn new(name: &str, sessions: Vec<Session>) -> Self {
        Self {
            target: name.into(),
            file: format!("{FOLDER}/{name}.conf"),
            changed: false,
            action: Action::None,
            why: None,
            hosts: sessions.iter().map(Session::name).collect(),
            error: None,
            wanted: None,
            sessions,
            failure: None,
        }
    }

    fn to(mut self, action: Action, why: impl Into<String>) -> Self {
        self.action = action;
        self.why = Some(why.into());
        self
    }

    fn fail(&mut self, error: Error) {
        self.error = Some(error.to_string());
        self.failure = Some(error);
    }

    /// Logs out of the sessions of a file that is certainly gone.
    fn removed(sysfs: &Sysfs, name: &str, sessions: Vec<Session>) -> Self {
        let mut item = Self::new(name, sessions);
        let path = match Target::path(sysfs, name) {
            Ok(path) => path,
            Err(error) => {
                item.fail(error);
                return item;
            }
        };
        match fs::metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                item.to(Action::LogOut, "the file is removed")
            }
            Err(e) => {
                item.fail(Error::io(path, e));
                item
            }
            // The file is new.
            Ok(_) => item,
        }
    }

    /// Compares a file with its sessions. `units` are the targets whose unit runs, if systemd is
    /// there.
    fn of_file(
        sysfs: &Sysfs,
        all: &[Session],
        (name, target): (String, Result<Target>),
        units: Option<&[String]>,
        lookup: Lookup<'_>,
    ) -> Self {
        let found = target.and_then(|target| {
            let sessions = Session::named(sysfs, all.to_vec(), &name)?;
            Ok((target, sessions))
        });
        let (target, sessions) = match found {
            Ok(found) => found,
            Err(error) => {
                let mut item = Self::new(&name, Vec::new());
                item.fail(error);
                return item;
            }
        };
        let mut item = Self::new(&name, sessions);
        item.wanted = Some(target.clone());
        if target.manual {
            item.why = Some("onboot = false".into());
            return item;
        }
        if item.sessions.is_empty() {
            return item.to(Action::LogIn, "not logged in");
        }
        // One session as the file says is enough: `connect --path` adds others under its name.
        let mut differing = Vec::new();
        for session in &item.sessions {
            match difference(sysfs, session, &target, lookup) {
                Ok(Some(why)) => differing.push((session.clone(), why)),
                Ok(None) => {
                    item.sessions = vec![session.clone()];
                    return item.in_place(sysfs, &target, units);
                }
                Err(error) => {
                    item.fail(error);
                    return item;
                }
            }
        }
        item.replace(sysfs, &target, differing)
    }

    /// Replaces the sessions of a file, none of which matches the file. Each comes with its
    /// difference.
    fn replace(
        mut self,
        sysfs: &Sysfs,
        target: &Target,
        mut differing: Vec<(Session, String)>,
    ) -> Self {
        let key = match target.key() {
            Ok(key) => key,
            Err(error) => {
                self.fail(error);
                return self;
            }
        };
        // Other paths stay if the session of the file is there.
        let is_of_file = |(session, _): &(Session, String)| session.is_of(sysfs, target, &key);
        if differing.iter().any(is_of_file) {
            differing.retain(is_of_file);
        }
        let (ours, others): (Vec<_>, Vec<_>) = differing.into_iter().partition(|(session, _)| {
            session.is_ours() && session.target == Some(self.target.clone())
        });
        if let Some((_, why)) = ours.first().cloned() {
            self.sessions = ours.into_iter().map(|(session, _)| session).collect();
            return self.to(Action::LogInAgain, why);
        }
        if let Some((session, why)) = others.first() {
            let host = session.name();
            self.fail(Error::Usage(format!(
                "{host} was not made for this file by srpctl and is {why}; to have it as the file \
                 says, srpctl disconnect {host}"
            )));
        }
        self
    }

    /// Compares what can be changed without a logout.
    fn in_place(self, sysfs: &Sysfs, target: &Target, units: Option<&[String]>) -> Self {
        let Some(session) = self.sessions.first() else {
            return self;
        };
        let timeouts = Timeouts::differing(sysfs, session, &target.timeouts);
        if !timeouts.is_empty() {
            return self.to(Action::SetTimeouts, timeouts.join(", "));
        }
        let runs = units.is_none_or(|units| units.contains(&self.target));
        match runs {
            true => self,
            false => self.to(Action::StartUnit, "its unit does not run"),
        }
    }

    /// Carries out the action. If it fails, `changed` says whether a part of it is done.
    fn apply(&mut self, sysfs: &Sysfs) -> Result {
        let Some(target) = &self.wanted else {
            let units = [self.target.clone()];
            let lock = unit::lock(sysfs)?;
            return disconnect::log_out(sysfs, &lock, &self.present(sysfs), &units);
        };
        let args = Connect::of(&self.target);
        if let (Action::SetTimeouts, Some(session)) = (self.action, self.sessions.first()) {
            let timeouts = Timeouts::of_session(sysfs, session).with(&target.timeouts)?;
            timeouts.set(sysfs, session)?;
            self.changed = true;
        }
        let mut lock = None;
        if self.action == Action::LogInAgain {
            connect::check(sysfs, target)?;
            // Until the login is done, no unit may log in because the session is gone.
            let lock = lock.insert(unit::lock(sysfs)?);
            // The unit keeps running, so that it does not log out of the new session.
            disconnect::log_out(sysfs, lock, &self.present(sysfs), &[])?;
            self.changed = true;
            self.hosts.clear();
        }
        let mut result = Ok(());
        if let Action::LogIn | Action::LogInAgain = self.action {
            match connect::log_in_as(sysfs, &args, target) {
                Ok((login, rest)) => {
                    self.changed = true;
                    self.hosts = vec![login.session.name()];
                    result = rest;
                }
                Err(error) => result = Err(error),
            }
        }
        drop(lock);
        // After a failed login, the unit tries again.
        let started = connect::start_unit(sysfs, &args, target);
        result.and(started)
    }

    /// Returns the sessions that are still there, with the disks that they have now. Another
    /// session may have the number of one that has ended.
    fn present(&self, sysfs: &Sysfs) -> Vec<Session> {
        let is_known = |new: &Session| {
            let is_same = |old: &Session| {
                (old.host, old.port, &old.device) == (new.host, new.port, &new.device)
                    && (&old.id_ext, &old.ioc_guid) == (&new.id_ext, &new.ioc_guid)
                    && old.initiator_ext == new.initiator_ext
                    && (&old.owner, &old.target) == (&new.owner, &new.target)
            };
            self.sessions.iter().any(is_same)
        };
        let mut all = Session::all(sysfs);
        all.retain(is_known);
        all
    }

    fn line(&self, check: bool) -> String {
        let name = &self.target;
        let why = self
            .why
            .as_ref()
            .map(|why| format!("{why}; "))
            .unwrap_or_default();
        let words = self.action.words();
        match &self.error {
            Some(error) => format!("{name}: {why}failed: {error}"),
            None => format!("{name}: {why}{}", if check { words.0 } else { words.1 }),
        }
    }
}

/// Returns the login options that a session was made with and that are not those of `target`, whose
/// values are `whose`.
pub fn other_options(
    sysfs: &Sysfs,
    session: &Session,
    target: &Target,
    whose: &str,
) -> Option<String> {
    let mut made = Target::of_login(&Owner::of(sysfs, session)?.login?)?;
    // The caller decides whether a host name and an address are the same place.
    if made.host().is_some() || target.host().is_some() {
        made.set("dest", target.option("dest")?.into());
    }
    (!made.is_login_of(target)).then(|| made.options_besides(target, whose))
}

/// Returns how a session was made otherwise than its file says.
fn difference(
    sysfs: &Sysfs,
    session: &Session,
    target: &Target,
    lookup: Lookup<'_>,
) -> Result<Option<String>> {
    let through = session.port_name();
    if target
        .device
        .as_ref()
        .is_some_and(|device| !adapter::is(sysfs, device, &session.device))
        || target.port.is_some_and(|port| port != session.port)
    {
        return Ok(Some(format!("logged in through {through}")));
    }
    if !session.is_of(sysfs, target, &target.key()?) {
        let initiator_ext = session.initiator_ext.as_deref().unwrap_or("unknown");
        return Ok(Some(format!(
            "logged in with id_ext {}, ioc_guid {}, initiator_ext {initiator_ext}",
            session.id_ext, session.ioc_guid
        )));
    }
    if let Some(other) = other_options(sysfs, session, target, "file") {
        return Ok(Some(format!("logged in with {other}")));
    }
    // A session stays while its host name cannot be looked up.
    let mut elsewhere = None;
    for target in target.resolved(lookup).unwrap_or_default() {
        elsewhere = connect::elsewhere(sysfs, session, &target)?;
        if elsewhere.is_none() {
            break;
        }
    }
    Ok(elsewhere.map(|place| format!("logged in {place}")))
}

/// Compares all files with all sessions.
fn compare(sysfs: &Sysfs, units: Option<&[String]>, lookup: Lookup<'_>) -> Result<Vec<Item>> {
    let all = Session::all(sysfs);
    // A folder that cannot be read says nothing of its files, and ends no session.
    let files = match boot::readable(sysfs) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let mut ours = all.iter().filter(|session| session.is_ours());
            if let Some(name) = ours.find_map(|session| session.target.as_ref()) {
                return Err(Error::NotFound(format!(
                    "there is no {FOLDER}, and {name} is logged in; to log out of all that srpctl \
                     has logged in to, mkdir {FOLDER} and try again"
                )));
            }
            Vec::new()
        }
        files => files.map_err(|e| Error::io(sysfs.path(FOLDER), e))?,
    };
    let names: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    // Logouts come first: the file may have a new name.
    let removed = all.iter().filter(|session| session.is_ours());
    let removed = removed.filter_map(|session| session.target.clone());
    let removed: BTreeSet<String> = removed.filter(|name| !names.contains(name)).collect();
    let removed = removed.into_iter().map(|name| {
        let of_name =
            |session: &&Session| session.is_ours() && session.target.as_ref() == Some(&name);
        let sessions = all.iter().filter(of_name);
        Item::removed(sysfs, &name, sessions.cloned().collect())
    });
    // A session that is about to end belongs to no other file.
    let is_ending = |session: &Session| {
        let name = session.target.as_ref();
        session.is_ours() && name.is_some_and(|name| !names.contains(name))
    };
    let mut staying = all.clone();
    staying.retain(|session| !is_ending(session));
    let files = files.into_iter();
    let wanted = files.map(|file| Item::of_file(sysfs, &staying, file, units, lookup));
    Ok(removed.chain(wanted).collect())
}

/// Compares, and without `--check` changes what differs.
pub fn run(sysfs: &Sysfs, args: &Apply) -> Result {
    let units = unit::running()?;
    let mut items = compare(sysfs, units.as_deref(), &resolve::system)?;
    for item in &mut items {
        let differs = item.action != Action::None;
        match differs && !args.check {
            true => match item.apply(sysfs) {
                Ok(()) => item.changed = true,
                Err(error) => item.fail(error),
            },
            false => item.changed = differs,
        }
        if !args.json {
            say!("{}", item.line(args.check));
        }
    }
    if items.is_empty() && !args.json {
        say!("{}", boot::NONE);
    }
    let changed = items.iter().filter(|item| item.changed).count();
    if args.json {
        list::json(&Report {
            changed: changed > 0,
            check: args.check,
            targets: &items,
        })?;
    }
    // Tell systemd of files that are new or removed.
    let reloaded = match changed > 0 && !args.check {
        true => unit::reload(),
        false => Ok(()),
    };
    match result(items, args.check) {
        Ok(()) => reloaded,
        Err(error) => error.after(reloaded),
    }
}

/// Returns the first error; otherwise, with `--check`, whether something differs.
fn result(items: Vec<Item>, check: bool) -> Result {
    let all = items.len();
    let changed = items.iter().filter(|item| item.changed).count();
    for item in items {
        if let Some(error) = item.failure {
            return Err(error.of(item.target));
        }
    }
    match check && changed > 0 {
        true => Err(Error::Differs(format!(
            "{changed} of {all} targets differ; srpctl apply makes them what the files say"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
