// SPDX-License-Identifier: GPL-2.0

//! `srpctl explain`.

use crate::{
    cli::Explain,
    error::{Error, Result},
    list::json,
    out::say,
    page::{Entry, Page},
};
use serde::Serialize;
use std::io::{stdin, Read};

/// Longest part of a line that an error shows.
const SHOWN: usize = 160;

/// What is known about a line of the log.
#[derive(Debug, Serialize)]
struct Explained<'a> {
    line: &'a str,
    /// Title of the section of docs/troubleshooting.md.
    section: &'a str,
    means: &'a str,
    /// What to do, unless `means` says it.
    todo: Option<&'a str>,
}

/// Explains the line of the command line, or each line of standard input.
pub fn run(args: &Explain) -> Result {
    let text = match args.line.is_empty() {
        false => args.line.join(" "),
        true => read(stdin())?,
    };
    let page = Page::new();
    let (found, unknown) = explain(&page, &text);
    if args.json {
        json(&found)?;
    } else {
        let texts: Vec<String> = found.iter().map(text_of).collect();
        if !texts.is_empty() {
            say!("{}", texts.join("\n\n"));
        }
    }
    match unknown[..] {
        [] => Ok(()),
        [line, ..] => Err(Error::NotFound(format!(
            "{} of {} lines have no explanation; the first: {}",
            unknown.len(),
            lines(&text).count(),
            shown(line)
        ))),
    }
}

/// Returns the lines of a log, which may have bytes of other encodings.
fn read(mut input: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    let read = input.read_to_end(&mut bytes);
    read.map_err(|e| Error::io("standard input", e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the begin of a line that may be long.
fn shown(line: &str) -> String {
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown += "...";
    }
    shown
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Returns an explanation for each entry that a line leads to, and the lines without an entry.
fn explain<'a>(page: &'a Page, text: &'a str) -> (Vec<Explained<'a>>, Vec<&'a str>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let mut told: Vec<&Entry> = Vec::new();
    for line in lines(text) {
        match page.find(line) {
            None => unknown.push(line),
            // A log repeats itself.
            Some(entry) if told.contains(&entry) => {}
            Some(entry) => {
                told.push(entry);
                found.push(Explained {
                    line,
                    section: &entry.section,
                    means: &entry.means,
                    todo: entry.advice.as_deref(),
                });
            }
        }
    }
    (found, unknown)
}

fn text_of(explained: &Explained<'_>) -> String {
    let Explained {
        line,
        section,
        means,
        todo,
    } = explained;
    match todo {
        Some(todo) => format!("{line}\n  {section}\n  it means: {means}\n  what to do: {todo}"),
        None => format!("{line}\n  {section}\n  {}", means.replace('\n', "\n  ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use nix::time::{clock_gettime, ClockId};
    use std::time::Duration;

    const LINES: &str = include_str!("../../../userspace-tests/kernel-lines.tsv");

    /// Begins of ordinary lines that the page explains, and of lines that the tests write.
    const OURS: [&str; 8] = [
        "ib_srp: ",
        "BUG: KCSAN: ",
        "scsi ",
        "sd ",
        "I/O error",
        "Buffer I/O error",
        "srp-test",
        "guest-test",
    ];

    #[test]
    fn the_kernels_lines_are_explained() {
        let page = Page::new();
        let mut reports = 0;
        for row in LINES.lines().filter(|row| !row.starts_with('#')) {
            match row.split('\t').collect::<Vec<_>>()[..] {
                [_, _, line] => {
                    let found = page.find(line);
                    assert!(
                        found.is_some_and(|e| e.section == "Reports of the kernel"),
                        "{line}"
                    );
                    reports += 1;
                }
                // All other lines are neither about SRP nor faults, and must have no explanation.
                _ => {
                    let ours = OURS.iter().any(|start| row.starts_with(start));
                    assert_eq!(page.find(row).is_some(), ours, "{row}");
                }
            }
        }
        assert!(reports > 70, "{reports}");
    }

    #[test]
    fn a_log_may_have_any_bytes() {
        let text = read(&b"disk \xff\nscsi host0: ib_srp: reconnected, 2 of 2 channels\n"[..]);
        let text = text.unwrap();
        let page = Page::new();
        let (found, unknown) = explain(&page, &text);
        assert_eq!((found.len(), unknown), (1, vec!["disk \u{fffd}"]));
    }

    #[test]
    fn the_error_shows_a_line_in_short() {
        assert_eq!(shown("disk 7"), "disk 7");
        let long = shown(&"é".repeat(9_000_000));
        assert_eq!(long.chars().count(), SHOWN + 3);
    }

    #[test]
    fn a_long_log_takes_moments() {
        let page = Page::new();
        let line = "Jan 01 10:00:00 n1 kernel: usb 1-1: new device number 7 using xhci_hcd\n";
        let text = line.repeat(5_000);
        let clock = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        let start = clock();
        assert_eq!(explain(&page, &text).1.len(), 5_000);
        let took = Duration::from(clock()) - Duration::from(start);
        assert!(took < Duration::from_secs(4), "{took:?}");
    }

    #[test]
    fn an_entry_is_told_once() {
        let page = Page::new();
        let text = "ib_srp: rxe0:1 target 00:01: login at 192.0.2.1:5555 failed: connection \
            rejected: invalid service ID (reason 8); check that the target listens\n\n\
            Nov 28 15:00:00 n1 srpctl[9]: srpctl: login failed: connection rejected: invalid \
            service ID (reason 8); trying again\n\
            usb 1-1: new device\n";
        let (found, unknown) = explain(&page, text);
        assert_eq!(unknown, ["usb 1-1: new device"]);
        schema::check("explain", &found);
        let [one] = &found[..] else {
            panic!("{found:?}");
        };
        let text = text_of(one);
        let told: Vec<&str> = text.lines().collect();
        assert!(told[0].ends_with("check that the target listens"));
        assert_eq!(told[1], "  The target or its host rejects the connection");
        assert_eq!(told[2], "  it means: no target listens there");
        assert!(told[3].starts_with("  what to do: LIO: check `rdma_cm_port`"));
    }

    #[test]
    fn a_paragraph_is_told_as_it_is() {
        let page = Page::new();
        let (found, _) = explain(&page, "scsi host0: ib_srp: reconnected, 2 of 2 channels");
        schema::check("explain", &found);
        assert!(text_of(&found[0]).contains("  Lines without an error\n  `logged in at ADDRESS"));
    }
}
