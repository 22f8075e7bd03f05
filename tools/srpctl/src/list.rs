// SPDX-License-Identifier: GPL-2.0

//! `srpctl list`.

use crate::{
    cli::List,
    disk,
    error::{Error, Result},
    session::Session,
    sysfs::Sysfs,
};
use comfy_table::{presets::NOTHING, Table};
use serde::Serialize;

/// Prints all sessions, a line for each disk.
pub fn run(sysfs: &Sysfs, args: &List) -> Result {
    let sessions = Session::all(sysfs);
    if args.json {
        return json(&sessions);
    }
    if sessions.is_empty() {
        println!("no sessions");
        return Ok(());
    }
    println!("{}", table(&sessions));
    Ok(())
}

/// For programs.
pub fn json(what: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(what).map_err(|e| Error::Program(e.to_string()))?;
    println!("{text}");
    Ok(())
}

fn table(sessions: &[Session]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "HOST", "TARGET", "PORT", "CHANNELS", "STATE", "DISK", "NAME", "LUN", "SIZE", "MODEL", "PATHS",
    ]);
    for session in sessions {
        let target = match &session.target {
            Some(name) => name.clone(),
            None => format!("{}:{}", session.id_ext, session.ioc_guid),
        };
        let head = [
            session.name(),
            target,
            session.port_name(),
            session.channels.to_string(),
            session.state.clone(),
        ];
        if session.disks.is_empty() {
            table.add_row(head.into_iter().chain(["-".to_string()]));
            continue;
        }
        for disk in &session.disks {
            let tail = [
                disk.name.clone(),
                disk.link.clone().unwrap_or_else(|| "-".into()),
                disk.lun.to_string(),
                disk::size(disk.size),
                disk.model.clone(),
                paths(sessions, disk.wwid.as_deref()),
            ];
            table.add_row(head.clone().into_iter().chain(tail));
        }
    }
    table
}

/// How many of all these disks are paths to the same data.
fn paths(sessions: &[Session], wwid: Option<&str>) -> String {
    let all = sessions.iter().flat_map(|session| &session.disks);
    match wwid {
        Some(wwid) => all.filter(|disk| disk.wwid.as_deref() == Some(wwid)).count().to_string(),
        None => "-".into(),
    }
}
