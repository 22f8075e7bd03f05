// SPDX-License-Identifier: GPL-2.0

//! `srpctl doctor`. Each check reads files and runs programs of a [`Machine`], and changes nothing
//! on it.

mod ask;
mod firewall;
mod firmware;
mod initramfs;
mod kernel;
mod machine;
mod module;
mod multipath;
mod nft;
mod port;
mod targets;
mod timeouts;
mod units;

use crate::{
    cli::Doctor,
    error::{Error, Result},
    list::json,
    out::say,
    sysfs::Sysfs,
};
use machine::Machine;
use serde::Serialize;
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    /// Not known, or worth knowing.
    Note,
    /// May fail later, or only in some cases.
    Warning,
    /// Something that is wanted does not work.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A result of a check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    /// One line: what is wrong, or how it is.
    what: String,
    /// One line: what to type or to do. `None` if there is nothing to do.
    todo: Option<String>,
}

/// The findings of one check.
struct Report {
    check: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    fn new(check: &'static str) -> Self {
        Self {
            check,
            findings: Vec::new(),
        }
    }

    fn add(&mut self, level: Level, what: impl Into<String>, todo: Option<String>) {
        // Both are one line, also if they quote another program.
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.findings.push(Finding {
            level,
            check: self.check,
            what: line(what.into()),
            todo: todo.map(line),
        });
    }

    fn ok(&mut self, what: impl Into<String>) {
        self.add(Level::Ok, what, None);
    }

    fn note(&mut self, what: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Note, what, Some(todo.into()));
    }

    fn warning(&mut self, what: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Warning, what, Some(todo.into()));
    }

    fn error(&mut self, what: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Error, what, Some(todo.into()));
    }
}

type Check = fn(&Machine<'_>, &mut Report);

/// All checks, in the order of a login.
const CHECKS: [(&str, Check); 10] = [
    ("kernel", kernel::check),
    ("module", module::check),
    ("port", port::check),
    ("firewall", firewall::check),
    ("target", targets::check),
    ("firmware", firmware::check),
    ("timeout", timeouts::check),
    ("multipath", multipath::check),
    ("initramfs", initramfs::check),
    ("unit", units::check),
];

fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    let reports = CHECKS.iter().map(|(name, check)| {
        let mut report = Report::new(name);
        check(machine, &mut report);
        for (command, why) in machine.late() {
            report.note(format!("{why}, and is killed"), command);
        }
        report.findings
    });
    reports.flatten().collect()
}

/// Runs all checks and prints the findings. Returns an error if one of them is.
pub fn run(sysfs: &Sysfs, args: &Doctor) -> Result {
    let found = findings(&Machine::new(sysfs, args.ask));
    if args.json {
        json(&found)?;
    } else {
        for finding in &found {
            say!("{}", text(finding));
        }
    }
    let bad = |finding: &&Finding| finding.level == Level::Error;
    match found.iter().filter(bad).count() {
        0 => Ok(()),
        1 => Err(Error::Program("1 error found".into())),
        several => Err(Error::Program(format!("{several} errors found"))),
    }
}

fn text(finding: &Finding) -> String {
    let Finding {
        level,
        check,
        what,
        todo,
    } = finding;
    let mut text = format!("{level:<7} {check:<9} {what}");
    if let Some(todo) = todo {
        text += &format!("\n{:18}-> {todo}", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use machine::tests::Made;

    #[test]
    fn a_finding_is_a_line_and_what_to_type() {
        let mut report = Report::new("port");
        report.error("rxe0/1 is\nDOWN", "ip link set eth0 up");
        report.ok("rxe1/1 is ACTIVE");
        report.note("a", "b");
        report.warning("c", "d");
        schema::check("doctor", &report.findings);
        report.findings.truncate(2);
        let texts: Vec<String> = report.findings.iter().map(text).collect();
        assert_eq!(
            texts,
            [
                "error   port      rxe0/1 is DOWN\n                  -> ip link set eth0 up",
                "ok      port      rxe1/1 is ACTIVE"
            ]
        );
    }

    #[test]
    fn a_program_without_an_end_is_a_note() {
        let mut made = Made::new();
        made.hangs("modinfo ib_srp");
        let found = findings(&made.machine());
        let todo = |finding: &&Finding| finding.todo.as_deref() == Some("modinfo ib_srp");
        let finding = found.iter().find(todo).unwrap();
        assert_eq!(finding.level, Level::Note);
        assert_eq!(
            finding.what,
            "modinfo has not ended within 20 s, and is killed"
        );
    }

    #[test]
    fn an_empty_machine_has_findings_and_no_panic() {
        let made = Made::new();
        let found = findings(&made.machine());
        for (name, _) in CHECKS {
            assert!(found.iter().any(|finding| finding.check == name), "{name}");
        }
        schema::check("doctor", &found);
        let silent = |finding: &&Finding| finding.level != Level::Ok && finding.todo.is_none();
        assert_eq!(found.iter().find(silent), None);
    }
}
