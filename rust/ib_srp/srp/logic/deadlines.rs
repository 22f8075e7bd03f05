// SPDX-License-Identifier: GPL-2.0

//! The deadlines of a session. One timer of the session, the tick, serves all of them;
//! [`Recovery`](super::recovery::Recovery) sets them with its state.

use super::{
    time::Ktime,
    watch::{
        Policy,
        Watch, //
    }, //
};

/// Interval at which polled channels are polled for requests without a poller, in milliseconds.
const POLL_MS: u32 = 20;

/// What is due.
#[must_use]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Due {
    /// A port event: the network may be back, so an attempt begins at once.
    pub reconnect: bool,
    /// A port event: the path to the target may have moved, so the connection is tested.
    pub moved: bool,
    /// A look at the channels.
    pub look: Option<Policy>,
    /// A round of the removal ends, see [`Deadlines::removal_round`].
    pub removal: bool,
    /// A look at the credits.
    pub credits: bool,
    /// A poll of the polled channels.
    pub poll: bool,
}

/// The deadlines of a session; [`Ktime::MAX`] is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadlines {
    test: Ktime,
    /// What the test does at its deadline.
    policy: Policy,
    credits: Ktime,
    poll: Ktime,
    event: Ktime,
    /// The path to the target may have changed since the last event.
    moved: bool,
    removal: Ktime,
    /// Length of a round of the removal, in milliseconds.
    round_ms: u32,
    /// Upper bound on the time until the midlayer has ended a command, in milliseconds.
    limit_ms: u32,
    /// The commands of the session during its removal.
    commands: Watch,
}

/// Whether the time of `deadline` has come; clears it then.
const fn fires(deadline: &mut Ktime, now: Ktime) -> bool {
    let fires = now.ns_since(*deadline) >= 0;
    if fires {
        *deadline = Ktime::MAX;
    }
    fires
}

impl Deadlines {
    /// Returns no deadlines.
    pub(super) const fn new() -> Self {
        Self {
            test: Ktime::MAX,
            policy: Policy::Idle,
            credits: Ktime::MAX,
            poll: Ktime::MAX,
            event: Ktime::MAX,
            moved: false,
            removal: Ktime::MAX,
            round_ms: 0,
            limit_ms: u32::MAX,
            commands: Watch::new(0),
        }
    }

    /// A connection begins. `keep_alive` is the parameter in milliseconds, 0 for none. `polled`:
    /// there are polled channels.
    pub const fn connected(&mut self, now: Ktime, keep_alive: u32, polled: bool) {
        self.keep(now, keep_alive);
        if polled {
            self.poll = now.add_ms(POLL_MS);
        }
    }

    /// The connection is lost: clears the deadlines of the test and the credits. Polling goes on
    /// until [`Self::down`].
    pub const fn lost(&mut self) {
        self.policy = Policy::Idle;
        self.test = Ktime::MAX;
        self.credits = Ktime::MAX;
    }

    /// The queue pairs are gone: polling ends.
    pub const fn down(&mut self) {
        self.poll = Ktime::MAX;
    }

    const fn keep(&mut self, now: Ktime, keep_alive: u32) {
        self.policy = Policy::Idle;
        self.test = match keep_alive {
            0 => Ktime::MAX,
            _ => now.add_ms(keep_alive),
        };
    }

    /// Starts a test of the connection. `due`: whether a probe is outstanding, which a test in
    /// progress waits for. `None` starts the test in any case, and the probe has the full time
    /// again.
    pub const fn test(&mut self, now: Ktime, due: Option<bool>) {
        let begins = match due {
            Some(due) => self.policy.begins_anew(due),
            None => true,
        };
        if begins {
            self.policy = Policy::Ask;
            self.test = now;
        }
    }

    /// A port event takes effect in `delay` milliseconds, unless an earlier one is due. `moved`:
    /// the path to the target may have changed.
    pub const fn event(&mut self, now: Ktime, delay: u32, moved: bool) {
        self.moved |= moved;
        let event = now.add_ms(delay);
        if event.ns_since(self.event) < 0 {
            self.event = event;
        }
    }

    /// A command waits for a credit. The next look is in `round` milliseconds.
    pub const fn credit_missing(&mut self, now: Ktime, round: u32) {
        self.credits = now.add_ms(round);
    }

    /// The removal begins. A round takes half of `patience` milliseconds. `ended` is the number of
    /// commands that have ended. No other test runs from now on, as it must not meet the probes of
    /// this one.
    pub const fn remove(&mut self, now: Ktime, patience: u32, ended: i32) {
        self.policy = Policy::Idle;
        self.test = Ktime::MAX;
        self.event = Ktime::MAX;
        self.round_ms = patience / 2;
        self.removal = now.add_ms(self.round_ms);
        self.commands = Watch::new(ended);
    }

    /// The midlayer has ended every command within `limit` milliseconds.
    pub const fn limit_removal(&mut self, limit: u32) {
        self.limit_ms = limit;
    }

    /// A round of the removal ends. `ended` is the number of commands that have ended.
    pub const fn removal_round(&mut self, ended: i32) -> Policy {
        Policy::Removal {
            rounds: self.commands.round(ended),
            limit: match self.limit_ms.checked_div(self.round_ms) {
                Some(limit) => limit,
                None => u32::MAX,
            },
        }
    }

    /// The disks are gone.
    pub const fn removed(&mut self) {
        self.removal = Ktime::MAX;
    }

    /// The tick fires: returns what is due, and sets the deadlines that follow. `keep_alive` is as
    /// for [`Self::connected`].
    pub const fn tick(&mut self, now: Ktime, keep_alive: u32) -> Due {
        let mut due = Due {
            reconnect: fires(&mut self.event, now),
            moved: false,
            look: None,
            removal: fires(&mut self.removal, now),
            credits: fires(&mut self.credits, now),
            poll: fires(&mut self.poll, now),
        };
        if due.reconnect {
            due.moved = self.moved;
            self.moved = false;
        }
        if due.removal {
            self.removal = now.add_ms(self.round_ms);
        }
        if due.poll {
            self.poll = now.add_ms(POLL_MS);
        }
        if fires(&mut self.test, now) {
            due.look = Some(self.policy);
            match self.policy.next() {
                (policy, Some(delay)) => {
                    self.policy = policy;
                    self.test = now.add_ms(delay);
                }
                (_, None) => self.keep(now, keep_alive),
            }
        }
        due
    }

    /// Milliseconds until the next deadline, rounded up; `None` if there is none.
    pub const fn next(&self, now: Ktime) -> Option<u32> {
        let mut next = self.test;
        let others = [self.credits, self.poll, self.event, self.removal];
        let mut rest: &[Ktime] = &others;
        while let [first, others @ ..] = rest {
            if first.ns_since(next) < 0 {
                next = *first;
            }
            rest = others;
        }
        if next.to_ns() == Ktime::MAX.to_ns() {
            return None;
        }
        let ms = next.ms_since(now);
        let early = now.add_ms(ms).ns_since(next) < 0;
        Some(ms.saturating_add(early as u32))
    }
}
