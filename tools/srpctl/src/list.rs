// SPDX-License-Identifier: GPL-2.0

//! `srpctl list`.

use crate::{
    cli::List,
    disk,
    error::{Error, Result},
    out::say,
    session::Session,
    sysfs::{self, Sysfs},
};
use comfy_table::{presets::NOTHING, Table};
use serde::Serialize;

/// Prints all sessions, one line per disk.
pub fn run(sysfs: &Sysfs, args: &List) -> Result {
    let sessions = Session::all(sysfs);
    if args.json {
        return json(&sessions);
    }
    if sessions.is_empty() {
        say!("no sessions");
        return Ok(());
    }
    say!("{}", table(&sessions).trim_fmt());
    Ok(())
}

/// Prints a value as JSON.
pub fn json(what: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(what).map_err(|e| Error::Program(e.to_string()))?;
    say!("{text}");
    Ok(())
}

const HEAD: [&str; 12] = [
    "HOST", "TARGET", "ADDRESS", "PORT", "CHANNELS", "STATE", "DISK", "LUN", "SIZE", "MODEL",
    "PATHS", "BY-PATH",
];

/// Returns a table with one line per disk, and one per session without a disk.
pub fn table(sessions: &[Session]) -> Table {
    let mut lines = Vec::new();
    for session in sessions {
        let head = [
            session.name(),
            session.label(),
            session.address.clone(),
            session.port_name(),
            session.channels.to_string(),
            session.state.clone(),
        ];
        let none = || std::array::from_fn(|_| "-".to_string());
        let disks = session.disks.iter().map(|disk| {
            let by_path = disk.by_path.as_ref().map(sysfs::name);
            [
                disk.name.clone(),
                disk.lun.to_string(),
                disk::size(disk.size),
                disk.model.clone(),
                disk.paths.len().to_string(),
                by_path.unwrap_or_else(|| "-".into()),
            ]
        });
        let tails: Vec<[String; 6]> = match session.disks.is_empty() {
            true => vec![none()],
            false => disks.collect(),
        };
        lines.extend(
            tails
                .into_iter()
                .map(|tail| head.iter().cloned().chain(tail).collect::<Vec<_>>()),
        );
    }
    plain(&HEAD, lines)
}

/// Returns a table without borders.
pub fn plain(
    head: &[&str],
    lines: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(head);
    // Otherwise the table asks for each cell whether this is a terminal.
    table.force_no_tty();
    for line in lines {
        table.add_row(line);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}
