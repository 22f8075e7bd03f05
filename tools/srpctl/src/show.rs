// SPDX-License-Identifier: GPL-2.0

//! `srpctl show`.

use crate::{
    cli::Show,
    disk,
    error::{Error, Result},
    list,
    losses::{Loss, Losses},
    out::say,
    session::Session,
    statistics::Statistics,
    sysfs::{self, Sysfs},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

/// A session with the content of all its files.
#[derive(Serialize)]
struct Details<'a> {
    #[serde(flatten)]
    session: &'a Session,
    /// Content of the driver's files, by name.
    driver: BTreeMap<&'static str, String>,
    /// Counters of the driver.
    statistics: Statistics,
    /// Content of the transport class's files, by name.
    transport: BTreeMap<&'static str, String>,
    /// Losses of the connection; `None` if the kernel log cannot be read.
    losses: Option<Vec<&'a Loss>>,
}

/// Files of the driver, except for those in a [`Session`].
const DRIVER: [&str; 17] = [
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
    "ack_timeout",
    "tos",
    "answers_from",
    "answer_channels",
    "requested_ch_count",
];

/// Files of the transport class.
const TRANSPORT: [&str; 4] = [
    "failed_reconnects",
    "reconnect_delay",
    "fast_io_fail_tmo",
    "dev_loss_tmo",
];

pub fn run(sysfs: &Sysfs, args: &Show) -> Result {
    let sessions = Session::meant(sysfs, &args.session)?;
    if sessions.is_empty() {
        return Err(Error::NotFound(format!("{}: not logged in", args.session)));
    }
    let losses = Losses::read(sysfs);
    let all = details(sysfs, &sessions, losses.as_ref());
    // Prints one document for all named sessions.
    if args.json {
        return list::json(&all);
    }
    all.iter().for_each(print);
    Ok(())
}

/// Reads the files of sessions.
fn details<'a>(
    sysfs: &Sysfs,
    sessions: &'a [Session],
    losses: Option<&'a Losses>,
) -> Vec<Details<'a>> {
    let all = sessions.iter().map(|session| {
        let read = |folder: std::path::PathBuf, names: &[&'static str]| {
            names
                .iter()
                .filter_map(|name| Some((*name, sysfs::text(folder.join(name))?)))
                .collect::<BTreeMap<_, _>>()
        };
        Details {
            session,
            driver: read(session.folder(sysfs), &DRIVER),
            statistics: Statistics::of(sysfs, session.host),
            transport: read(Session::remote_port(sysfs, session.host), &TRANSPORT),
            losses: losses.map(|losses| losses.of(session)),
        }
    });
    all.collect()
}

/// Returns the reason of the last error and how long ago it was, or what the driver shows.
fn last_error(session: &Session, now: SystemTime) -> String {
    let Some((time, why)) = session.last_error() else {
        return session.last_error.clone().unwrap_or_else(|| "-".into());
    };
    let passed = now.duration_since(time).unwrap_or_default();
    let passed = humantime::format_duration(Duration::from_secs(passed.as_secs()));
    format!("{why} ({passed} ago)")
}

fn print(details: &Details<'_>) {
    let session = details.session;
    say!("{}", session.name());
    let line = |name: &str, value: &str| say!("  {name:18} {value}");
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
    line("last error", &last_error(session, SystemTime::now()));
    if !details.statistics.0.is_empty() {
        say!("  statistics");
    }
    for (name, numbers) in &details.statistics.0 {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        say!("    {name:18} {}", numbers.join(" "));
    }
    match &details.losses {
        None => say!("  losses: the kernel log cannot be read; root may read it"),
        Some(losses) if losses.is_empty() => {}
        Some(losses) => {
            say!("  losses");
            losses.iter().for_each(|loss| say!("    {loss}"));
        }
    }
    for disk in &session.disks {
        say!("  disk {}", disk.name);
        let line = |name: &str, value: &str| say!("    {name:16} {value}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schema, session::tests::machine};
    use std::{fs, time::UNIX_EPOCH};

    #[test]
    fn two_sessions_are_one_document() {
        let root = machine();
        let sysfs = Sysfs::below(root.path());
        // Without a device the file has the sessions of both ports.
        let path = root.path().join("etc/srp/targets.d/one.conf");
        let file = fs::read_to_string(&path).unwrap();
        fs::write(&path, file.replace("device", "#device")).unwrap();
        let sessions = Session::meant(&sysfs, "one").unwrap();
        let document = serde_json::to_string(&details(&sysfs, &sessions, None)).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let hosts = document.as_array().unwrap().iter();
        let hosts: Vec<_> = hosts.map(|session| session["host"].as_u64()).collect();
        assert_eq!(hosts, [Some(9), Some(10)]);
    }

    #[test]
    fn says_how_long_ago() {
        let now = UNIX_EPOCH + Duration::from_secs(1010);
        let mut session = Session::default();
        assert_eq!(last_error(&session, now), "-");
        session.last_error = Some("1000 connection lost".into());
        assert_eq!(last_error(&session, now), "connection lost (10s ago)");
        let later = now + Duration::from_secs(3 * 86_400);
        assert_eq!(
            last_error(&session, later),
            "connection lost (3days 10s ago)"
        );
        session.last_error = Some("connection lost".into());
        assert_eq!(last_error(&session, now), "connection lost");
    }

    #[test]
    fn json_has_its_schema() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let sessions = Session::all(&sysfs);
        assert!(Losses::read(&sysfs).is_none());
        let unreadable = details(&sysfs, &sessions, None);
        assert_eq!(unreadable[0].losses, None);
        schema::check("show", &unreadable);
        // This file stands for the kernel log. A read returns all of it as one record.
        let log = "3,1,1000000,-;scsi host9: ib_srp: rxe0:1 target \
                   00:00:00:00:00:00:00:01:00:00:00:00:00:00:00:02: connection lost: x\n";
        fs::write(folder.path().join("dev/kmsg"), log).unwrap();
        fs::write(
            sysfs.path("/sys/class/scsi_host/host9/src"),
            "192.0.2.2:1\n",
        )
        .unwrap();
        let losses = Losses::read(&sysfs);
        let all = details(&sysfs, &sessions, losses.as_ref());
        let of = |n: usize| all[n].losses.as_ref().map(Vec::len);
        assert_eq!((of(0), of(1)), (Some(1), Some(0)));
        assert_eq!(all[0].driver["src"], "192.0.2.2:1");
        schema::check("show", &all);
    }
}
