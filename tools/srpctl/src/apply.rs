// SPDX-License-Identifier: GPL-2.0

//! `srpctl apply`: makes the sessions what the files in targets.d say.

use crate::{
    adapter, boot,
    cli::{Apply, Connect, Settings},
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
use std::collections::BTreeSet;

/// What is to be done for a target. The names are part of the JSON.
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
    /// Returns what the action does, and what it has done.
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
    /// Whether the action was done, or with `--check` would be.
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
        self.changed = false;
        self.error = Some(error.to_string());
        self.failure = Some(error);
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
        let Some(session) = item.sessions.first() else {
            return item.to(Action::LogIn, "not logged in");
        };
        match difference(sysfs, session, &target, lookup) {
            Ok(None) => {}
            Ok(Some(why)) if session.owner.as_deref() == Some("srpctl") => {
                return item.to(Action::LogInAgain, why);
            }
            Ok(Some(why)) => {
                let host = session.name();
                item.fail(Error::Usage(format!(
                    "{host} was not made by srpctl and is {why}; to have it as the file says, \
                     srpctl disconnect {host}"
                )));
                return item;
            }
            Err(error) => {
                item.fail(error);
                return item;
            }
        }
        let timeouts = Timeouts::differing(sysfs, session, &target.timeouts);
        if !timeouts.is_empty() {
            return item.to(Action::SetTimeouts, timeouts.join(", "));
        }
        let runs = units.is_none_or(|units| units.contains(&name));
        match runs {
            true => item,
            false => item.to(Action::StartUnit, "its unit does not run"),
        }
    }

    /// Does what is to be done.
    fn apply(&mut self, sysfs: &Sysfs) -> Result {
        let Some(target) = &self.wanted else {
            let units = [self.target.clone()];
            return disconnect::log_out(sysfs, &self.sessions, &units);
        };
        let args = connection(&self.target);
        if let (Action::SetTimeouts, Some(session)) = (self.action, self.sessions.first()) {
            let timeouts = Timeouts::of_session(sysfs, session).with(&target.timeouts)?;
            timeouts.set(sysfs, session)?;
        }
        if self.action == Action::LogInAgain {
            // The unit keeps running, so that it does not log out of the new session.
            disconnect::log_out(sysfs, &self.sessions, &[])?;
            self.hosts.clear();
        }
        if let Action::LogIn | Action::LogInAgain = self.action {
            let (login, _) = connect::log_in_as(sysfs, &args, target)?;
            self.hosts = vec![login.session.name()];
        }
        connect::start_unit(sysfs, &args, target)
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

/// Returns the arguments of `srpctl connect NAME`.
fn connection(name: &str) -> Connect {
    Connect {
        name: Some(name.into()),
        all: false,
        device: None,
        port: None,
        save: None,
        retry: None,
        path: false,
        owner: "srpctl".into(),
        unit: false,
        settings: Settings::default(),
    }
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
    let record = Owner::of(sysfs, session).and_then(|owner| owner.login);
    let made = record.as_deref().and_then(Target::of_login);
    if let Some(made) = made.filter(|made| !made.is_login_of(target)) {
        return Ok(Some(format!(
            "logged in with {}",
            made.options_besides(target)
        )));
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
fn compare(sysfs: &Sysfs, units: Option<&[String]>, lookup: Lookup<'_>) -> Vec<Item> {
    let all = Session::all(sysfs);
    let files = boot::files(sysfs);
    let names: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    // Logouts come first: the file may have a new name.
    let removed = all
        .iter()
        .filter(|session| session.owner.as_deref() == Some("srpctl"));
    let removed = removed.filter_map(|session| session.target.clone());
    let removed: BTreeSet<String> = removed.filter(|name| !names.contains(name)).collect();
    let removed = removed.into_iter().map(|name| {
        let of_name = |session: &&Session| session.target.as_ref() == Some(&name);
        let sessions = all.iter().filter(of_name).cloned().collect();
        Item::new(&name, sessions).to(Action::LogOut, "the file is removed")
    });
    let files = files.into_iter();
    let wanted = files.map(|file| Item::of_file(sysfs, &all, file, units, lookup));
    removed.chain(wanted).collect()
}

/// Compares, and without `--check` changes what differs.
pub fn run(sysfs: &Sysfs, args: &Apply) -> Result {
    let units = unit::running()?;
    let mut items = compare(sysfs, units.as_deref(), &resolve::system);
    for item in &mut items {
        item.changed = item.action != Action::None;
        if item.changed && !args.check {
            if let Err(error) = item.apply(sysfs) {
                item.fail(error);
            }
        }
        if !args.json {
            say!("{}", item.line(args.check));
        }
    }
    let changed = items.iter().filter(|item| item.changed).count();
    if changed > 0 && !args.check {
        // Tell systemd of files that are new or removed.
        unit::reload()?;
    }
    if args.json {
        list::json(&Report {
            changed: changed > 0,
            check: args.check,
            targets: &items,
        })?;
    }
    result(items, args.check)
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
mod tests {
    use super::*;
    use crate::{schema, session::tests::machine};
    use std::{fs, path::Path};

    const ONE: &str =
        "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"10.0.0.1:5555\"\ndevice = \"rxe1\"\n";

    fn put(root: &Path, name: &str, text: &str) {
        fs::write(root.join(&FOLDER[1..]).join(name), text).unwrap();
    }

    /// Compares without systemd; `storage` is 10.0.0.1 and another.
    fn found(sysfs: &Sysfs) -> Vec<Item> {
        let lookup = |name: &str| match name {
            "storage" => Ok(vec![
                "10.0.0.9:0".parse().unwrap(),
                "10.0.0.1:0".parse().unwrap(),
            ]),
            "away" => Err(std::io::ErrorKind::TimedOut.into()),
            _ => Ok(vec!["10.0.0.9:0".parse().unwrap()]),
        };
        checked(compare(sysfs, None, &lookup))
    }

    fn checked(items: Vec<Item>) -> Vec<Item> {
        let report = Report {
            changed: false,
            check: true,
            targets: &items,
        };
        schema::check("apply", &report);
        items
    }

    fn actions(sysfs: &Sysfs) -> Vec<(String, Action)> {
        let items = found(sysfs).into_iter();
        items.map(|item| (item.target, item.action)).collect()
    }

    fn record(sysfs: &Sysfs, host: u32, name: &str, login: &str) {
        let all = Session::hosts(sysfs);
        let session = all.iter().find(|session| session.host == host).unwrap();
        let zero = "0x0000000000000000";
        Owner::record(sysfs, session, "srpctl", Some(name), zero, Some(login)).unwrap();
    }

    fn one(action: Action) -> Vec<(String, Action)> {
        vec![("one".into(), action)]
    }

    #[test]
    fn each_file_has_a_session() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        assert_eq!(actions(&sysfs), one(Action::None));
        put(root.path(), "two.conf", &ONE.replace("rxe1", "rxe7"));
        let file = format!("{ONE}onboot = false\n");
        put(root.path(), "manual.conf", &file.replace("rxe1", "rxe8"));
        put(root.path(), "wrong.conf", "queue_sise = 1\n");
        let mut items = found(&sysfs);
        let line = |item: &Item| item.line(true);
        assert_eq!(
            items.iter().map(line).collect::<Vec<_>>(),
            [
                "manual: onboot = false; nothing to do".to_string(),
                "one: nothing to do".into(),
                "two: not logged in; would log in".into(),
                format!(
                    "wrong: failed: {}/wrong.conf:1: no such option: queue_sise",
                    sysfs.path(FOLDER).display()
                ),
            ]
        );
        assert_eq!(items[1].hosts, ["host10"]);
        for item in &mut items {
            item.changed = item.action != Action::None;
        }
        // An invalid file matters more than a difference.
        let wrong = items.pop().unwrap();
        assert_eq!(result(vec![wrong], true).unwrap_err().status(), 2);
        assert_eq!(result(items, true).unwrap_err().status(), 9);
        assert!(result(Vec::new(), true).is_ok());
    }

    #[test]
    fn the_units_run() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        let lookup = |_: &str| Ok(Vec::new());
        let with = |units: &[&str]| {
            let units: Vec<String> = units.iter().map(|name| name.to_string()).collect();
            checked(compare(&sysfs, Some(&units), &lookup))[0].action
        };
        assert_eq!(with(&["two", "one"]), Action::None);
        assert_eq!(with(&["two"]), Action::StartUnit);
        put(root.path(), "one.conf", &format!("{ONE}initramfs = true\n"));
        assert_eq!(with(&["two"]), Action::StartUnit);
    }

    #[test]
    fn timeouts_are_set_in_place() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        let port = Session::remote_port(&sysfs, 10);
        for (name, value) in [
            ("reconnect_delay", "10"),
            ("fast_io_fail_tmo", "15"),
            ("dev_loss_tmo", "600"),
        ] {
            fs::write(port.join(name), format!("{value}\n")).unwrap();
        }
        put(
            root.path(),
            "one.conf",
            &format!("{ONE}dev_loss_tmo = 60\n"),
        );
        let mut item = found(&sysfs).remove(0);
        assert_eq!(item.action, Action::SetTimeouts);
        assert_eq!(item.why.as_deref(), Some("dev_loss_tmo is 600, not 60"));
        item.apply(&sysfs).unwrap();
        // As sysfs, which ends a line.
        fs::write(port.join("dev_loss_tmo"), "60\n").unwrap();
        assert_eq!(actions(&sysfs), one(Action::None));
    }

    #[test]
    fn a_session_with_other_options_is_replaced() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        let login = "dest=10.0.0.1:5555,id_ext=0x1,ioc_guid=2,queue_size=62";
        record(&sysfs, 10, "one", login);
        // The default, written out.
        assert_eq!(actions(&sysfs), one(Action::None));
        for (file, why) in [
            (
                format!("{ONE}queue_size = 128\n"),
                "logged in with queue_size 62 (file: 128)",
            ),
            (
                format!("{ONE}tos = 3\n"),
                "logged in with tos none (file: 3)",
            ),
            (
                ONE.replace("10.0.0.1", "10.0.0.7"),
                "logged in with dest 10.0.0.1:5555 (file: 10.0.0.7:5555)",
            ),
            (ONE.replace("rxe1", "rxe0"), "logged in through rxe1/1"),
            (
                ONE.replace("ioc_guid = \"2\"", "ioc_guid = \"3\""),
                "logged in with id_ext 0x0000000000000001, ioc_guid 0x0000000000000002, \
                 initiator_ext 0x0000000000000000",
            ),
        ] {
            put(root.path(), "one.conf", &file);
            let item = found(&sysfs).remove(0);
            assert_eq!(
                (item.action, item.why.as_deref()),
                (Action::LogInAgain, Some(why))
            );
        }
    }

    #[test]
    fn a_host_name_is_each_of_its_addresses() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        for (host, action) in [
            ("storage", Action::None),
            ("away", Action::None),
            ("elsewhere", Action::LogInAgain),
        ] {
            put(root.path(), "one.conf", &ONE.replace("10.0.0.1", host));
            record(
                &sysfs,
                10,
                "one",
                &format!("id_ext=1,ioc_guid=2,dest={host}:5555"),
            );
            assert_eq!(actions(&sysfs), one(action), "{host}");
        }
    }

    #[test]
    fn the_session_of_another_stays() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        put(
            root.path(),
            "one.conf",
            &ONE.replace("10.0.0.1", "10.0.0.7"),
        );
        let items = found(&sysfs);
        assert_eq!(items[0].action, Action::None);
        let said = items[0].error.as_deref().unwrap();
        let begin = "host10 was not made by srpctl and is logged in at 10.0.0.1:5555; ";
        assert!(said.starts_with(begin), "{said}");
    }

    #[test]
    fn a_session_without_its_file_ends() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        record(&sysfs, 9, "old", "");
        assert_eq!(
            actions(&sysfs),
            [("old".into(), Action::LogOut), ("one".into(), Action::None)]
        );
        put(root.path(), "old.conf", &format!("{ONE}onboot = false\n"));
        assert_eq!(actions(&sysfs)[0], ("old".into(), Action::None));
    }

    #[test]
    fn programs_read_one_document() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        put(root.path(), "two.conf", &ONE.replace("rxe1", "rxe7"));
        let items = found(&sysfs);
        let report = Report {
            changed: true,
            check: true,
            targets: &items,
        };
        assert_eq!(
            serde_json::to_value(&report).unwrap(),
            serde_json::json!({
                "changed": true,
                "check": true,
                "targets": [
                    {
                        "target": "one",
                        "file": "/etc/srp/targets.d/one.conf",
                        "changed": false,
                        "action": "none",
                        "why": null,
                        "hosts": ["host10"],
                        "error": null,
                    },
                    {
                        "target": "two",
                        "file": "/etc/srp/targets.d/two.conf",
                        "changed": false,
                        "action": "log-in",
                        "why": "not logged in",
                        "hosts": [],
                        "error": null,
                    },
                ],
            })
        );
    }
}
