// SPDX-License-Identifier: GPL-2.0

//! The targets of /etc/srp/targets.d: the session, or why there is none.
//!
//! Without `--ask` no connect request is sent: a target writes each to its log. A running session
//! shows that the target can be reached. Without a session, this module reads the reason of the
//! last login from the kernel log, and looks up the route and the neighbour.

use super::{ask::ask, machine::Machine, port::Port, Report};
use crate::{
    boot,
    kernel_log::{self, Line},
    page::Page,
    session::Session,
    target::{End, Target, FOLDER},
    unit::unit,
};
use serde::Deserialize;
use std::cell::LazyCell;

#[derive(Deserialize)]
struct Route {
    gateway: Option<String>,
    dev: String,
}

#[derive(Deserialize)]
struct Neighbour {
    #[serde(default)]
    state: Vec<String>,
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let files = match boot::all(machine.sysfs) {
        Ok(files) => files,
        Err(error) => return report.error(error.to_string(), format!("ls -ld {FOLDER}")),
    };
    if files.is_empty() {
        return report.ok(format!("there is no file in {FOLDER}"));
    }
    let sessions = Session::hosts(machine.sysfs);
    let page = Page::new();
    let run = |command: &[&str]| machine.bytes(command);
    let log = LazyCell::new(|| kernel_log::lines_by(machine.sysfs, run));
    for (name, target) in files {
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                report.error(error.to_string(), format!("$EDITOR {FOLDER}/{name}.conf"));
                continue;
            }
        };
        let found = Session::named(machine.sysfs, sessions.clone(), &name).unwrap_or_default();
        for session in &found {
            logged_in(machine, &name, session, &page, report);
        }
        if found.is_empty() {
            logged_out(machine, &name, &target, log.as_deref(), &page, report);
        }
    }
}

/// Returns what the page advises about a line.
fn advice(page: &Page, line: &str) -> Option<String> {
    page.find(line)?.advice.clone()
}

fn logged_in(
    machine: &Machine<'_>,
    name: &str,
    session: &Session,
    page: &Page,
    report: &mut Report,
) {
    let host = session.name();
    let channels = session.channels;
    let folder = format!("/sys/class/scsi_host/{host}");
    let requested = machine.text(format!("{folder}/requested_ch_count"));
    let requested = requested
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(channels);
    // Without timeouts the class stays `running`.
    if session.state != "running" || channels == 0 {
        let last = session.last_error();
        let last = last.map_or("the reason is not known", |(_, why)| why);
        let todo = advice(page, last).unwrap_or_else(|| format!("srpctl show {host}"));
        let state = if session.state == "running" {
            "without a channel"
        } else {
            &session.state
        };
        report.error(format!("{name}: {host} is {state}: {last}"), todo);
    } else if channels < requested {
        report.warning(
            format!("{name}: {host} has {channels} of {requested} channels"),
            "journalctl -k -g 'channels (connected|still missing)' | srpctl explain",
        );
    } else {
        report.ok(format!(
            "{name}: logged in as {host}, {channels} channels, {}",
            session.address
        ));
    }
}

/// Returns the end of the last message in the kernel log about a failed login at the target.
fn last_failure(log: &[Line], target: &Target) -> Option<String> {
    let id = kernel_log::id(target)?;
    let of_target = |line: &Line| Some(line.text.split_once(&id)?.1.to_string());
    let last = log.iter().rev().find_map(of_target);
    last.filter(|said| said.contains(" failed: "))
}

fn logged_out(
    machine: &Machine<'_>,
    name: &str,
    target: &Target,
    log: Option<&[Line]>,
    page: &Page,
    report: &mut Report,
) {
    let connect = format!("srpctl connect {name}");
    let state = machine.unit_state(&unit(name));
    match log.map(|log| last_failure(log, target)) {
        Some(Some(said)) => {
            let todo = advice(page, &said).unwrap_or_else(|| connect.clone());
            report.error(format!("{name} is not logged in: {said}"), todo);
        }
        // Stopped by `srpctl disconnect`, or never started.
        Some(None) if state.is_ok_and(|state| state == "inactive") => {
            report.warning(
                format!("{name} is not logged in, and its unit is stopped"),
                connect,
            );
        }
        Some(None) => report.error(
            format!("{name} is not logged in, and the kernel log has no reason"),
            connect,
        ),
        None => report.error(
            format!("{name} is not logged in; the kernel log cannot be read"),
            format!("srpctl doctor, as root; {connect}"),
        ),
    }
    if let Some((what, todo)) = no_port(machine, target) {
        return report.error(format!("{name}: {what}"), todo);
    }
    let all = match target.resolved(&|host| machine.addresses(host)) {
        Ok(all) => all,
        Err(why) => {
            let (host, _) = target.host().unwrap_or_default();
            return report.error(format!("{name}: {why}"), format!("getent ahosts {host}"));
        }
    };
    for one in all {
        let Ok(Some((src, dest))) = one.ends() else {
            continue;
        };
        match path(machine, target, src.as_ref(), &dest) {
            Err((what, todo)) => report.error(format!("{name}: {what}"), todo),
            Ok(()) => report.ok(format!(
                "{name}: route and neighbour of {} are there",
                dest.ip
            )),
        }
        if machine.asks {
            ask(machine, name, src.as_ref(), &dest, page, report);
        }
    }
}

/// Returns what to say if the machine does not have the port that the file names.
fn no_port(machine: &Machine<'_>, target: &Target) -> Option<(String, String)> {
    let device = target.device.as_ref()?;
    let ports = Port::all(machine);
    if ports.iter().any(|port| port.is_of(machine, target)) {
        return None;
    }
    let number = target.port.map_or(String::new(), |port| format!("/{port}"));
    let names: Vec<String> = ports.iter().map(Port::name).collect();
    let available = match names.is_empty() {
        true => "none".to_string(),
        false => names.join(", "),
    };
    Some((
        format!("no RDMA port {device}{number}; available: {available}"),
        "rdma link; device and port in the file".to_string(),
    ))
}

/// Checks the route and the neighbour, from what the kernel knows. Returns what is wrong, and what
/// to type.
fn path(
    machine: &Machine<'_>,
    target: &Target,
    src: Option<&End>,
    dest: &End,
) -> Result<(), (String, String)> {
    let ports = Port::all(machine);
    let to = dest.ip.to_string();
    let device = ports.iter().find(|port| port.is_of(machine, target));
    let from = src.map(|src| src.ip.to_string());
    let oif = dest
        .scope
        .clone()
        .or_else(|| device?.netdevs.first().cloned());
    let mut command = vec!["ip", "-j", "route", "get", &to];
    if let Some(from) = &from {
        command.extend(["from", from]);
    } else if let Some(oif) = &oif {
        command.extend(["oif", oif]);
    }
    let routes = machine.json::<Vec<Route>>(&command);
    let typed = command.join(" ").replace(" -j", "");
    let route = routes.map_err(|why| (format!("no route to {to}: {why}"), typed.clone()))?;
    let Some(Route { gateway, dev }) = route.first() else {
        return Err((format!("no route to {to}"), typed));
    };
    if !ports.iter().any(|port| port.netdevs.contains(dev)) {
        let what = format!("the route to {to} leads through {dev}, which has no RDMA port");
        return Err((
            what,
            format!("ip route; rdma link; or src = \"ADDRESS\" in {FOLDER}"),
        ));
    }
    let next = gateway.as_ref().unwrap_or(&to);
    let known: Vec<Neighbour> = machine
        .json(&["ip", "-j", "neigh", "show", "to", next, "dev", dev])
        .unwrap_or_default();
    let ping = format!("ping -c 3 -I {dev} {to}");
    match known.first().map(|neighbour| neighbour.state.join(" ")) {
        Some(state) if state.contains("FAILED") || state.contains("INCOMPLETE") => Err((
            format!("{next} does not answer on {dev}: neighbour {state}"),
            ping,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{machine::tests::Made, port::tests::rxe};

    const STATE: &str = "systemctl show -p ActiveState --value srp-connect@disk1.service";
    const ROUTE: &str = "ip -j route get 192.0.2.1";
    const NEIGHBOUR: &str = "ip -j neigh show to 192.0.2.1 dev eth1";
    const ID: &str = "00:00:00:00:00:00:00:01:00:00:00:00:00:00:00:02";

    /// Puts lines into the journal.
    fn logs(made: &mut Made, lines: &[&str]) {
        made.put("/run/systemd/journal/socket", "");
        let entry = |line| format!("{{\"MESSAGE\":\"{line}\",\"__REALTIME_TIMESTAMP\":\"1\"}}\n");
        let text: String = lines.iter().map(entry).collect();
        made.says(&kernel_log::JOURNAL.join(" "), &text);
    }

    fn machine() -> Made {
        let mut made = rxe();
        made.target("disk1", "");
        made.says(ROUTE, r#"[{"dst":"192.0.2.1","dev":"eth1"}]"#);
        made.says(NEIGHBOUR, r#"[{"dst":"192.0.2.1","state":["REACHABLE"]}]"#);
        logs(&mut made, &["usb 1-1: new device"]);
        made.says(STATE, "activating\n");
        made
    }

    #[test]
    fn a_session_shows_that_the_target_is_there() {
        let made = machine();
        made.session(9, &[("requested_ch_count", "4")]);
        assert_eq!(made.bad(check), [""; 0]);
        made.session(9, &[("requested_ch_count", "8")]);
        assert!(made.bad(check)[0].starts_with("warning: disk1: host9 has 4 of 8 channels"));
        let last = "1767225600 connection lost: connection event: disconnected";
        made.session(9, &[("ch_count", "0"), ("last_error", last)]);
        let bad = made.bad(check);
        assert!(bad[0].starts_with("error: disk1: host9 is without a channel: connection"));
        assert!(bad[0].ends_with(" -> check its log for a disabled, unloaded or restarted target"));
        made.put("/sys/class/srp_remote_ports/port-9:1/state", "blocked\n");
        assert!(made.bad(check)[0].starts_with("error: disk1: host9 is blocked: connection lost"));
    }

    #[test]
    fn the_last_reject_is_told_with_what_to_type() {
        let mut made = machine();
        let line = format!(
            "ib_srp: rxe0:1 target {ID}: login at 192.0.2.1:5555 failed: connection rejected: \
             invalid service ID (reason 8); check that the target listens"
        );
        let other = line
            .replace(":02: login", ":03: login")
            .replace("service ID", "GID");
        logs(&mut made, &[&line, &other]);
        let bad = made.bad(check);
        assert_eq!(bad.len(), 1);
        let what = "error: disk1 is not logged in: login at 192.0.2.1:5555 failed: connection \
            rejected: invalid service ID (reason 8)";
        assert!(bad[0].starts_with(what), "{bad:?}");
        assert!(bad[0].contains(" -> LIO: check `rdma_cm_port`"), "{bad:?}");
        // It logged in afterwards.
        let later = format!("scsi host3: ib_srp: rxe0:1 target {ID}: logged in at x");
        logs(&mut made, &[&line, &later]);
        assert!(made.bad(check)[0].starts_with("error: disk1 is not logged in, and the kernel"));
        made.says(STATE, "inactive\n");
        made.lacks(&kernel_log::JOURNAL.join(" "));
        let bad = made.bad(check);
        assert!(bad[0].starts_with("error: disk1 is not logged in; the kernel log cannot be read"));
        made.put("/dev/kmsg", "6,1,1,-;usb 1-1: new device\n");
        let bad = made.bad(check);
        assert_eq!(
            bad,
            ["warning: disk1 is not logged in, and its unit is stopped -> srpctl connect disk1"]
        );
    }

    #[test]
    fn each_address_of_a_host_name_is_looked_up() {
        let mut made = machine();
        made.put(
            "/etc/srp/targets.d/disk1.conf",
            "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"storage:5555\"\n",
        );
        let of_path = |made: &Made| {
            let found = made.check(check).into_iter().skip(1);
            found.map(|one| one.what).collect::<Vec<_>>()
        };
        made.fails("getent ahosts storage", "");
        assert_eq!(
            of_path(&made),
            ["disk1: the host name storage in dest has no address"]
        );
        made.hangs("getent ahosts storage");
        let late = "disk1: the host name storage in dest: getent has not ended within 20 s";
        assert_eq!(of_path(&made), [late]);
        made.says(
            "getent ahosts storage",
            "192.0.2.1 STREAM\n2001:db8::1 RAW\n",
        );
        made.fails("ip -j route get 2001:db8::1", "unreachable");
        assert_eq!(
            of_path(&made),
            [
                "disk1: route and neighbour of 192.0.2.1 are there",
                "disk1: no route to 2001:db8::1: ip: unreachable"
            ]
        );
    }

    #[test]
    fn the_path_is_looked_up() {
        let mut made = machine();
        let of_path = |made: &Made| made.bad(check).pop().unwrap();
        made.says(NEIGHBOUR, r#"[{"dst":"192.0.2.1","state":["FAILED"]}]"#);
        assert_eq!(
            of_path(&made),
            "error: disk1: 192.0.2.1 does not answer on eth1: neighbour FAILED -> ping -c 3 -I \
             eth1 192.0.2.1"
        );
        made.says(
            ROUTE,
            r#"[{"dst":"192.0.2.1","gateway":"192.0.2.9","dev":"eth1"}]"#,
        );
        assert!(of_path(&made).starts_with("error: disk1 is not logged in"));
        made.says(ROUTE, r#"[{"dst":"192.0.2.1","dev":"eth0"}]"#);
        let start = "error: disk1: the route to 192.0.2.1 leads through eth0, which has no RDMA";
        assert!(of_path(&made).starts_with(start));
        made.fails(ROUTE, "RTNETLINK answers: Network is unreachable");
        assert!(of_path(&made).starts_with("error: disk1: no route to 192.0.2.1: ip: RTNETLINK"));
        // The port of the file is taken.
        made.target("disk1", "device = \"rxe0\"\n");
        made.says(&format!("{ROUTE} oif eth1"), r#"[{"dev":"eth1"}]"#);
        assert!(of_path(&made).starts_with("error: disk1: 192.0.2.1 does not answer on eth1"));
        for device in ["device = \"mlx5_9\"", "device = \"rxe0\"\nport = 2"] {
            made.target("disk1", &format!("{device}\n"));
            let said = of_path(&made);
            let found = said.starts_with("error: disk1: no RDMA port ")
                && said.contains("available: rxe0/1 ->");
            assert!(found, "{said}");
        }
        made.target("disk1", "queue_sise = 1\n");
        let bad = of_path(&made);
        let what = "disk1.conf:4: no such option: queue_sise -> $EDITOR /etc/srp";
        assert!(bad.contains(what), "{bad}");
    }
}
