// SPDX-License-Identifier: GPL-2.0

//! `srpctl show`.

use crate::{
    cli::Show,
    disk,
    error::{Error, Result},
    list,
    session::Session,
    statistics::Statistics,
    sysfs::{self, Sysfs},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A session with all that its files say.
#[derive(Serialize)]
struct Details<'a> {
    #[serde(flatten)]
    session: &'a Session,
    /// The driver's files.
    driver: BTreeMap<&'static str, String>,
    /// The driver's counters.
    statistics: Statistics,
    /// The transport class's files.
    transport: BTreeMap<&'static str, String>,
}

/// Of the driver, but for those that a [`Session`] has.
const DRIVER: [&str; 12] = [
    "src",
    "dest",
    "sgid",
    "dgid",
    "orig_dgid",
    "pkey",
    "service_id",
    "req_lim",
    "zero_req_lim",
    "cmd_sg_entries",
    "comp_vector",
    "tl_retry_count",
];

/// Of the transport class.
const TRANSPORT: [&str; 4] = [
    "failed_reconnects",
    "reconnect_delay",
    "fast_io_fail_tmo",
    "dev_loss_tmo",
];

/// Prints all of one session.
pub fn run(sysfs: &Sysfs, args: &Show) -> Result {
    let sessions = Session::meant(sysfs, &args.session)?;
    if sessions.is_empty() {
        return Err(Error::NotFound(format!("{}: not logged in", args.session)));
    }
    for session in &sessions {
        let read = |folder: std::path::PathBuf, names: &[&'static str]| {
            names
                .iter()
                .filter_map(|name| Some((*name, sysfs::text(folder.join(name))?)))
                .collect::<BTreeMap<_, _>>()
        };
        let details = Details {
            session,
            driver: read(session.folder(sysfs), &DRIVER),
            statistics: Statistics::of(sysfs, session.host),
            transport: read(Session::remote_port(sysfs, session.host), &TRANSPORT),
        };
        if args.json {
            list::json(&details)?;
        } else {
            print(&details);
        }
    }
    Ok(())
}

fn print(details: &Details<'_>) {
    let session = details.session;
    println!("{}", session.name());
    let line = |name: &str, value: &str| println!("  {name:18} {value}");
    line("target", session.target.as_deref().unwrap_or("-"));
    line("id_ext", &session.id_ext);
    line("ioc_guid", &session.ioc_guid);
    line("address", &session.address);
    line("port", &session.port_name());
    line("made by", session.owner.as_deref().unwrap_or("others"));
    line("state", &session.state);
    line("channels", &session.channels.to_string());
    for (name, value) in details.driver.iter().chain(&details.transport) {
        line(name, value);
    }
    line("last error", session.last_error.as_deref().unwrap_or("-"));
    if !details.statistics.0.is_empty() {
        println!("  statistics");
    }
    for (name, numbers) in &details.statistics.0 {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        println!("    {name:18} {}", numbers.join(" "));
    }
    for disk in &session.disks {
        println!("  disk {}", disk.name);
        let line = |name: &str, value: &str| println!("    {name:16} {value}");
        line("lun", &disk.lun.to_string());
        line("size", &disk::size(disk.size));
        line("model", &disk.model);
        line("state", &disk.state);
        for (name, value) in [
            ("name", &disk.link),
            ("by-path", &disk.by_path),
            ("wwid", &disk.wwid),
            ("multipath", &disk.multipath),
        ] {
            line(name, value.as_deref().unwrap_or("-"));
        }
        line("paths", &disk.paths.join(" "));
    }
}
