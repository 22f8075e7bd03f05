// SPDX-License-Identifier: GPL-2.0

//! The settings of multipath, for targets with several paths.

use super::{machine::Machine, Report};
use crate::{boot, session::Session};
use std::collections::BTreeMap;

const FILE: &str = "/etc/multipath.conf";
const FOLDER: &str = "/etc/multipath/conf.d";

/// How long I/O waits without any path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Queueing {
    /// It fails.
    Fail,
    /// It waits without end.
    Forever,
    /// It waits for this many seconds.
    Seconds(u32),
}

/// The settings that count for SRP: those of `overrides`, else those of `defaults`.
pub struct Settings(BTreeMap<(String, String), String>);

impl Settings {
    /// Returns the settings that are in force, or those of the files if the program is missing.
    pub fn of(machine: &Machine<'_>) -> Option<Self> {
        let text = machine.output(&["multipath", "-t"]).ok().or_else(|| {
            let names = machine.names(FOLDER).into_iter();
            let more = names.filter(|name| name.ends_with(".conf"));
            let files = std::iter::once(FILE.into()).chain(more.map(|n| format!("{FOLDER}/{n}")));
            let texts: Vec<String> = files.filter_map(|file| machine.text(file)).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        });
        text.map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut found = BTreeMap::new();
        let mut sections: Vec<&str> = Vec::new();
        for line in text.lines() {
            let line = line.split(['#', '!']).next().unwrap_or_default().trim();
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim();
            if key.is_empty() {
                continue;
            }
            if key == "}" {
                sections.pop();
            } else if value.ends_with('{') || key.ends_with('{') {
                sections.push(key.trim_end_matches('{'));
            } else if let [section] = sections[..] {
                let value = value.trim_matches('"').to_string();
                found.insert((section.to_string(), key.to_string()), value);
            }
        }
        Self(found)
    }

    fn get(&self, key: &str) -> Option<&str> {
        let of = |section: &str| self.0.get(&(section.to_string(), key.to_string()));
        of("overrides")
            .or_else(|| of("defaults"))
            .map(String::as_str)
    }

    pub fn queueing(&self) -> Queueing {
        let interval = self
            .get("polling_interval")
            .and_then(|text| text.parse().ok())
            .unwrap_or(5);
        match self.get("no_path_retry") {
            Some("queue") => Queueing::Forever,
            Some(text) => match text.parse::<u32>() {
                Ok(checks) if checks > 0 => Queueing::Seconds(checks.saturating_mul(interval)),
                _ => Queueing::Fail,
            },
            None => Queueing::Fail,
        }
    }
}

/// Returns the targets with several files or sessions, each with the number.
pub fn several(machine: &Machine<'_>) -> BTreeMap<(String, String), usize> {
    let files = boot::files(machine.sysfs).into_iter();
    let keys = files.filter_map(|(_, target)| target.ok()?.key().ok());
    let mut of_files: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (id_ext, ioc_guid, _) in keys {
        *of_files.entry((id_ext, ioc_guid)).or_default() += 1;
    }
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for session in Session::hosts(machine.sysfs) {
        *found.entry((session.id_ext, session.ioc_guid)).or_default() += 1;
    }
    for (key, number) in of_files {
        let before = found.entry(key).or_default();
        *before = number.max(*before);
    }
    found.retain(|_, number| *number > 1);
    found
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let several = several(machine);
    let Some((_, paths)) = several.first_key_value() else {
        return report.ok("no target has several paths");
    };
    let Some(settings) = Settings::of(machine) else {
        let what = format!("a target has {paths} paths, and there is no multipath-tools");
        return report.warning(
            what,
            "apt install multipath-tools; see Multipath in README.md",
        );
    };
    let state = machine.unit_state("multipathd.service");
    if state.is_ok_and(|state| state != "active") {
        let what = format!("a target has {paths} paths, and multipathd does not run");
        report.error(what, "systemctl enable --now multipathd");
    }
    let before = report.findings.len();
    match settings.get("find_multipaths") {
        Some("yes" | "on" | "smart" | "greedy" | "no" | "off") => {}
        other => report.warning(
            format!(
                "find_multipaths is {}: new disks with two paths get no map",
                other.unwrap_or("strict, the default")
            ),
            format!("find_multipaths yes in defaults of {FILE}; systemctl restart multipathd"),
        ),
    }
    match settings.queueing() {
        Queueing::Fail => report.warning(
            "no_path_retry is 0 or fail: I/O fails at once when the last path is lost",
            format!("no_path_retry 12 in overrides of {FILE}; systemctl restart multipathd"),
        ),
        Queueing::Forever => report.warning(
            "no_path_retry is queue: without a path I/O waits for ever, also at shutdown",
            format!("no_path_retry 12 in overrides of {FILE}; systemctl restart multipathd"),
        ),
        Queueing::Seconds(_) => {}
    }
    let program = machine.output(&["multipath", "-t"]).is_ok();
    for key in ["fast_io_fail_tmo", "dev_loss_tmo"] {
        // The program prints its own default of fast_io_fail_tmo.
        if settings
            .get(key)
            .is_some_and(|value| !program || value != "5")
        {
            report.note(
                format!("{key} of multipath has no effect on SRP in Debian's multipath-tools"),
                format!("{key} = SECONDS in /etc/srp/targets.d, or options ib_srp in modprobe.d"),
            );
        }
    }
    if report.findings.len() == before {
        report.ok(format!("multipath is set up for {paths} paths"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    const GOOD: &str = "defaults {\n\tfind_multipaths \"yes\" # as README says\n\
        \tpolling_interval 10\n}\ndevices {\n\tdevice {\n\t\tno_path_retry queue\n\t}\n}\n\
        overrides {\n        no_path_retry 12\n}\n";

    fn two_paths() -> Made {
        let made = Made::new();
        made.target("a", "");
        made.target("b", "initiator_ext = \"1\"\n");
        made
    }

    #[test]
    fn one_path_needs_no_multipath() {
        let made = Made::new();
        made.target("a", "");
        assert_eq!(made.bad(check), [""; 0]);
        made.session(3, &[]);
        made.session(4, &[]);
        assert!(made.bad(check)[0].starts_with("warning: a target has 2 paths, and there is no"));
    }

    #[test]
    fn settings_are_read_by_section() {
        let settings = Settings::parse(GOOD);
        assert_eq!(settings.queueing(), Queueing::Seconds(120));
        assert_eq!(settings.get("find_multipaths"), Some("yes"));
        let both = GOOD.replace("polling_interval 10", "no_path_retry fail");
        assert_eq!(Settings::parse(&both).queueing(), Queueing::Seconds(60));
        let queueing = |text: &str| Settings::parse(text).queueing();
        assert_eq!(
            queueing("defaults {\nno_path_retry queue\n}"),
            Queueing::Forever
        );
        assert_eq!(
            queueing("defaults {\nno_path_retry fail\n}"),
            Queueing::Fail
        );
        assert_eq!(queueing("defaults {\n}"), Queueing::Fail);
    }

    #[test]
    fn what_does_not_fit_several_paths_is_told() {
        let mut made = two_paths();
        made.put(FILE, GOOD);
        assert_eq!(made.bad(check), [""; 0]);
        // A file of conf.d counts, and the program's output takes precedence over all files.
        made.put(
            "/etc/multipath/conf.d/x.conf",
            "overrides {\nno_path_retry fail\n}\n",
        );
        assert!(made.bad(check)[0].starts_with("warning: no_path_retry is 0 or fail"));
        made.says(
            "multipath -t",
            "defaults {\nno_path_retry \"queue\"\ndev_loss_tmo 60\n}\n",
        );
        let bad = made.bad(check);
        assert_eq!(bad.len(), 3);
        assert!(bad[0].starts_with("warning: find_multipaths is strict, the default"));
        assert!(bad[1].starts_with("warning: no_path_retry is queue"));
        assert!(bad[2].starts_with("note: dev_loss_tmo of multipath has no effect on SRP"));
        made.says("multipath -t", GOOD);
        made.says(
            "systemctl show -p ActiveState --value multipathd.service",
            "inactive\n",
        );
        assert!(made.bad(check)[0].starts_with("error: a target has 2 paths, and multipathd does"));
    }
}
