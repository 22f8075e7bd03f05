// SPDX-License-Identifier: GPL-2.0

//! How a session loses its connection.

use super::Session;
use crate::{
    srp::{
        error::{
            Lost,
            Trouble, //
        },
        log::session_log,
        logic::{
            backoff::Loss,
            session::{
                Event,
                State, //
            }, //
        },
        trace, //
    },
    sys::monotonic_ns,
    trace::{
        trace,
        Text, //
    }, //
};
use kernel::sync::{
    atomic::{
        Relaxed,
        Release, //
    },
    Arc, //
};

impl Session {
    /// The connection is of no more use: ends it and the commands. A live session gets another one,
    /// any other ends.
    ///
    /// Says why in the log, once for each connection, one that is still being made too. Any context, interrupts may be off.
    pub fn fail(self: &Arc<Self>, why: Lost) {
        self.lose(Some(why));
    }

    pub(super) fn lose(self: &Arc<Self>, why: Option<Lost>) {
        let reset = matches!(why, Some(Lost::HostReset));
        let mut phase = self.phase.lock();
        phase.awaited |= reset;
        if self.lost.load(Relaxed) {
            // Whoever wants this gets a try, or what is being made if that succeeds.
            if reset {
                phase.reset = true;
                phase.backoff.hurry();
                drop(phase);
                return self.begin_reconnect();
            }
            // While another connection is made it may be that one, which nobody else would tell of.
            let news = phase.state == State::Recovering && self.is_down() && !phase.broken;
            phase.broken = true;
            drop(phase);
            match why.filter(|_| news) {
                Some(why) if why.is_strike() => self.strike(&why),
                Some(why) => self.say_lost(&why),
                None => {}
            }
            return;
        }
        self.lost.store(true, Release);
        if self.step(&mut phase, Event::Fail) && phase.state == State::Recovering {
            self.settled.store(false, Relaxed);
        }
        let now = monotonic_ns();
        let loss = match why {
            Some(why) if why.is_strike() => {
                phase.strikes.add(now);
                Loss::Violation
            }
            Some(Lost::HostReset) => Loss::Reset,
            _ => Loss::Plain,
        };
        let life = now.saturating_sub(phase.since);
        phase.backoff.lost(life, loss);
        phase.reset = reset;
        drop(phase);
        if let Some(why) = why {
            trace!(lost(trace::host(self.host_number()), &Text::new(why)));
            self.say_lost(&why);
        }
        // It is not queued: the work for the last connection was done before there was this one.
        let _ = self.queues.ending.enqueue::<Self, 0>(self.clone());
    }

    /// The target has broken the protocol on a connection that is not the session's yet: counts that, and says
    /// so. Any context.
    pub(in crate::srp) fn strike(&self, why: &Lost) {
        self.phase.lock().strikes.add(monotonic_ns());
        self.say_lost(why);
    }

    fn say_lost(&self, why: &Lost) {
        if self.leaving.load(Relaxed) {
            return;
        }
        self.statistics.connections_lost.increment();
        if matches!(why, Lost::Violation(_)) {
            self.statistics.violations.increment();
        }
        let trouble = Trouble::Lost(*why);
        self.note(trouble);
        let by_user = matches!(why, Lost::HostReset);
        let said = if by_user {
            Some(0)
        } else {
            self.phase.lock().budget.spend(monotonic_ns())
        };
        self.quiet.store(said.is_none(), Relaxed);
        match said {
            Some(0) => session_log!(Err, self, "{trouble}"),
            Some(kept) => session_log!(
                Err,
                self,
                "{trouble} ({kept} losses before it were not told)"
            ),
            None => {}
        }
    }
}
