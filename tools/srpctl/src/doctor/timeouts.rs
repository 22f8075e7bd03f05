// SPDX-License-Identifier: GPL-2.0

//! Timeouts that contradict each other: those of the session, of multipath and of systemd.

use super::{
    machine::Machine,
    multipath::{self, Queueing, Settings},
    Report,
};
use crate::{
    boot,
    disconnect::PATIENCE,
    target::{Target, FOLDER},
    timeouts::Timeouts,
    unit::unit,
};

const PROPERTIES: &str = "TimeoutStartUSec,TimeoutStopUSec,ExecStart";
/// The longest step of a login.
const STEP: u64 = 30;

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let before = report.findings.len();
    let parameters = "/sys/module/ib_srp/parameters";
    if machine.text(format!("{parameters}/keep_alive")).as_deref() == Some("0") {
        report.warning(
            "keep_alive is 0: the loss of an idle connection is not noticed",
            format!("echo 5 > {parameters}/keep_alive; the same in /etc/modprobe.d"),
        );
    }
    let several = multipath::several(machine);
    let queueing = Settings::of(machine).map(|settings| settings.queueing());
    let module = Timeouts::of_module(machine.sysfs);
    for (name, target) in boot::files(machine.sysfs) {
        // The check of targets reports a file that cannot be read.
        let Ok(target) = target else {
            continue;
        };
        let key = target.key().map(|(id_ext, ioc_guid, _)| (id_ext, ioc_guid));
        let has_several = key.is_ok_and(|key| several.contains_key(&key));
        let queueing = queueing.filter(|_| has_several);
        match module.with(&target.timeouts) {
            Ok(all) => session(&name, &target, all.seconds(), has_several, queueing, report),
            Err(error) => report.error(
                format!("{name}: with the parameters of ib_srp, {error}"),
                format!("$EDITOR {FOLDER}/{name}.conf; or change {parameters}"),
            ),
        }
        // A target with `onboot = false` has no unit.
        if !target.manual {
            of_unit(machine, &unit(&name), report);
        }
    }
    if report.findings.len() == before {
        report.ok("no timeout contradicts another");
    }
}

/// Checks the timeouts of a session.
fn session(
    name: &str,
    target: &Target,
    [delay, fast, loss]: [Option<u32>; 3],
    several: bool,
    queueing: Option<Queueing>,
    report: &mut Report,
) {
    let file = format!("{FOLDER}/{name}.conf");
    let set = |line: &str| format!("{line} in {file}, then srpctl connect {name}");
    match (delay, loss) {
        (None, None) => report.error(
            format!("{name}: reconnect_delay and dev_loss_tmo are off: a lost session stays lost"),
            set("reconnect_delay = 10"),
        ),
        (None, Some(loss)) => report.warning(
            format!("{name}: reconnect_delay is off: a lost session is back only after {loss} s"),
            set("reconnect_delay = 10"),
        ),
        _ => {}
    }
    match (fast, several) {
        (None, true) => report.warning(
            format!("{name}: fast_io_fail_tmo is off: I/O does not move to the other path"),
            set("fast_io_fail_tmo = 5"),
        ),
        (Some(fast), false) if target.initramfs => report.warning(
            format!("{name}: I/O of the root file system fails {fast} s after a loss"),
            set("fast_io_fail_tmo = \"off\""),
        ),
        _ => {}
    }
    if let (Some(Queueing::Seconds(queued)), Some(loss), Some(fast)) = (queueing, loss, fast) {
        let end = fast.saturating_add(queued);
        if loss < end {
            report.warning(
                format!(
                    "{name}: dev_loss_tmo ({loss} s) removes the disks while multipath queues \
                     ({end} s after the loss)"
                ),
                set(&format!("dev_loss_tmo = {}", end.saturating_mul(2))),
            );
        }
    }
}

/// Checks the timeouts of a target's unit.
fn of_unit(machine: &Machine<'_>, unit: &str, report: &mut Report) {
    let Ok(text) = machine.output(&["systemctl", "show", "-p", PROPERTIES, unit]) else {
        return;
    };
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let limit = |key: &str| value(key).and_then(seconds);
    let edit = |line: &str| format!("systemctl edit {unit}: [Service] {line}");
    let mut words = value("ExecStart").unwrap_or_default().split_whitespace();
    let retry = words
        .find(|word| *word == "--retry")
        .and_then(|_| words.next()?.parse().ok());
    let login = retry.unwrap_or(0_u64).saturating_add(2 * STEP);
    if let Some(start) = limit("TimeoutStartUSec").filter(|start| *start < login) {
        report.warning(
            format!("{unit}: TimeoutStartSec ({start} s) is less than a login takes, {login} s"),
            edit("TimeoutStartSec=300"),
        );
    }
    let logout = PATIENCE.as_secs();
    if let Some(stop) = limit("TimeoutStopUSec").filter(|stop| *stop < logout) {
        report.warning(
            format!("{unit}: TimeoutStopSec ({stop} s) is less than a logout takes, {logout} s"),
            edit("TimeoutStopSec=90"),
        );
    }
}

/// Parses a time of systemd, such as `1min 30s`. Returns `None` for `infinity`.
fn seconds(text: &str) -> Option<u64> {
    let units = [
        ("min", 60),
        ("ms", 0),
        ("us", 0),
        ("h", 3600),
        ("d", 86_400),
        ("s", 1),
    ];
    let parts = text.split_whitespace().map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = part.split_at(digits);
        let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
        number
            .split('.')
            .next()?
            .parse::<u64>()
            .ok()?
            .checked_mul(*factor)
    });
    parts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    const PARAMETERS: &str = "/sys/module/ib_srp/parameters";

    #[test]
    fn a_session_that_does_not_come_back_is_an_error() {
        let made = Made::new();
        made.target("disk1", "");
        assert_eq!(made.bad(check), [""; 0]);
        made.put(&format!("{PARAMETERS}/keep_alive"), "0\n");
        assert!(made.bad(check)[0].starts_with("warning: keep_alive is 0"));
        made.remove(PARAMETERS);
        made.target("disk1", "reconnect_delay = \"off\"\n");
        assert_eq!(
            made.bad(check),
            ["warning: disk1: reconnect_delay is off: a lost session is back only after 600 s -> \
              reconnect_delay = 10 in /etc/srp/targets.d/disk1.conf, then srpctl connect disk1"]
        );
        made.target(
            "disk1",
            "reconnect_delay = \"off\"\ndev_loss_tmo = \"off\"\n",
        );
        assert!(made.bad(check)[0].starts_with("error: disk1: reconnect_delay and dev_loss"));
        // The file alone is valid.
        made.target("disk1", "fast_io_fail_tmo = 60\n");
        made.put(&format!("{PARAMETERS}/dev_loss_tmo"), "30\n");
        let bad = made.bad(check);
        let start = "error: disk1: with the parameters of ib_srp, fast_io_fail_tmo (60) must";
        assert!(bad[0].starts_with(start), "{bad:?}");
    }

    #[test]
    fn paths_and_queueing_count() {
        let mut made = Made::new();
        made.target("root", "initramfs = true\n");
        assert!(made.bad(check)[0].starts_with("warning: root: I/O of the root file system fails"));
        made.remove("/etc/srp/targets.d/root.conf");
        made.target("a", "fast_io_fail_tmo = \"off\"\n");
        assert_eq!(made.bad(check), [""; 0]);
        made.target("b", "initiator_ext = \"1\"\ndev_loss_tmo = 60\n");
        made.says("multipath -t", "overrides {\nno_path_retry 12\n}\n");
        let bad = made.bad(check);
        assert_eq!(bad.len(), 2);
        assert!(bad[0].starts_with("warning: a: fast_io_fail_tmo is off"));
        assert!(bad[1].starts_with("warning: b: dev_loss_tmo (60 s) removes the disks while"));
        assert!(bad[1].contains("-> dev_loss_tmo = 150 in"));
        made.target("b", "initiator_ext = \"1\"\ndev_loss_tmo = 75\n");
        assert_eq!(made.bad(check).len(), 1);
    }

    #[test]
    fn systemd_does_not_end_a_login() {
        let mut made = Made::new();
        made.target("a", "");
        let says = |made: &mut Made, start: &str, stop: &str| {
            let argv = "/usr/sbin/srpctl connect --unit --retry 60 a";
            let times = format!("TimeoutStartUSec={start}\nTimeoutStopUSec={stop}\n");
            let text = format!("{times}ExecStart={{ argv[]={argv} ; }}\n");
            made.says(
                &format!("systemctl show -p {PROPERTIES} srp-connect@a.service"),
                &text,
            );
        };
        says(&mut made, "5min", "1min 30s");
        assert_eq!(made.bad(check), [""; 0]);
        says(&mut made, "infinity", "infinity");
        assert_eq!(made.bad(check), [""; 0]);
        says(&mut made, "1min 30s", "10s");
        let bad = made.bad(check);
        assert_eq!(bad.len(), 2);
        assert!(bad[0].contains("TimeoutStartSec (90 s) is less than a login takes, 120 s"));
        assert!(bad[1].ends_with("edit srp-connect@a.service: [Service] TimeoutStopSec=90"));
        made.target("a", "initramfs = true\nfast_io_fail_tmo = \"off\"\n");
        assert_eq!(made.bad(check), bad);
        made.target("a", "onboot = false\n");
        assert_eq!(made.bad(check), [""; 0]);
    }
}
