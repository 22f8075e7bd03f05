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
