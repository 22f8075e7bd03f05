// SPDX-License-Identifier: GPL-2.0

//! Timing of the reconnect attempts of a session.
//!
//! The first attempt is immediate if the lost connection lived long enough: 1 s, doubled after each
//! loss. Otherwise, and for further attempts, the pauses are 1, 2, 4 s and so on. From
//! `reconnect_delay` on, the timer of the transport class starts the attempts.
//!
//! A port event triggers an attempt at once, regardless of the pause. A port that comes up causes a
//! handful of events, a flapping cable hundreds per second, so the rate is limited.
//!
//! A rejected login is tried again, whatever the reason: LIO also reports "channel limit reached"
//! to an initiator that it does not know yet.

use super::time::Ktime;

const MS_NS: i64 = 1_000_000;
/// Lifetime of a connection after which earlier losses are forgotten, in nanoseconds.
const FORGET_NS: i64 = 600_000 * MS_NS;
/// Maximum number of times that the lifetime required for an immediate attempt, initially 1 s, is
/// doubled.
const MAX_FLAPS: u32 = 6;
/// Maximum number of doublings of a pause.
const MAX_DOUBLINGS: u32 = 20;
/// Maximum number of doublings of the pause before adding missing channels.
const MAX_FILL_DOUBLINGS: u32 = 6;
/// Milliseconds without a loss of an answer channel after which a session forgets earlier ones.
const FORGET_FLAPS_MS: u32 = 600_000;
/// Minimum time between two port events that take effect, in milliseconds.
const EVENT_MS: u32 = 250;
/// Number of events that take effect [`EVENT_MS`] apart, enough for a port that comes up. Each
/// later one doubles the interval.
const EVENTS: u32 = 8;
/// Maximum number of doublings of the event interval.
const MAX_EVENT_DOUBLINGS: u32 = 4;
/// Milliseconds without a port event after which the next event counts as the first.
const EVENTS_FORGET_MS: u32 = 10_000;

/// The cause of a loss, as far as it matters for reconnecting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The network, the target or the device.
    Plain,
    /// The target violated the protocol: no attempt before `reconnect_delay`.
    Violation,
    /// A host reset wants a new connection at once.
    Reset,
}

/// A session's history of losses and attempts. By default it has lost no connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backoff {
    /// Number of losses; each doubles the lifetime that an immediate attempt requires.
    flaps: u32,
    /// Number of failed attempts since the connection was lost.
    attempts: u32,
    /// Attempts requested by the transport class since the connection was lost.
    wanted: u32,
    /// Minimum pause before an attempt, in milliseconds; `None` if the attempt waits for the timer
    /// of the transport class. Each loss sets it.
    least: Option<u32>,
    /// Number of successive port events that took effect while there was no connection.
    events: u32,
    /// Time at which the last port event takes effect.
    event: Ktime,
}

/// 1, doubled `n` times, at most `most` times; `most` must be less than 32.
const fn doubled(n: u32, most: u32) -> u32 {
    1u32.wrapping_shl(if n < most { n } else { most })
}

impl Backoff {
    /// A connection that lived for `life` nanoseconds is lost.
    pub const fn lost(&mut self, life: i64, why: Cause) {
        self.connected();
        if life >= FORGET_NS {
            self.flaps = 0;
        }
        let wanted_ms = doubled(self.flaps, MAX_FLAPS) * 1000;
        self.least = match why {
            Cause::Reset => return self.hurry(),
            Cause::Violation => None,
            Cause::Plain if life >= wanted_ms as i64 * MS_NS => Some(0),
            Cause::Plain => Some(wanted_ms),
        };
        self.flaps = self.flaps.saturating_add(1);
    }

    /// A host reset wants an attempt now, while there is no connection.
    pub const fn hurry(&mut self) {
        self.least = Some(0);
    }

    /// Milliseconds until a port event at the time `now` takes effect: 0 for the first. Later
    /// events are merged to 4 per second. While the connection is `lost`, each event triggers an
    /// attempt, so they are merged to ever fewer.
    pub const fn event(&mut self, now: Ktime, lost: bool) -> u32 {
        // An earlier event is still pending.
        if now.ns_since(self.event) < 0 {
            return self.event.ms_since(now);
        }
        let quiet_ms = now.ms_since(self.event);
        if quiet_ms >= EVENTS_FORGET_MS {
            self.events = 0;
        }
        let pause_ms = match self.events {
            _ if !lost => EVENT_MS,
            0 => 0,
            1..=EVENTS => EVENT_MS,
            many => EVENT_MS * doubled(many - EVENTS, MAX_EVENT_DOUBLINGS),
        };
        let delay_ms = pause_ms.saturating_sub(quiet_ms);
        self.events = match lost {
            true => self.events.saturating_add(1),
            false => 0,
        };
        self.event = now.add_ms(delay_ms);
        delay_ms
    }

    /// An attempt has failed.
    pub const fn failed(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// There is a new connection.
    pub const fn connected(&mut self) {
        self.attempts = 0;
        self.wanted = 0;
    }

    /// The timer of the transport class starts an attempt.
    pub const fn wanted(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    /// Number of attempts started by the timer of the transport class since the connection was
    /// lost. From the twelfth on, each attempt lengthens the pauses of the class by
    /// `reconnect_delay`, so attempts triggered by a port event must not count.
    pub const fn wanted_attempts(&self) -> u32 {
        self.wanted
    }

    /// Number of failed attempts since the connection was lost.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The pause before the next attempt, in milliseconds; `None` if the timer of the transport
    /// class starts it. `reconnect_delay_s` is in seconds. `random` adds up to a quarter, so that
    /// sessions that lost their connections together do not reconnect together.
    pub fn pause(&self, reconnect_delay_s: u32, random: u16) -> Option<u32> {
        let doubled_ms = match self.attempts {
            0 => 0,
            many => doubled(many - 1, MAX_DOUBLINGS) * 1000,
        };
        let pause_ms = self.least?.max(doubled_ms);
        let own = pause_ms == 0 || pause_ms < reconnect_delay_s.saturating_mul(1000);
        own.then(|| pause_ms.saturating_add(part(pause_ms / 4, random)))
    }
}

/// A session's attempts to add the channels that a login left out, and the answer channels, which
/// no reconnect sets up. The pauses are 1, 2, 4 ... 64 s.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fill {
    /// Number of failed attempts on the current connection.
    attempts: u32,
    /// Number of losses of an answer channel, and the time of the last one. Each loss lengthens the
    /// pause, so that a flapping channel disturbs the session less.
    flaps: u32,
    flapped: Ktime,
}

impl Fill {
    /// The pause after `attempts` attempts, in milliseconds.
    const fn pause(attempts: u32) -> u32 {
        doubled(attempts, MAX_FILL_DOUBLINGS) * 1000
    }

    /// Number of losses that are recent enough to count.
    const fn flaps(&self, now: Ktime) -> u32 {
        match now.ms_since(self.flapped) {
            0..FORGET_FLAPS_MS => self.flaps,
            _ => 0,
        }
    }

    /// A connection begins without some channels. Returns the delay of the first attempt to add
    /// them, in milliseconds. `left_out`: a channel has failed during the login. `again`: the
    /// session had a connection earlier, so this login has not requested the answer channels.
    pub const fn begin(&mut self, now: Ktime, left_out: bool, again: bool) -> u32 {
        self.attempts = 0;
        match self.flaps(now) {
            _ if left_out => Self::pause(0),
            0 if again => 0,
            flaps => Self::pause(flaps),
        }
    }

    /// An attempt has left channels missing. Returns the delay of the next one in milliseconds, and
    /// whether that is longer than the previous one.
    pub const fn failed(&mut self) -> (u32, bool) {
        let last = Self::pause(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        let next = Self::pause(self.attempts);
        (next, next > last)
    }

    /// An answer channel is lost.
    pub const fn flap(&mut self, now: Ktime) {
        self.flaps = self.flaps(now).saturating_add(1);
        self.flapped = now;
    }

    /// Whether the pause after the last loss of an answer channel is not over.
    pub const fn is_flapping(&self, now: Ktime) -> bool {
        let flaps = self.flaps(now);
        flaps > 0 && now.ms_since(self.flapped) < Self::pause(flaps)
    }
}

/// Random delay in milliseconds that spreads attempts which a timer of whole seconds starts: at
/// most a sixteenth of `reconnect_delay`, and at most a second.
pub fn spread_ms(reconnect_delay_s: u32, random: u16) -> u32 {
    let most = reconnect_delay_s.saturating_mul(1000) / 16;
    part(most.min(1000), random)
}

/// Returns `most` * `random` / 2^16.
const fn part(most: u32, random: u16) -> u32 {
    // CAST: Less than `most`.
    ((most as u64 * random as u64) >> 16) as u32
}
