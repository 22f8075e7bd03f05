// SPDX-License-Identifier: GPL-2.0

//! The deadlines of a session. One timer of the session, the tick, serves all of them.

use super::{
    super::{
        time::Ktime,
        watch::{
            Policy,
            Watch, //
        }, //
    },
    Life,
    Recovery, //
};

/// Interval at which polled channels are polled for requests without a poller, in milliseconds.
const POLL_MS: u32 = 20;

/// The actions that are due.
#[must_use]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Due {
    /// A port event: the network may be back, so an attempt begins at once.
    pub reconnect: bool,
    /// A port event: the path to the target may have moved, so the connection is tested.
    pub moved: bool,
    /// The channels are checked.
    pub look: Option<Policy>,
    /// A removal has begun: the disks are unblocked.
    pub unblock: bool,
    /// A round of the removal ends, see [`Recovery::removal_round`].
    pub removal: bool,
    /// The credits are checked.
    pub credits: bool,
    /// The polled channels are polled.
    pub poll: bool,
}

/// The deadlines of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deadlines {
    test: Option<Ktime>,
    /// The action of the test at its deadline.
    policy: Policy,
    pub(super) credits: Option<Ktime>,
    pub(super) poll: Option<Ktime>,
    event: Option<Ktime>,
    /// The path to the target may have changed since the last event.
    moved: bool,
    unblock: Option<Ktime>,
    removal: Option<Ktime>,
    /// Length of a round of the removal, in milliseconds.
    round_ms: u32,
    /// Upper bound on the time until the midlayer has ended a command, in milliseconds, if known.
    limit_ms: Option<u32>,
    /// The commands of the session during its removal.
    commands: Watch,
}

/// Whether `deadline` has passed. Clears it if so.
fn fires(deadline: &mut Option<Ktime>, now: Ktime) -> bool {
    deadline.take_if(|deadline| *deadline <= now).is_some()
}

impl Deadlines {
    /// Ends a test, and the checks of idle channels.
    pub(super) const fn end_test(&mut self) {
        self.policy = Policy::Idle;
        self.test = None;
    }

    /// The removal begins. A round takes half of `patience` milliseconds. `ended` is the number of
    /// commands that have ended. No other test runs from now on: its probes would mix with those of
    /// the removal.
    pub(super) const fn remove(&mut self, now: Ktime, patience: u32, ended: i32) {
        self.end_test();
        self.event = None;
        self.unblock = Some(now);
        self.round_ms = patience / 2;
        self.removal = Some(now.add_ms(self.round_ms));
        self.commands = Watch::new(ended);
    }

    /// The disks are gone.
    pub(super) const fn end_removal(&mut self) {
        self.unblock = None;
        self.removal = None;
    }

    /// Schedules the next check of idle channels in `keep_alive` milliseconds, none if that is 0.
    const fn keep(&mut self, now: Ktime, keep_alive: u32) {
        self.end_test();
        if keep_alive > 0 {
            self.test = Some(now.add_ms(keep_alive));
        }
    }
}

impl Recovery {
    /// Sets the deadlines of a connection that is now in use. `keep_alive` is the parameter in
    /// milliseconds, 0 for none. `polled`: there are polled channels, which are polled until the
    /// connection is down.
    pub const fn watch(&mut self, now: Ktime, keep_alive: u32, polled: bool) {
        let keep_alive = match self.state.is_lost() || self.state.is_ending() {
            true => 0,
            false => keep_alive,
        };
        self.deadlines.keep(now, keep_alive);
        if polled && !self.state.is_down() {
            self.deadlines.poll = Some(now.add_ms(POLL_MS));
        }
    }

    /// Requests a test of the connection. `due`: whether a probe is outstanding, which a test in
    /// progress waits for. `None` starts the test in any case, and gives the probe the full time
    /// again.
    pub fn test(&mut self, now: Ktime, due: Option<bool>) {
        let begins = due.is_none_or(|due| self.deadlines.policy.begins_anew(due));
        if begins && !self.state.is_ending() && !self.state.is_lost() {
            self.deadlines.policy = Policy::Ask;
            self.deadlines.test = Some(now);
        }
    }

    /// A port event. `moved`: the path to the target may have changed.
    /// [`Backoff::event`](super::Backoff::event) sets the delay, unless an earlier event is due.
    /// Ignored unless the session waits to reconnect or has a path to test.
    pub fn port_event(&mut self, now: Ktime, moved: bool) {
        let moved = match self.state.life {
            Life::Recovering => false,
            Life::Live if moved => true,
            _ => return,
        };
        let event = now.add_ms(self.backoff.event(now, self.state.is_lost()));
        self.deadlines.moved |= moved;
        self.deadlines.event = Some(self.deadlines.event.map_or(event, |due| due.min(event)));
    }

    /// A command was refused for lack of a credit. The credits are checked every `round`
    /// milliseconds, until no command waits or the connection is lost.
    pub const fn credit_missing(&mut self, now: Ktime, round: u32) {
        if !self.state.starving && !self.state.is_lost() {
            self.state.starving = true;
            self.deadlines.credits = Some(now.add_ms(round));
        }
    }

    /// Sets the time in milliseconds in which the midlayer ends every command.
    pub const fn limit_removal(&mut self, limit: u32) {
        self.deadlines.limit_ms = Some(limit);
    }

    /// A round of the removal ends. `ended` is the number of commands that have ended, modulo 2^32.
    pub fn removal_round(&mut self, ended: i32) -> Policy {
        let all = &mut self.deadlines;
        let limit = all.limit_ms.and_then(|ms| ms.checked_div(all.round_ms));
        Policy::Removal {
            rounds: all.commands.round(ended),
            limit: limit.unwrap_or(u32::MAX),
        }
    }

    /// Handles the tick. Returns the actions that are due, and sets the next deadlines.
    /// `keep_alive` is as for [`Self::watch`].
    pub fn tick(&mut self, now: Ktime, keep_alive: u32) -> Due {
        let all = &mut self.deadlines;
        let mut due = Due {
            unblock: fires(&mut all.unblock, now),
            removal: fires(&mut all.removal, now),
            credits: fires(&mut all.credits, now),
            poll: fires(&mut all.poll, now),
            ..Due::default()
        };
        if fires(&mut all.event, now) {
            due.reconnect = matches!(self.state.life, Life::Recovering);
            due.moved = all.moved && matches!(self.state.life, Life::Live);
            all.moved = false;
        }
        if due.removal {
            all.removal = Some(now.add_ms(all.round_ms));
        }
        if due.credits {
            // A command that is refused from here on counts in a round of its own.
            self.state.starving = false;
        }
        if due.poll {
            all.poll = Some(now.add_ms(POLL_MS));
        }
        if fires(&mut all.test, now) {
            due.look = Some(all.policy);
            match all.policy.next() {
                (policy, Some(delay)) => {
                    all.policy = policy;
                    all.test = Some(now.add_ms(delay));
                }
                (_, None) => all.keep(now, keep_alive),
            }
        }
        due
    }

    /// Milliseconds until the next deadline, rounded up; `None` if there is none.
    pub fn next_tick(&self, now: Ktime) -> Option<u32> {
        let d = &self.deadlines;
        let all = [d.test, d.credits, d.poll, d.event, d.unblock, d.removal];
        let next = all.into_iter().flatten().min()?;
        let ms = next.ms_since(now);
        Some(ms.saturating_add(u32::from(now.add_ms(ms) < next)))
    }
}
