// SPDX-License-Identifier: GPL-2.0

//! `srpctl doctor --ask`: whether the connection manager of a target answers.
//!
//! The connect request is that of rping(1). Its private data is zero, or on iWARP empty: as a login
//! it asks for messages of no bytes, less than SRP's 64, so a target rejects it before it looks at
//! identifiers or sessions.

use super::{machine::Machine, Report};
use crate::{
    page::Page,
    program::Failure,
    target::{End, FOLDER},
};

/// Reasons for a rejected connect request, in the words of the driver's log.
const REASONS: [(i32, &str); 9] = [
    (-113, "host unreachable"),
    (-111, "connection refused"),
    (-110, "timed out"),
    (1, "no QP"),
    (3, "no resources"),
    (4, "timeout"),
    (8, "invalid service ID"),
    (10, "stale connection"),
    (27, "insufficient responder resources"),
];
/// Reasons with which a target rejects a request that is no login: `IB_CM_REJ_CONSUMER_DEFINED`,
/// and on iWARP `ECONNRESET`.
const BY_TARGET: [i32; 2] = [28, -104];

/// Asks for the address `dest`, and reports the answer.
pub fn ask(
    machine: &Machine<'_>,
    name: &str,
    src: Option<&End>,
    dest: &End,
    page: &Page,
    report: &mut Report,
) {
    let Some(port) = dest.port.map(|port| port.to_string()) else {
        return;
    };
    let text = |end: &End| match &end.scope {
        Some(scope) => format!("{}%{scope}", end.ip),
        None => end.ip.to_string(),
    };
    let (to, from) = (text(dest), src.map(text));
    let mut command = vec!["rping", "-c", "-C", "1", "-a", &to, "-p", &port];
    command.extend(from.iter().flat_map(|from| ["-I", from]));
    let at = format!("{name}: {to} port {port}");
    let typed = command.join(" ");
    let said = match machine.output(&command) {
        Ok(_) => {
            let what = format!("{at} accepts a request that is no login: it is not an SRP target");
            return report.error(what, format!("$EDITOR {FOLDER}/{name}.conf: dest"));
        }
        Err(Failure::Missing(_)) => {
            let what = format!("{name}: the target is not asked: rping is not installed");
            return report.note(what, "apt install rdmacm-utils");
        }
        Err(Failure::Late(..)) => {
            let what = format!("{at}: the connection manager does not answer a connect request");
            let todo = "check that the host is up, and for a firewall that drops UDP 4791 (RoCE)";
            return report.error(what, todo);
        }
        Err(Failure::Failed(_, said)) => said,
    };
    match event(&said) {
        Some(("REJECTED", number)) if BY_TARGET.contains(&number) => report.ok(format!(
            "{at}: the target answers, and rejects a request that is no login"
        )),
        Some(("REJECTED", number)) => {
            let known = REASONS.iter().find(|(reason, _)| *reason == number);
            let why = known.map_or("unknown reason", |(_, why)| why);
            let line = format!("connection rejected: {why} (reason {number})");
            let todo = page.find(&line).and_then(|entry| entry.advice.clone());
            report.error(format!("{at}: {line}"), todo.unwrap_or(typed));
        }
        Some((event, number)) => {
            let (event, ping) = (event.to_lowercase(), format!("ping -c 3 {to}"));
            report.error(format!("{at}: {event} (error {number})"), ping);
        }
        None => report.note(
            format!("{at}: the answer is not known: rping: {said}"),
            typed,
        ),
    }
}

/// Returns the event that ended a connect request and its number, from what rping says.
fn event(said: &str) -> Option<(&str, i32)> {
    let mut lines = said.lines();
    let rest = lines.find_map(|line| line.strip_prefix("cma event RDMA_CM_EVENT_"))?;
    let (event, number) = rest.split_once(", error ")?;
    Some((event, number.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{machine::tests::Made, targets::check};

    const RPING: &str = "rping -c -C 1 -a 192.0.2.1 -p 5555";

    /// Returns the findings about the answer to the request.
    fn answer(made: &Made) -> Vec<String> {
        let is_of_it = |one: &String| one.contains("port 5555") || one.contains("not asked");
        let found = made.check(check).into_iter();
        let found = found.map(|one| {
            format!("{}: {}", one.level, one.what) + " -> " + &one.todo.unwrap_or_default()
        });
        found.filter(is_of_it).collect()
    }

    fn rejected(number: i32) -> String {
        format!("cma event RDMA_CM_EVENT_REJECTED, error {number}\nwait for CONNECTED state 4\n")
    }

    #[test]
    fn no_target_is_asked_without_the_option() {
        let mut made = Made::new();
        made.target("disk1", "");
        made.fails(RPING, &rejected(8));
        assert_eq!(answer(&made), [""; 0]);
        made.asks = true;
        assert_eq!(answer(&made).len(), 1);
        // A session shows that the target is there.
        made.session(9, &[]);
        assert_eq!(answer(&made), [""; 0]);
    }

    #[test]
    fn the_answer_is_told_in_words() {
        let mut made = Made::new();
        made.asks = true;
        made.target("disk1", "");
        let at = "disk1: 192.0.2.1 port 5555";
        for number in BY_TARGET {
            made.fails(RPING, &rejected(number));
            let ok = "the target answers, and rejects a request that is no login";
            assert_eq!(answer(&made), [format!("ok: {at}: {ok} -> ")]);
        }
        made.fails(RPING, &rejected(8));
        let said = answer(&made).pop().unwrap();
        let start =
            format!("error: {at}: connection rejected: invalid service ID (reason 8) -> LIO: ");
        assert!(said.starts_with(&start), "{said}");
        made.fails(RPING, &rejected(77));
        let said = answer(&made).pop().unwrap();
        assert!(
            said.contains("unknown reason (reason 77) -> see the target"),
            "{said}"
        );
        made.fails(
            RPING,
            "cma event RDMA_CM_EVENT_ADDR_ERROR, error -110\nwaiting\n",
        );
        let gone = format!("error: {at}: addr_error (error -110) -> ping -c 3 192.0.2.1");
        assert_eq!(answer(&made), [gone]);
        made.hangs(RPING);
        let said = answer(&made).pop().unwrap();
        assert!(
            said.contains("does not answer a connect request -> check that the host"),
            "{said}"
        );
        made.says(RPING, "");
        let accepts = "accepts a request that is no login: it is not an SRP target";
        assert!(answer(&made)[0].contains(accepts));
        made.fails(RPING, "rdma_create_event_channel: No such device");
        assert!(
            answer(&made)[0].starts_with(&format!("note: {at}: the answer is not known: rping: "))
        );
    }

    #[test]
    fn the_local_address_and_the_interface_are_taken() {
        let mut made = Made::new();
        made.asks = true;
        made.put(
            "/etc/srp/targets.d/disk1.conf",
            "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"[fe80::1%eth1]:5555\"\n\
             src = \"[fe80::2%eth1]\"\n",
        );
        made.fails(
            "rping -c -C 1 -a fe80::1%eth1 -p 5555 -I fe80::2%eth1",
            &rejected(28),
        );
        assert!(
            answer(&made)[0].starts_with("ok: disk1: fe80::1%eth1 port 5555: the target answers")
        );
    }

    #[test]
    fn without_the_program_it_says_how_to_get_it() {
        let mut made = Made::new();
        made.asks = true;
        made.target("disk1", "");
        let missing = "note: disk1: the target is not asked: rping is not installed -> \
                       apt install rdmacm-utils";
        assert_eq!(answer(&made), [missing]);
    }
}
