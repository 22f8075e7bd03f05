// SPDX-License-Identifier: GPL-2.0

//! When a session that has lost its connection tries to get another one.
//!
//! The first try comes at once, if the connection that was lost has earned that: it lived for a second,
//! and for twice as long after each loss. What follows are pauses of 1, 2, 4 s and so on, up to
//! `reconnect_delay`, from where on the tries are those of the transport class's timer.
//!
//! An event of the port is a reason to try at once, whatever the pause. A port that comes up has a handful of them; one
//! whose cable flaps has hundreds in a second, of which few count.
//!
//! A target that refuses is asked again, whatever its reason: Linux's says "channel limit reached" to an initiator
//! that it does not know yet as well.

use super::ktime::Ktime;

const SECOND_NS: i64 = 1_000_000_000;
/// A connection that lived so long makes earlier losses forgotten, in nanoseconds.
const FORGET_NS: i64 = 600 * SECOND_NS;
/// The longest life that has to be earned is 2 to the power of this, in seconds.
const MAX_FLAPS: u32 = 6;
/// Pauses are doubled so often at most.
const MAX_DOUBLINGS: u32 = 20;
/// The least time between two events that count, in milliseconds.
const EVENT_MS: u32 = 250;
/// So many events count at that pace, which are those of a port that comes up. After them it is halved each time.
const EVENTS: u32 = 8;
/// Halved so often at most.
const MAX_EVENT_DOUBLINGS: u32 = 4;
/// So long after the last event the next one is the first again, in milliseconds.
const EVENTS_FORGET_MS: u32 = 10_000;

/// Why a connection was lost, as far as it matters for the next one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The network, the target or the device.
    Plain,
    /// The target has broken the protocol: it is not asked before `reconnect_delay`.
    Violation,
    /// Somebody wants a new connection, and gets it at once.
    Reset,
}

/// When the next try is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pause {
    /// After so many milliseconds.
    Ms(u32),
    /// When the timer of the transport class says so.
    ReconnectDelay,
}

/// What a session remembers of its losses and tries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backoff {
    /// Losses, of which each doubles the life that earns a try at once.
    flaps: u32,
    /// Tries that have failed since the connection was lost.
    tries: u32,
    /// Tries that the transport class has wanted since then.
    wanted: u32,
    least: Least,
    /// Events that have counted since there was a connection.
    events: u32,
    /// When the last of them counts.
    event: Ktime,
}

/// The least pause before a try.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Least {
    Seconds(u32),
    ReconnectDelay,
}

impl Default for Least {
    fn default() -> Self {
        Self::Seconds(0)
    }
}

/// `1 << n`, for an `n` that is less than 32.
const fn doubled(n: u32) -> u32 {
    1u32.wrapping_shl(n)
}

impl Backoff {
    /// No loss so far.
    pub const fn new() -> Self {
        Self {
            flaps: 0,
            tries: 0,
            wanted: 0,
            least: Least::Seconds(0),
            events: 0,
            event: Ktime::MIN,
        }
    }

    /// A connection that lived for `life` nanoseconds is lost.
    pub const fn lost(&mut self, life: i64, why: Cause) {
        self.connected();
        if life >= FORGET_NS {
            self.flaps = 0;
        }
        let wanted_s = doubled(self.flaps);
        self.least = match why {
            Cause::Reset => {
                self.least = Least::Seconds(0);
                return;
            }
            Cause::Violation => Least::ReconnectDelay,
            Cause::Plain if life >= wanted_s as i64 * SECOND_NS => Least::Seconds(0),
            Cause::Plain => Least::Seconds(wanted_s),
        };
        if self.flaps < MAX_FLAPS {
            self.flaps += 1;
        }
    }

    /// Somebody wants a try now, while there is no connection.
    pub const fn hurry(&mut self) {
        self.least = Least::Seconds(0);
    }

    /// An event of the port at the time `now`: after how many milliseconds it counts. The first does at once; those that
    /// follow do together, 4 times a second, and more and more seldom if each is a reason to try.
    pub const fn event(&mut self, now: Ktime, tries: bool) -> u32 {
        // One before it waits for its time.
        if now.ns_since(self.event) < 0 {
            return self.event.ms_since(now);
        }
        let quiet_ms = now.ms_since(self.event);
        if quiet_ms >= EVENTS_FORGET_MS {
            self.events = 0;
        }
        let pause_ms = match self.events {
            _ if !tries => EVENT_MS,
            0 => 0,
            1..=EVENTS => EVENT_MS,
            many if many - EVENTS < MAX_EVENT_DOUBLINGS => EVENT_MS * doubled(many - EVENTS),
            _ => EVENT_MS * doubled(MAX_EVENT_DOUBLINGS),
        };
        let delay_ms = pause_ms.saturating_sub(quiet_ms);
        self.events = match tries {
            true => self.events.saturating_add(1),
            false => 0,
        };
        self.event = now.add_ms(delay_ms);
        delay_ms
    }

    /// A try has failed.
    pub const fn failed(&mut self) {
        self.tries = self.tries.saturating_add(1);
    }

    /// There is a new connection.
    pub const fn connected(&mut self) {
        self.tries = 0;
        self.wanted = 0;
    }

    /// The timer of the transport class begins a try.
    pub const fn wanted(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    /// Tries that the timer of the transport class has begun since the connection was lost. From
    /// the eleventh on each lengthens its pauses by `reconnect_delay`, so those that an event has
    /// hurried must not count.
    pub const fn wanted_tries(&self) -> u32 {
        self.wanted
    }

    /// Tries that have failed since the connection was lost.
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// The pause before the next try, with a `reconnect_delay` of so many seconds. `random` lengthens it by
    /// up to a quarter, so that those who have lost their connections together do not come back together.
    pub const fn pause(&self, reconnect_delay_s: u32, random: u16) -> Pause {
        let Least::Seconds(least_s) = self.least else {
            return Pause::ReconnectDelay;
        };
        let doubled_s = match self.tries {
            0 => 0,
            1..=MAX_DOUBLINGS => doubled(self.tries - 1),
            _ => doubled(MAX_DOUBLINGS),
        };
        let pause_s = if least_s > doubled_s {
            least_s
        } else {
            doubled_s
        };
        if pause_s == 0 {
            Pause::Ms(0)
        } else if pause_s >= reconnect_delay_s {
            Pause::ReconnectDelay
        } else {
            let ms = pause_s.saturating_mul(1000);
            Pause::Ms(ms.saturating_add(part(ms / 4, random)))
        }
    }
}

/// Milliseconds by which tries that a timer of whole seconds begins are spread: a sixteenth of
/// `reconnect_delay`, at most a second.
pub const fn spread_ms(reconnect_delay_s: u32, random: u16) -> u32 {
    let most = reconnect_delay_s.saturating_mul(1000) / 16;
    part(if most < 1000 { most } else { 1000 }, random)
}

/// A random part of `most`.
const fn part(most: u32, random: u16) -> u32 {
    // CAST: Less than `most`.
    ((most as u64 * random as u64) >> 16) as u32
}
