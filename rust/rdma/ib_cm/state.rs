// SPDX-License-Identifier: GPL-2.0

//! What the messages of the InfiniBand connection manager mean for one connection attempt.
//!
//! ```text
//!   Idle --Ask--> Asked --Rep--> Answered --Confirm--> Up
//!     |             | Rej, Unanswered,  |  Rej, Dreq,    |
//!     |             v Dreq, ...         v  Drep, ...     v
//!     +---Hangup--> Over <--------------+----------------+
//! ```
//!
//! The connection manager of the kernel checks messages against its own state. This one is of our
//! side only: whoever connects hears of one answer at most and of one end at most, the answer
//! first, whatever arrives in whatever order.

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// Nothing was sent.
    Idle = 0,
    /// The REQ was sent.
    Asked = 1,
    /// The REP has arrived and is being looked at.
    Answered = 2,
    /// The RTU was sent, or is being sent.
    Up = 3,
    /// Refused, given up or disconnected.
    Over = 4,
}

impl State {
    /// All states, by number.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Asked,
        Self::Answered,
        Self::Up,
        Self::Over,
    ];

    /// The state with this number.
    pub const fn new(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Idle,
            1 => Self::Asked,
            2 => Self::Answered,
            3 => Self::Up,
            4 => Self::Over,
            _ => return None,
        })
    }
}

/// What happens: what we do, then what the connection manager tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// We send the REQ.
    Ask,
    /// We take the answer and send the RTU.
    Confirm,
    /// We give up, refuse or disconnect.
    Hangup,
    /// The REP arrived.
    Rep,
    /// A REJ arrived.
    Rej,
    /// Nobody answered the REQ.
    Unanswered,
    /// The peer needs more time. The kernel's connection manager takes one for a request (`cm_mra_handler()`: the state
    /// must be REQ_SENT) and waits longer.
    Mra,
    /// The peer disconnects.
    Dreq,
    /// Our DREQ was answered, or nobody will answer it. The connection manager sends one by itself
    /// when it finds the connection to be stale.
    Drep,
    /// The queue pair number may be used again.
    TimewaitExit,
    /// What an active side does not get.
    Other,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 11] = [
        Self::Ask,
        Self::Confirm,
        Self::Hangup,
        Self::Rep,
        Self::Rej,
        Self::Unanswered,
        Self::Mra,
        Self::Dreq,
        Self::Drep,
        Self::TimewaitExit,
        Self::Other,
    ];
}

/// What whoever connects is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Report {
    /// Nothing.
    Nothing,
    /// The peer asks for time.
    Later,
    /// The peer has answered; its private data comes with it.
    Answer,
    /// The peer has refused.
    Refused,
    /// Nobody has answered.
    Unreachable,
    /// The connection has ended.
    Disconnected,
    /// The queue pair number may be used again.
    TimewaitExit,
}

/// What `event` does in `state`, or `None` if we must not do that there.
pub const fn next(state: State, event: Event) -> Option<(State, Report)> {
    use {
        Event as E,
        State as S, //
    };
    Some(match (state, event) {
        (S::Idle, E::Ask) => (S::Asked, Report::Nothing),
        (S::Answered, E::Confirm) => (S::Up, Report::Nothing),
        (_, E::Ask | E::Confirm) => return None,
        (_, E::Hangup) => (S::Over, Report::Nothing),

        (S::Asked, E::Mra) => (S::Asked, Report::Later),
        (_, E::Mra | E::Other) => (state, Report::Nothing),
        (S::Over, E::TimewaitExit) => (S::Over, Report::TimewaitExit),
        // Nothing was asked, or it is a message from before the end.
        (S::Idle | S::Over, _) => (state, Report::Nothing),

        (S::Asked, E::Rep) => (S::Answered, Report::Answer),
        (_, E::Rep) => (state, Report::Nothing),
        (S::Asked, E::Rej) => (S::Over, Report::Refused),
        (S::Asked, E::Unanswered) => (S::Over, Report::Unreachable),
        (_, E::Unanswered) => (state, Report::Nothing),
        (_, E::Rej | E::Dreq | E::Drep | E::TimewaitExit) => (S::Over, Report::Disconnected),
    })
}

/// Subnet timeouts are raised to this: below, the peer's processor is slower than the connection
/// manager's patience. Ports without a subnet manager report 0.
const MIN_SUBNET_TIMEOUT: u8 = 16;
/// 17 s: a login that moves slower than that is given up. It is what the peer waits for our last word, too.
const MAX_RESPONSE_TIMEOUT: u8 = 22;

/// How long the connection managers wait for each other's answer at a port with this subnet timeout,
/// as n in 4.096 us * 2^n.
pub const fn response_timeout(subnet_timeout: u8) -> u8 {
    let timeout = if subnet_timeout < MIN_SUBNET_TIMEOUT {
        MIN_SUBNET_TIMEOUT
    } else {
        subnet_timeout
    };
    // A round trip, and something for the processing.
    let timeout = timeout.saturating_add(2);
    if timeout > MAX_RESPONSE_TIMEOUT {
        MAX_RESPONSE_TIMEOUT
    } else {
        timeout
    }
}

/// The milliseconds that a peer has which asks for 4.096 us * 2^`timeout`: 70 s at most, as Linux asks for 68.7 s.
pub const fn service_timeout_ms(timeout: u8) -> u32 {
    const MAX: u64 = 70_000;
    let ms = (4096u64 << (timeout & 31)) / 1_000_000;
    // CAST: At most 70,000.
    (if ms > MAX { MAX } else { ms }) as u32
}

/// How long a message may be on its way, as n in 4.096 us * 2^n, when the subnet administrator says `life`: 4 s at most, more than
/// any fabric takes. The connection manager waits for a multiple of it, and keeps what is left of a connection for as long.
pub const fn packet_life_time(life: u8) -> u8 {
    const MAX: u8 = 20;
    if life > MAX {
        MAX
    } else {
        life
    }
}

/// The most milliseconds that a command on a queue pair may take because of what its peer and the subnet administrator
/// say.
pub const MAX_REQUEST_TIMEOUT_MS: u32 = 120_000;

/// How long a queue pair that retries `retry_count` times waits for an acknowledgement, as n in 4.096 us * 2^n, when the
/// connection managers have agreed on `timeout`: never so long that a command takes more than 120 s. (0 would be for ever.)
pub const fn ack_timeout(timeout: u8, retry_count: u8) -> u8 {
    let retry_count = if retry_count & 7 == 0 { 1 } else { retry_count };
    let mut bounded = if timeout == 0 || timeout > 31 {
        31
    } else {
        timeout
    };
    while request_timeout_ms(bounded, retry_count) > MAX_REQUEST_TIMEOUT_MS {
        bounded = bounded.saturating_sub(1);
    }
    bounded
}

/// Milliseconds after which a command on a queue pair that retries `retry_count` times after
/// 4.096 us * 2^`timeout` has certainly ended: a device may take four times as long, and one second
/// is added.
pub const fn request_timeout_ms(timeout: u8, retry_count: u8) -> u32 {
    // 5 and 3 bits: less than 2^31 us * 4.096 * 4 * 7.
    let ns = (4096u64 << (timeout & 31)) * 4 * (retry_count & 7) as u64;
    // CAST: At most 246,290,604.
    (ns / 1_000_000) as u32 + 1000
}
