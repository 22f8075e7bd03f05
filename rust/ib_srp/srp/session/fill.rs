// SPDX-License-Identifier: GPL-2.0

//! Adds the channels that a login has left out, and the answer channels, which no reconnect sets
//! up. The pauses are those of [`Fill`](crate::srp::logic::backoff::Fill).

use super::{
    reconnect::Connect,
    Session, //
};
use crate::srp::{
    channels::Channels,
    connect::Purpose,
    error::Lost,
    ktime::ktime_get,
    log::session_log,
    logic::{
        state::Life,
        time::LOGIN_TIMEOUT_MS, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

impl Session {
    /// Starts to add the channels that a new connection lacks. `again`: the session had a
    /// connection earlier.
    pub(super) fn begin_fill(self: &Arc<Self>, again: bool) {
        let (Some(channels), _) = self.parts() else {
            return;
        };
        if channels.missing() > 0 {
            let left_out = channels.iter().any(|c| !c.is_open());
            self.fill_in(self.on(|recovery| recovery.fill().begin(ktime_get(), left_out, again)));
        }
    }

    /// Schedules the next attempt to add channels in `delay` milliseconds. Any context.
    fn fill_in(self: &Arc<Self>, delay: Msecs) {
        let recovery = self.recovery.lock();
        // The same work item reconnects a session that has lost its connection.
        if recovery.state().life == Life::Live {
            let _ = Connect::hurry(self.clone(), delay);
        }
    }

    /// Answer channel `number` is lost; without `why`, the session's connection is lost with it.
    pub(super) fn count_flap(&self, number: usize, why: Option<&Lost>) {
        if self.state().is_lost() || self.state().is_ending() {
            return;
        }
        self.on(|recovery| recovery.fill().flap(ktime_get()));
        let Some(from) = self.nexus.plan.answers_from.get(number) else {
            return;
        };
        let from = &from.destination;
        // The pauses limit the rate of these log lines.
        match why {
            None => session_log!(
                Warning,
                self,
                "the answer channel to {} is lost",
                fmt!("{from}")
            ),
            Some(why) => session_log!(
                Warning,
                self,
                "no answer channel to {}: {}",
                fmt!("{from}"),
                format_args!("{why}")
            ),
        }
    }

    /// Attempts to add the channels that are missing.
    pub(super) fn add_missing(self: &Arc<Self>, channels: &Channels) {
        let before = channels.missing();
        if before == 0 || self.state().is_lost() {
            return;
        }
        let flapping = self.on(|recovery| recovery.fill().is_flapping(ktime_get()));
        let result = self
            .log_in(Purpose::More, LOGIN_TIMEOUT_MS)
            .and_then(|login| login.more(channels, !flapping));
        let left = channels.missing();
        if self.state().is_lost() {
            return;
        }
        if left < before {
            let all = channels.len() + channels.answer_channels().len();
            session_log!(Info, self, "{} of {all} channels connected", all - left);
        }
        if left == 0 {
            return;
        }
        let (delay, longer) = self.on(|recovery| recovery.fill().failed());
        if let (Err(why), true, true) = (result, longer, left == before) {
            // Only while the pause grows. At its maximum, a full target would cause a line each
            // minute.
            session_log!(
                Warning,
                self,
                "{left} channels still missing: {}",
                format_args!("{why}")
            );
        }
        self.fill_in(delay);
    }
}
