// SPDX-License-Identifier: GPL-2.0

//! The differences between two snapshots of the sessions, as events.

use crate::{
    boot,
    disk::Disk,
    event::{Event, Path, What},
    kernel_log::Line,
    losses::{seconds, Said},
    session::Session,
    statistics::Statistics,
    sysfs::{self, Sysfs},
    uevent::Uevent,
};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, time::SystemTime};

/// A session with its disks and counters.
#[derive(Clone, Debug, Default)]
struct Seen {
    session: Session,
    /// Inode of the host's directory, because host numbers are reused.
    inode: u64,
    /// The remote port exists. It is created after the host, and completes the login.
    ready: bool,
    lost: u64,
    tries: u64,
    requested: Option<u32>,
}

/// A snapshot of all sessions, by host.
#[derive(Default)]
pub struct Look(BTreeMap<u32, Seen>);

impl Look {
    /// Reads the sessions and their disks.
    pub fn all(sysfs: &Sysfs) -> Self {
        Self::of(sysfs, Session::all(sysfs))
    }

    /// Reads the sessions. The disks are those that `watcher` has seen.
    pub fn sessions(sysfs: &Sysfs, watcher: &Watcher) -> Self {
        let mut look = Self::of(sysfs, Session::hosts(sysfs));
        for (host, seen) in &mut look.0 {
            let before = watcher.before.0.get(host);
            if let Some(before) = before.filter(|before| before.inode == seen.inode) {
                seen.session.disks.clone_from(&before.session.disks);
            }
        }
        look
    }

    fn of(sysfs: &Sysfs, mut sessions: Vec<Session>) -> Self {
        name(sysfs, &mut sessions);
        let seen = sessions.into_iter().filter_map(|session| {
            let statistics = Statistics::of(sysfs, session.host);
            let folder = session.folder(sysfs);
            Some((
                session.host,
                Seen {
                    inode: fs::metadata(&folder).ok()?.ino(),
                    ready: Session::remote_port(sysfs, session.host).exists(),
                    lost: statistics.sum("connections_lost"),
                    tries: statistics.sum("login_tries"),
                    requested: sysfs::number(folder.join("requested_ch_count")),
                    session,
                },
            ))
        });
        Self(seen.collect())
    }
}

/// Gives each session without a record the name of the file that describes it. A login writes the
/// record after its disks have appeared.
fn name(sysfs: &Sysfs, sessions: &mut [Session]) {
    if sessions.iter().all(|session| session.target.is_some()) {
        return;
    }
    let known: Vec<String> = sessions.iter().filter_map(|s| s.target.clone()).collect();
    for (name, _) in boot::files(sysfs) {
        if known.contains(&name) {
            continue;
        }
        let found = Session::named(sysfs, sessions.to_vec(), &name).unwrap_or_default();
        for session in sessions.iter_mut() {
            if session.target.is_none() && found.iter().any(|f| f.host == session.host) {
                session.target = Some(name.clone());
            }
        }
    }
}

/// A loss that has not ended.
struct Open {
    time: SystemTime,
    /// Login attempts before it. Without another one there is no new connection.
    tries: u64,
}

/// Compares each look with the one before.
pub struct Watcher {
    before: Look,
    open: BTreeMap<u32, Open>,
    /// What the kernel log says about each host: since the last look, the last loss and its end.
    losses: BTreeMap<u32, (SystemTime, String)>,
    ends: BTreeMap<u32, SystemTime>,
    /// Hosts whose `dev_loss_tmo` has expired.
    expired: Vec<u32>,
}

impl Watcher {
    /// Returns a watcher, and the first event to print.
    pub fn new(mut before: Look, now: SystemTime) -> (Self, Event) {
        before.0.retain(|_, seen| seen.ready);
        let sessions = before.0.len();
        let mut watcher = Self {
            before: Look::default(),
            open: BTreeMap::new(),
            losses: BTreeMap::new(),
            ends: BTreeMap::new(),
            expired: Vec::new(),
        };
        // A session whose connection is lost already will reconnect.
        for (host, seen) in &before.0 {
            if !seen.session.is_connected() {
                let time = seen.session.last_error().map_or(now, |(time, _)| time);
                // The attempt that succeeds may have begun.
                let tries = seen.tries.saturating_sub(1);
                watcher.open.insert(*host, Open { time, tries });
            }
        }
        watcher.before = before;
        (watcher, Event::new(now, None, What::Start { sessions }))
    }

    /// Keeps what lines of the kernel log say about the next look.
    pub fn hear(&mut self, lines: &[Line]) {
        self.losses.clear();
        self.ends.clear();
        for line in lines {
            match Said::parse(&line.text) {
                Some((host, _, Said::Lost(why))) => {
                    self.losses.insert(host, (line.time, why));
                }
                Some((host, _, Said::Reconnected)) => {
                    self.ends.insert(host, line.time);
                }
                Some((_, _, Said::LoggedIn)) => {}
                None => self.expired.extend(expired(&line.text)),
            }
        }
    }

    /// Returns what has happened since the last look.
    pub fn see(&mut self, now: Look, time: SystemTime) -> Vec<Event> {
        let before = std::mem::take(&mut self.before);
        let mut events = Vec::new();
        for (host, old) in &before.0 {
            if now.0.get(host).is_none_or(|new| new.inode != old.inode) {
                disks(&old.session, &[], time, &mut events);
                let reason = self.expired.contains(host);
                let reason = reason.then(|| "dev_loss_tmo expired".to_string());
                let what = What::Logout { reason };
                events.push(Event::new(time, Some(&old.session), what));
                self.expired.retain(|expired| expired != host);
                self.open.remove(host);
            }
        }
        let mut seen = BTreeMap::new();
        for (host, new) in now.0 {
            match before.0.get(&host).filter(|old| old.inode == new.inode) {
                Some(old) => self.compare(old, &new, time, &mut events),
                None if !new.ready => continue,
                None => {
                    let what = What::Login {
                        address: new.session.address.clone(),
                        channels: new.session.channels,
                    };
                    events.push(Event::new(time, Some(&new.session), what));
                    // As it was when the login ended, which is the first try.
                    let mut old = new.clone();
                    (old.lost, old.tries) = (0, 1);
                    old.session.last_error = None;
                    old.session.disks.clear();
                    self.compare(&old, &new, time, &mut events);
                }
            }
            seen.insert(host, new);
        }
        self.before = Look(seen);
        events
    }

    /// Compares two looks at a session.
    fn compare(&mut self, old: &Seen, new: &Seen, time: SystemTime, events: &mut Vec<Event>) {
        let session = &new.session;
        let host = session.host;
        let heard = self.losses.get(&host).cloned();
        let end = self.ends.get(&host).copied();
        let count = new.lost.saturating_sub(old.lost);
        let reconnect = |open: &Open, end: SystemTime| {
            let what = What::Reconnect {
                seconds: seconds(open.time, end),
                channels: session.channels,
            };
            Event::new(end, Some(session), what)
        };
        if count > 0 {
            // The connection that is lost now came after the last look.
            if let Some(open) = self.open.remove(&host) {
                events.push(reconnect(&open, end.unwrap_or(time).min(time)));
            }
            let known = old.session.last_error != session.last_error;
            let shown = session.last_error().filter(|_| known);
            let shown = shown
                .and_then(|(_, text)| text.strip_prefix("connection lost: ").map(str::to_string));
            let begin = heard.as_ref().map_or(time, |(time, _)| *time);
            let reason = heard.map(|(_, why)| why).or(shown);
            events.push(Event::new(
                begin,
                Some(session),
                What::Loss { reason, count },
            ));
            let tries = old.tries;
            self.open.insert(host, Open { time: begin, tries });
        }
        if old.session.state != session.state {
            let what = What::State {
                from: old.session.state.clone(),
                state: session.state.clone(),
            };
            events.push(Event::new(time, Some(session), what));
        }
        let is_back = |open: &Open| session.is_connected() && new.tries > open.tries;
        if self.open.get(&host).is_some_and(is_back) {
            if let Some(open) = self.open.remove(&host) {
                let end = end.filter(|end| *end > open.time);
                events.push(reconnect(&open, end.unwrap_or(time)));
            }
        } else if old.session.channels != session.channels && session.is_connected() {
            let what = What::Channels {
                channels: session.channels,
                requested: new.requested,
            };
            events.push(Event::new(time, Some(session), what));
        }
        disks(&old.session, &session.disks, time, events);
    }

    /// Returns the event of a multipath map that stops using one of the disks, or starts again.
    pub fn path(&self, sysfs: &Sysfs, event: &Uevent) -> Option<Event> {
        let what = match event.get("DM_ACTION") {
            "PATH_FAILED" => What::PathFailed,
            "PATH_REINSTATED" => What::PathReinstated,
            _ => return None,
        };
        let number = event.get("DM_PATH");
        let disk = fs::read_link(sysfs.path(format!("/sys/dev/block/{number}"))).ok()?;
        let disk = sysfs::name(disk);
        let seen = self.before.0.values();
        let mut sessions = seen.map(|seen| &seen.session);
        let session = sessions.find(|s| s.disks.iter().any(|d| d.name == disk))?;
        let path = Path {
            disk,
            multipath: event.get("DM_NAME").to_string(),
            paths: event.get("DM_NR_VALID_PATHS").parse().ok(),
        };
        Some(Event::new(SystemTime::now(), Some(session), what(path)))
    }
}

/// Returns the host of a line `dev_loss_tmo expired for SRP port-3:1 / host3.`.
fn expired(text: &str) -> Option<u32> {
    let rest = text.split_once("dev_loss_tmo expired for SRP ")?.1;
    rest.split_once("host")?
        .1
        .trim_end_matches('.')
        .parse()
        .ok()
}

/// Adds the differences between the disks of a session.
fn disks(session: &Session, now: &[Disk], time: SystemTime, events: &mut Vec<Event>) {
    let key = |disk: &Disk| (disk.lun, disk.name.clone());
    let index = |disks: &[Disk]| -> BTreeMap<(u64, String), Disk> {
        disks.iter().map(|disk| (key(disk), disk.clone())).collect()
    };
    let (before, now) = (index(&session.disks), index(now));
    let mut add = |what| events.push(Event::new(time, Some(session), what));
    for ((lun, disk), _) in before.iter().filter(|(key, _)| !now.contains_key(key)) {
        let (disk, lun) = (disk.clone(), *lun);
        add(What::DiskGone { disk, lun });
    }
    for ((lun, name), disk) in now {
        let old = before.get(&(lun, name.clone()));
        let size = disk.size;
        match old {
            None => add(What::DiskNew {
                disk: name,
                lun,
                size,
                model: disk.model,
            }),
            Some(old) if old.size != size => add(What::DiskSize {
                disk: name,
                lun,
                size,
            }),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{owner::Owner, schema, session::tests::machine};
    use std::{os::unix::fs::symlink, time::Duration};

    /// A machine whose sessions, host9 and host10, have the driver's counters.
    struct Machine {
        folder: tempfile::TempDir,
        sysfs: Sysfs,
        watcher: Watcher,
        time: SystemTime,
    }

    impl Machine {
        fn new() -> Self {
            let folder = machine();
            let sysfs = Sysfs::below(folder.path());
            let time = SystemTime::UNIX_EPOCH;
            for host in [9, 10] {
                let counters = format!("sys/class/scsi_host/host{host}/statistics");
                fs::create_dir(folder.path().join(counters)).unwrap();
            }
            let (watcher, _) = Watcher::new(Look::default(), time);
            let mut machine = Self {
                folder,
                sysfs,
                watcher,
                time,
            };
            for host in [9, 10] {
                machine.put(host, "statistics/connections_lost", "0");
                machine.put(host, "statistics/login_tries", "1");
                machine.put(host, "requested_ch_count", "4");
            }
            let (watcher, start) = Watcher::new(Look::all(&machine.sysfs), time);
            assert_eq!(start.to_string(), "1970-01-01T00:00:00.000Z sessions: 2");
            schema::check("events", &start);
            machine.watcher = watcher;
            machine
        }

        fn put(&mut self, host: u32, file: &str, text: &str) {
            let host = format!("sys/class/scsi_host/host{host}");
            fs::write(self.folder.path().join(host).join(file), text).unwrap();
        }

        fn state(&mut self, host: u32, state: &str) {
            let port = Session::remote_port(&self.sysfs, host);
            fs::create_dir_all(&port).unwrap();
            fs::write(port.join("state"), state).unwrap();
        }

        fn hear(&mut self, host: u32, milliseconds: u64, said: &str) {
            let text = format!("scsi host{host}: ib_srp: rxe0:1 target 0:1: {said}");
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            self.watcher.hear(&[Line { time, text }]);
        }

        /// Looks a second later, and returns the events without their time.
        fn see(&mut self) -> Vec<String> {
            self.time += Duration::from_secs(1);
            let look = Look::all(&self.sysfs);
            let events = self.watcher.see(look, self.time).into_iter();
            let events = events.inspect(|event| schema::check("events", event));
            events
                .map(|event| event.to_string()[25..].to_string())
                .collect()
        }
    }

    const NINE: &str = "host9 0x0000000000000001:0x0000000000000002: ";

    fn of_nine(said: &[&str]) -> Vec<String> {
        said.iter().map(|said| format!("{NINE}{said}")).collect()
    }

    #[test]
    fn a_loss_has_its_reason_and_its_end() {
        let mut machine = Machine::new();
        assert_eq!(machine.see(), [""; 0]);
        // The counter comes first: there are still channels, and no reconnect.
        machine.put(9, "statistics/connections_lost", "1");
        machine.put(9, "last_error", "1 connection lost: the reason");
        assert_eq!(machine.see(), of_nine(&["connection lost: the reason"]));
        machine.put(9, "ch_count", "0");
        machine.state(9, "blocked");
        assert_eq!(machine.see(), of_nine(&["running -> blocked"]));
        machine.put(9, "statistics/login_tries", "2");
        assert_eq!(machine.see(), [""; 0]);
        machine.put(9, "ch_count", "2");
        machine.state(9, "running");
        let back = of_nine(&["blocked -> running", "reconnected after 3.0 s, channels: 2"]);
        assert_eq!(machine.see(), back);
        machine.put(9, "ch_count", "4");
        assert_eq!(machine.see(), of_nine(&["channels: 4 of 4"]));
    }

    #[test]
    fn losses_between_two_looks_are_counted() {
        let mut machine = Machine::new();
        machine.put(9, "statistics/connections_lost", "3");
        machine.put(9, "statistics/login_tries", "4");
        machine.put(9, "last_error", "1 reconnect failed: not this");
        machine.hear(9, 400, "connection lost: the last");
        let all = [
            "connection lost 3 times, last: the last",
            "reconnected after 0.6 s, channels: 4",
        ];
        assert_eq!(machine.see(), of_nine(&all));
        // The line does not count for the next loss, and neither does the old error.
        machine.watcher.hear(&[]);
        machine.put(9, "statistics/connections_lost", "4");
        machine.put(9, "ch_count", "0");
        assert_eq!(machine.see(), of_nine(&["connection lost: reason unknown"]));
        // Lost again, before a look has seen the connection in between.
        machine.put(9, "statistics/connections_lost", "5");
        machine.put(9, "last_error", "4 connection lost: again");
        let all = [
            "reconnected after 1.0 s, channels: 0",
            "connection lost: again",
        ];
        assert_eq!(machine.see(), of_nine(&all));
        // The error is still the one of the previous loss.
        machine.put(9, "statistics/connections_lost", "6");
        let unknown = of_nine(&["connection lost: reason unknown"]);
        assert_eq!(machine.see()[1..], unknown);
    }

    #[test]
    fn a_session_that_was_lost_at_the_start_comes_back() {
        let mut machine = Machine::new();
        machine.put(9, "ch_count", "0");
        machine.put(9, "last_error", "1 connection lost: before");
        let start = SystemTime::UNIX_EPOCH;
        machine.watcher = Watcher::new(Look::all(&machine.sysfs), start).0;
        machine.put(9, "ch_count", "4");
        machine.time += Duration::from_secs(5);
        let back = of_nine(&["reconnected after 5.0 s, channels: 4"]);
        assert_eq!(machine.see(), back);
    }

    #[test]
    fn a_loss_right_after_the_login_is_told() {
        let mut machine = Machine::new();
        let login = "logged in at 10.0.0.1:5555 through rxe0/1, channels: 4";
        let new = "sdb is new: LUN 3, 256 MiB, LIO-ORG disk";
        let lost = "connection lost: the reason";
        machine.watcher = Watcher::new(Look::default(), machine.time).0;
        machine.put(9, "statistics/connections_lost", "1");
        machine.put(9, "last_error", "1 connection lost: the reason");
        // The counter comes first: there are still channels, and no reconnect.
        assert_eq!(machine.see()[..3], of_nine(&[login, lost, new]));
        machine.put(9, "ch_count", "2");
        machine.put(9, "statistics/login_tries", "2");
        let back = "reconnected after 1.0 s, channels: 2";
        assert_eq!(machine.see(), of_nine(&[back]));
        // Both before the first look.
        machine.watcher = Watcher::new(Look::default(), machine.time).0;
        let login = "logged in at 10.0.0.1:5555 through rxe0/1, channels: 2";
        let back = "reconnected after 0.0 s, channels: 2";
        assert_eq!(machine.see()[..4], of_nine(&[login, lost, back, new]));
    }

    #[test]
    fn sessions_and_disks_come_and_go() {
        let mut machine = Machine::new();
        let root = machine.folder.path().to_path_buf();
        let size = root.join("sys/class/block/sdb/size");
        fs::write(size, "1048576\n").unwrap();
        assert_eq!(machine.see(), of_nine(&["sdb (LUN 3) has 512 MiB"]));
        let disk = root.join("sys/class/block/sdb");
        let aside = root.join("sdb");
        fs::rename(&disk, &aside).unwrap();
        assert_eq!(machine.see(), of_nine(&["sdb (LUN 3) is gone"]));
        fs::rename(&aside, &disk).unwrap();
        let new = "sdb is new: LUN 3, 512 MiB, LIO-ORG disk";
        assert_eq!(machine.see(), of_nine(&[new]));

        // Another session under the same number, of which the remote port is late.
        let host = root.join("sys/class/scsi_host/host9");
        let port = Session::remote_port(&machine.sysfs, 9);
        let aside = root.join("port");
        fs::rename(&host, root.join("old")).unwrap();
        fs::rename(&port, &aside).unwrap();
        fs::create_dir(&host).unwrap();
        for file in fs::read_dir(root.join("old")).unwrap().flatten() {
            if file.path().is_file() {
                fs::copy(file.path(), host.join(file.file_name())).unwrap();
            }
        }
        let text = "dev_loss_tmo expired for SRP port-9:1 / host9.";
        let line = Line {
            time: machine.time,
            text: text.into(),
        };
        machine.watcher.hear(&[line]);
        let gone = ["sdb (LUN 3) is gone", "logged out: dev_loss_tmo expired"];
        assert_eq!(machine.see(), of_nine(&gone));
        fs::rename(&aside, &port).unwrap();
        let login = "logged in at 10.0.0.1:5555 through rxe0/1, channels: 4";
        assert_eq!(machine.see(), of_nine(&[login, new]));
        fs::rename(&host, root.join("older")).unwrap();
        let gone = ["sdb (LUN 3) is gone", "logged out"];
        assert_eq!(machine.see(), of_nine(&gone));
    }

    #[test]
    fn a_look_at_the_sessions_keeps_their_disks() {
        let mut machine = Machine::new();
        let look = Look::sessions(&machine.sysfs, &machine.watcher);
        assert_eq!(machine.watcher.see(look, machine.time), []);
    }

    #[test]
    fn paths_of_multipath_maps_fail_and_return() {
        let machine = Machine::new();
        let numbers = machine.folder.path().join("sys/dev/block");
        fs::create_dir_all(&numbers).unwrap();
        symlink("../../class/block/sdb", numbers.join("8:16")).unwrap();
        let told = |action: &str, number: &str| {
            let event = format!(
                "change@/x\0DM_ACTION={action}\0DM_PATH={number}\0DM_NAME=mpatha\0\
                 DM_NR_VALID_PATHS=1\0"
            );
            let event = Uevent::parse(event.as_bytes());
            let event = machine.watcher.path(&machine.sysfs, &event)?;
            schema::check("events", &event);
            Some(event.to_string()[25..].to_string())
        };
        let failed = format!("{NINE}sdb is a failed path of mpatha, paths left: 1");
        assert_eq!(told("PATH_FAILED", "8:16"), Some(failed));
        let again = format!("{NINE}sdb is a path of mpatha again, paths: 1");
        assert_eq!(told("PATH_REINSTATED", "8:16"), Some(again));
        assert_eq!(told("PATH_FAILED", "8:32"), None);
        assert_eq!(told("", "8:16"), None);
    }

    #[test]
    fn a_session_is_named_before_it_is_on_record() {
        let mut machine = Machine::new();
        machine.put(10, "ch_count", "3");
        assert_eq!(machine.see(), ["host10 one: channels: 3 of 4"]);
        let session = &Session::all(&machine.sysfs)[0];
        let name = Some("one");
        Owner::record(&machine.sysfs, session, "srpctl", name, "0x0", None).unwrap();
        machine.put(9, "ch_count", "3");
        machine.put(10, "ch_count", "4");
        let named = machine.see();
        assert_eq!(named[0], "host9 one: channels: 3 of 4");
        assert!(named[1].starts_with("host10 0x"), "{named:?}");
    }
}
