// SPDX-License-Identifier: GPL-2.0

//! `srpctl stats`.

use crate::{
    cli::{Format, Stats},
    error::Result,
    list, out,
    session::Session,
    statistics::Statistics,
    sysfs::Sysfs,
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
    statistics: Statistics,
}

/// Prints the counters of all sessions.
pub fn run(sysfs: &Sysfs, args: &Stats) -> Result {
    let all: Vec<Counters> = Session::all(sysfs)
        .into_iter()
        .map(|session| Counters {
            statistics: Statistics::of(sysfs, session.host),
            running: session.is_connected(),
            host: session.host,
            id_ext: session.id_ext,
            ioc_guid: session.ioc_guid,
            device: session.device,
            port: session.port,
            target: session.target,
        })
        .collect();
    match args.format {
        Format::Json => return list::json(&all),
        Format::Prometheus => out::write(format_args!("{}", prometheus(&all))),
    }
    Ok(())
}

/// Formats the counters in the Prometheus text format, version 0.0.4.
fn prometheus(all: &[Counters]) -> String {
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
    let running = all
        .iter()
        .map(|counters| (labels(counters), counters.running.into()));
    family(
        "running",
        "gauge",
        "Whether the session is connected.",
        running.collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

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
            statistics: Statistics(
                [("commands".into(), vec![5, 6]), ("aborts".into(), vec![1])].into(),
            ),
        }];
        let labels =
            "host=\"7\",id_ext=\"0x1\",ioc_guid=\"0x2\",device=\"rxe0\",port=\"1\",target=\"\"";
        let expected = format!(
            "# HELP srp_running Whether the session is connected.\n# TYPE srp_running gauge\nsrp_running{{{labels}}} 1\n\
             # HELP srp_aborts_total Commands aborted.\n# TYPE srp_aborts_total counter\nsrp_aborts_total{{{labels}}} 1\n\
             # HELP srp_commands_total Commands that the target has answered.\n# TYPE srp_commands_total counter\n\
             srp_commands_total{{{labels},channel=\"0\"}} 5\nsrp_commands_total{{{labels},channel=\"1\"}} 6\n"
        );
        assert_eq!(prometheus(&all), expected);
    }
}
