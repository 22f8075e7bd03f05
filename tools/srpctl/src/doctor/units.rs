// SPDX-License-Identifier: GPL-2.0

//! systemd's units of the targets.

use super::{machine::Machine, Report};
use crate::{boot, target::FOLDER, unit};
use std::collections::BTreeMap;

const LIST: [&str; 8] = [
    "systemctl",
    "list-units",
    "--all",
    "--plain",
    "--no-legend",
    "--full",
    "srp-*.service",
    "srp-*.timer",
];
const TIMER: &str = "srp-restore.timer";

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let text = match machine.output(&LIST) {
        Ok(text) => text,
        Err(why) => {
            return report.note(
                format!("the units are not known: {why}"),
                "srpctl connect NAME at each boot, without systemd",
            )
        }
    };
    // UNIT LOAD ACTIVE SUB DESCRIPTION; a failed one may have a dot in front.
    let units: BTreeMap<&str, (&str, &str)> = text
        .lines()
        .filter_map(|line| {
            let is_word = |word: &&str| word.starts_with(char::is_alphabetic);
            let mut words = line.split_whitespace().filter(is_word);
            Some((words.next()?, (words.nth(1)?, words.next()?)))
        })
        .collect();
    let before = report.findings.len();
    for (unit, (active, _)) in &units {
        if *active == "failed" {
            report.error(
                format!("{unit} has failed"),
                format!("journalctl -b -u {unit} | srpctl explain; then systemctl restart {unit}"),
            );
        }
    }
    let files = boot::files(machine.sysfs);
    for (name, target) in &files {
        let unit = unit::unit(name);
        let manual = target.as_ref().is_ok_and(|target| target.manual);
        match units.get(unit.as_str()) {
            None if !manual => report.error(
                format!("{FOLDER}/{name}.conf has no unit: no login at boot"),
                format!("systemctl daemon-reload && systemctl start {unit}"),
            ),
            Some(("active", _)) if manual => report.warning(
                format!("{unit} runs, and its file has onboot = false: no login at the next boot"),
                format!("systemctl stop {unit}; or srpctl edit {name}"),
            ),
            Some(("inactive", _)) if !manual => report.note(
                format!("{unit} is stopped: no login again until the next boot"),
                format!("systemctl start {unit}"),
            ),
            _ => {}
        }
    }
    let mut runs = false;
    for (unit, (active, _)) in &units {
        let Some(name) = unit::targets(unit).pop() else {
            continue;
        };
        runs |= *active == "active";
        if *active == "active" && files.iter().all(|(file, _)| file != name) {
            report.warning(
                format!("{unit} runs without a file: no login at the next boot"),
                format!("systemctl stop {unit}; or write {FOLDER}/{name}.conf"),
            );
        }
    }
    if runs
        && units
            .get(TIMER)
            .is_none_or(|(active, _)| *active != "active")
    {
        report.error(
            format!("{TIMER} does not run: a session that is gone does not come back"),
            format!("systemctl daemon-reload && systemctl start {TIMER}"),
        );
    }
    if report.findings.len() == before {
        report.ok(format!(
            "no unit has failed, and each of {} files has its unit",
            files.len()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    const GOOD: &str = "srp-connect@disk1.service loaded active exited SRP target disk1\n\
        srp-restore.service loaded inactive dead Log in again\n\
        srp-restore.timer loaded active waiting Look for SRP targets\n";

    fn machine(units: &str) -> Made {
        let mut made = Made::new();
        made.target("disk1", "");
        made.target("manual", "onboot = false\n");
        made.says(&LIST.join(" "), units);
        made
    }

    #[test]
    fn each_file_has_a_unit() {
        assert_eq!(machine(GOOD).bad(check), [""; 0]);
        assert_eq!(
            machine("").bad(check),
            [
                "error: /etc/srp/targets.d/disk1.conf has no unit: no login at boot -> systemctl \
              daemon-reload && systemctl start srp-connect@disk1.service"
            ]
        );
        let made = machine(&GOOD.replace("disk1", "disk2"));
        let bad = made.bad(check);
        assert!(bad[1].starts_with("warning: srp-connect@disk2.service runs without a file"));
        let more = GOOD.replace("disk1", "manual") + GOOD;
        let bad = machine(&more).bad(check);
        assert_eq!(bad.len(), 1);
        assert!(bad[0].starts_with("warning: srp-connect@manual.service runs, and its file"));
        assert!(Made::new().bad(check)[0].starts_with("note: the units are not known"));
    }

    #[test]
    fn a_failed_or_stopped_unit_is_told() {
        let failed = "\u{25cf} ".to_string() + &GOOD.replace("active exited", "failed failed");
        assert_eq!(
            machine(&failed).bad(check),
            [
                "error: srp-connect@disk1.service has failed -> journalctl -b -u \
              srp-connect@disk1.service | srpctl explain; then systemctl restart \
              srp-connect@disk1.service"
            ]
        );
        let stopped = GOOD.replace("active exited", "inactive dead");
        assert!(machine(&stopped).bad(check)[0].starts_with("note: srp-connect@disk1.service is"));
        let no_timer = GOOD.replace("active waiting", "inactive dead");
        assert!(machine(&no_timer).bad(check)[0].starts_with("error: srp-restore.timer does not"));
    }
}
