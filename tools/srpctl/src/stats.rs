// SPDX-License-Identifier: GPL-2.0

//! `srpctl stats`.

use crate::{
    boot,
    cli::{Format, Stats},
    error::Result,
    list, out,
    session::Session,
    statistics::Statistics,
    sysfs::{self, Sysfs},
    target::Target,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The counters of one session.
#[derive(Serialize)]
struct Counters {
    host: u32,
    id_ext: String,
    ioc_guid: String,
    device: String,
    port: u32,
    target: Option<String>,
    running: bool,
    channels: u32,
    requested_channels: Option<u32>,
    statistics: Statistics,
}

/// The number of sessions with each target of targets.d.
type Targets = BTreeMap<String, usize>;

/// Prints the counters of all sessions.
pub fn run(sysfs: &Sysfs, args: &Stats) -> Result {
    let sessions = Session::hosts(sysfs);
    let all = counters(sysfs, &sessions);
    match args.format {
        Format::Json => return list::json(&all),
        Format::Prometheus => {
            let targets = targets(sysfs, &sessions);
            out::write(format_args!("{}", prometheus(&all, &targets)));
        }
    }
    Ok(())
}

fn counters(sysfs: &Sysfs, sessions: &[Session]) -> Vec<Counters> {
    let all = sessions.iter().map(|session| Counters {
        host: session.host,
        id_ext: session.id_ext.clone(),
        ioc_guid: session.ioc_guid.clone(),
        device: session.device.clone(),
        port: session.port,
        target: session.target.clone(),
        running: session.is_connected(),
        channels: session.channels,
        requested_channels: sysfs::number(session.folder(sysfs).join("requested_ch_count")),
        statistics: Statistics::of(sysfs, session.host),
    });
    all.collect()
}

fn targets(sysfs: &Sysfs, sessions: &[Session]) -> Targets {
    // With `onboot = false`, a target without a session is as it should be.
    let is_manual = |target: &Result<Target>| target.as_ref().is_ok_and(|target| target.manual);
    let files = boot::files(sysfs).into_iter();
    let names = files
        .filter(|(_, target)| !is_manual(target))
        .map(|(name, _)| name);
    let count = |name: String| {
        let found = Session::named(sysfs, sessions.to_vec(), &name);
        (name, found.map_or(0, |found| found.len()))
    };
    // A name that cannot be a target's is no label.
    let valid = names.filter(|name| Target::path(sysfs, name).is_ok());
    valid.map(count).collect()
}

/// Formats the counters in the Prometheus text format, version 0.0.4.
fn prometheus(all: &[Counters], targets: &Targets) -> String {
    let labels = |counters: &Counters| {
        let pairs = [
            ("host", counters.host.to_string()),
            ("id_ext", counters.id_ext.clone()),
            ("ioc_guid", counters.ioc_guid.clone()),
            ("device", counters.device.clone()),
            ("port", counters.port.to_string()),
            ("target", counters.target.clone().unwrap_or_default()),
        ];
        // No value can contain a quote or a backslash.
        pairs
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .join(",")
    };
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, u64)>| {
        text += &format!("# HELP srp_{name} {help}\n# TYPE srp_{name} {kind}\n");
        for (labels, value) in values {
            text += &format!("srp_{name}{{{labels}}} {value}\n");
        }
    };
    let sessions = targets.iter();
    let sessions = sessions.map(|(name, count)| (format!("target=\"{name}\""), *count as u64));
    family(
        "target_sessions",
        "gauge",
        "Sessions with this target of /etc/srp/targets.d.",
        sessions.collect(),
    );
    let running = all
        .iter()
        .map(|counters| (labels(counters), counters.running.into()));
    family(
        "running",
        "gauge",
        "Whether the session is connected.",
        running.collect(),
    );
    let channels = all
        .iter()
        .map(|counters| (labels(counters), counters.channels.into()));
    family(
        "channels",
        "gauge",
        "Channels that are connected.",
        channels.collect(),
    );
    let requested = all
        .iter()
        .filter_map(|counters| Some((labels(counters), counters.requested_channels?.into())));
    family(
        "requested_channels",
        "gauge",
        "Channels that the login asked for.",
        requested.collect(),
    );
    let names: BTreeSet<&String> = all
        .iter()
        .flat_map(|counters| counters.statistics.0.keys())
        .collect();
    let help: BTreeMap<&str, &str> = HELP.into();
    for name in names {
        let mut values = Vec::new();
        for counters in all {
            let Some(numbers) = counters.statistics.0.get(name) else {
                continue;
            };
            for (channel, value) in numbers.iter().enumerate() {
                let channel = if numbers.len() > 1 || OF_CHANNEL.contains(&name.as_str()) {
                    format!(",channel=\"{channel}\"")
                } else {
                    String::new()
                };
                values.push((labels(counters) + &channel, *value));
            }
        }
        let help = help
            .get(name.as_str())
            .copied()
            .unwrap_or("See abi.md of the driver.");
        family(&format!("{name}_total"), "counter", help, values);
    }
    text
}

/// Counters with one value per channel.
const OF_CHANNEL: [&str; 9] = [
    "commands",
    "read_bytes",
    "write_bytes",
    "way_none",
    "way_immediate",
    "way_static",
    "way_dynamic",
    "credit_waits",
    "busy",
];

/// Help texts of the counters.
const HELP: [(&str, &str); 15] = [
    ("commands", "Commands that the target has answered."),
    ("read_bytes", "Bytes read."),
    ("write_bytes", "Bytes written."),
    ("way_none", "Commands without data."),
    ("way_immediate", "Commands whose data is in the message."),
    (
        "way_static",
        "Commands whose data goes through memory registered once per connection.",
    ),
    (
        "way_dynamic",
        "Commands whose memory is registered for each command.",
    ),
    (
        "credit_waits",
        "Times that a command waited for a credit of the target.",
    ),
    ("busy", "Commands that the block layer was told to retry."),
    ("connections_lost", "Connections lost."),
    ("login_tries", "Login and reconnect attempts."),
    ("aborts", "Commands aborted."),
    ("device_resets", "Resets of logical units."),
    ("host_resets", "Resets of the whole session."),
    (
        "violations",
        "Connections lost because the target violated the protocol.",
    ),
];

/// Returns the metrics of a session with all counters.
#[cfg(test)]
pub fn example() -> String {
    let counters = HELP.map(|(name, _)| (name.to_string(), vec![1]));
    let all = [Counters {
        host: 7,
        id_ext: String::new(),
        ioc_guid: String::new(),
        device: String::new(),
        port: 1,
        target: None,
        running: true,
        channels: 1,
        requested_channels: Some(1),
        statistics: Statistics(counters.into()),
    }];
    prometheus(&all, &[("disk1".into(), 1)].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schema, session::tests::machine};

    #[test]
    fn a_session_without_channels_is_not_connected() {
        let mut session = Session {
            state: "running".into(),
            channels: 2,
            ..Session::default()
        };
        assert!(session.is_connected());
        session.channels = 0;
        assert!(!session.is_connected());
        session = Session {
            state: "fail-fast".into(),
            channels: 2,
            ..session
        };
        assert!(!session.is_connected());
    }

    #[test]
    fn prometheus_reads_it() {
        let all = [Counters {
            host: 7,
            id_ext: "0x1".into(),
            ioc_guid: "0x2".into(),
            device: "rxe0".into(),
            port: 1,
            target: None,
            running: true,
            channels: 1,
            requested_channels: Some(2),
            statistics: Statistics(
                [("commands".into(), vec![5, 6]), ("aborts".into(), vec![1])].into(),
            ),
        }];
        let targets = [("disk1".into(), 0)].into();
        let labels =
            "host=\"7\",id_ext=\"0x1\",ioc_guid=\"0x2\",device=\"rxe0\",port=\"1\",target=\"\"";
        let expected = format!(
            "# HELP srp_target_sessions Sessions with this target of /etc/srp/targets.d.\n\
             # TYPE srp_target_sessions gauge\nsrp_target_sessions{{target=\"disk1\"}} 0\n\
             # HELP srp_running Whether the session is connected.\n\
             # TYPE srp_running gauge\nsrp_running{{{labels}}} 1\n\
             # HELP srp_channels Channels that are connected.\n\
             # TYPE srp_channels gauge\nsrp_channels{{{labels}}} 1\n\
             # HELP srp_requested_channels Channels that the login asked for.\n\
             # TYPE srp_requested_channels gauge\nsrp_requested_channels{{{labels}}} 2\n\
             # HELP srp_aborts_total Commands aborted.\n# TYPE srp_aborts_total counter\nsrp_aborts_total{{{labels}}} 1\n\
             # HELP srp_commands_total Commands that the target has answered.\n# TYPE srp_commands_total counter\n\
             srp_commands_total{{{labels},channel=\"0\"}} 5\nsrp_commands_total{{{labels},channel=\"1\"}} 6\n"
        );
        assert_eq!(prometheus(&all, &targets), expected);
    }

    #[test]
    fn a_target_without_a_session_counts() {
        let folder = machine();
        let sysfs = Sysfs::below(folder.path());
        let file = |name: &str| folder.path().join("etc/srp/targets.d").join(name);
        std::fs::write(file("away.conf"), "id_ext = \"9\"\nioc_guid = \"2\"\n").unwrap();
        std::fs::write(file("a \"b.conf"), "").unwrap();
        let expected: Targets = [("away".into(), 0), ("one".into(), 1)].into();
        let sessions = Session::hosts(&sysfs);
        assert_eq!(targets(&sysfs, &sessions), expected);
    }

    #[test]
    fn json_has_its_schema() {
        let folder = machine();
        let counters_of = folder.path().join("sys/class/scsi_host/host9/statistics");
        std::fs::create_dir(&counters_of).unwrap();
        std::fs::write(counters_of.join("busy"), "3 4\n").unwrap();
        let sysfs = Sysfs::below(folder.path());
        let all = counters(&sysfs, &Session::hosts(&sysfs));
        assert_eq!(all[0].statistics.sum("busy"), 7);
        schema::check("stats", &all);
    }
}
