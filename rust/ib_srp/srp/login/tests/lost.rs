// SPDX-License-Identifier: GPL-2.0

//! Connections that the target ends, or on which it violates the protocol.

use super::{
    check_failure,
    failure, //
};
use crate::{
    errno::ECONNRESET,
    rdma::{
        ib_cm::tests::target::{
            Answer,
            Asked,
            Script,
            Target, //
        },
        tests::{
            check,
            check_eq,
            log::Log,
            peer::within,
            soft::Soft, //
        },
    },
    srp::{
        error::LoginFailure,
        ktime::real_seconds,
        logic::state::Life,
        tests::{
            messages::Empty,
            stand::Stand, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

pub(super) fn lost_by_the_target(soft: &Soft) -> Result {
    let target = Target::new(&soft.device, Empty::new()?)?;
    let stand = Stand::new(soft)?;
    let session = stand.log_in(&target, "")?.map_err(|why| why.errno())?;
    // Before the confirmation the target has no connection to end.
    target.has_heard(|heard| &heard.confirmed, 1)?;
    check!(session.last_error().is_none());
    let statistics = &session.status().statistics;
    let counted = || {
        (
            statistics.login_tries.get(),
            statistics.connections_lost.get(),
        )
    };
    check_eq!(counted(), (1, 0));
    let log = Log::from_now();
    let before = real_seconds();
    target.disconnect(0)?;
    target.has_heard(|heard| &heard.released, 1)?;
    // The session reconnects at once, so the loss may be over before the test sees it.
    target.has_heard(|heard| &heard.confirmed, 2)?;
    within(|| session.status().state().life == Life::Live && !session.status().state().is_lost())?;
    check_eq!(
        log.count("connection lost: connection event: disconnected"),
        1
    );
    check_eq!(counted(), (2, 1));
    // The logout is neither counted nor logged as a loss.
    stand.end(&session);
    check_eq!(counted(), (2, 1));
    check_eq!(statistics.violations.get(), 0);
    check_eq!(log.count("connection lost"), 1);
    let (when, what) = session.last_error().ok_or(EINVAL)?;
    check!(before <= when && when <= real_seconds());
    let words = CString::try_from_fmt(fmt!("{}", format_args!("{what}")))?;
    check!(words.to_bytes() == b"connection lost: connection event: disconnected");
    Ok(())
}

/// A target that changes its responses before they are sent, and may shorten them.
struct Changed(Arc<Empty>, fn(&mut [u8], usize) -> usize);

impl Script for Changed {
    fn asked(&self, number: usize, request: &Asked) -> Answer {
        self.0.asked(number, request)
    }

    fn told(&self, message: &[u8], reply: &mut [u8]) -> usize {
        match self.0.told(message, reply) {
            0 => 0,
            len => self.1(reply, len),
        }
    }
}

pub(super) fn lost_while_it_scans(soft: &Soft) -> Result {
    let violation = "connection lost: protocol violation: ";
    let cases: [(fn(&mut [u8], usize) -> usize, &str); 8] = [
        (
            |reply, _| {
                reply.fill(0);
                (reply[0], reply[7]) = (0x80, 1);
                16
            },
            "connection lost: logged out by the target: inactive channel (1)",
        ),
        // Opcode of a login response; undefined opcode; single byte; truncated response.
        (
            |reply, len| {
                reply[0] = 0xc0;
                len
            },
            violation,
        ),
        (
            |reply, len| {
                reply[0] = 0x55;
                len
            },
            violation,
        ),
        (|_, _| 1, violation),
        (|_, _| 35, violation),
        // A tag that no command can have, and one with another generation.
        (
            |reply, len| {
                reply[8..16].fill(0xff);
                len
            },
            "connection lost: protocol violation: tag 0xffffffffffffffff is not outstanding",
        ),
        (
            |reply, len| {
                reply[8] ^= 1;
                len
            },
            "connection lost: protocol violation: tag 0x",
        ),
        (
            |reply, len| {
                reply[4] = 0x7f;
                len
            },
            "connection lost: protocol violation: credit change 2130706433 out of range",
        ),
    ];
    for (change, line) in cases {
        let log = Log::from_now();
        let script = Changed(Empty::new()?, change);
        let (why, target) = failure(soft, script, "", ECONNRESET)?;
        check_failure!(why, LoginFailure::Disconnected);
        // One line for each of the three logins.
        check_eq!(log.count(line), 3);
        check_eq!(log.count("connection lost: "), 3);
        target.has_heard(|heard| &heard.disconnected, 3)?;
    }
    Ok(())
}
