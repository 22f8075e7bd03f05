// SPDX-License-Identifier: GPL-2.0

//! The state machine of one connection attempt by the InfiniBand connection manager.
//!
//! ```text
//!   Idle --SendReq--> ReqSent --Rep--> RepRcvd --SendRtu--> Established
//!     |                  | Rej, ReqError, | Rej, Dreq,         |
//!     |                  v Dreq, ...      v Drep, ...          v
//!     +-----Hangup-----> Over <-----------+--------------------+
//! ```
//!
//! The kernel's connection manager checks messages against its own state. This machine covers our
//! side only. For any order of messages, it reports at most one reply and at most one end of the
//! connection, the reply first.

/// The progress of an attempt; the names are those of `enum ib_cm_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// Nothing was sent.
    Idle = 0,
    /// The REQ was sent.
    ReqSent = 1,
    /// The REP has arrived and is being examined.
    RepRcvd = 2,
    /// The RTU was sent or is being sent.
    Established = 3,
    /// Refused, abandoned or disconnected.
    Over = 4,
}

impl State {
    /// All states, by number.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::ReqSent,
        Self::RepRcvd,
        Self::Established,
        Self::Over,
    ];

    /// The state with this number.
    pub const fn new(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Idle,
            1 => Self::ReqSent,
            2 => Self::RepRcvd,
            3 => Self::Established,
            4 => Self::Over,
            _ => return None,
        })
    }
}

/// An action of this side, or an event of the connection manager.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// We send the REQ.
    SendReq,
    /// We accept the reply and send the RTU.
    SendRtu,
    /// We abandon, refuse or disconnect.
    Hangup,
    /// The REP arrived.
    Rep,
    /// A REJ arrived.
    Rej,
    /// No reply to the REQ arrived.
    ReqError,
    /// The peer needs more time. The kernel's connection manager accepts an MRA in state REQ_SENT
    /// only (`cm_mra_handler()`) and waits longer.
    Mra,
    /// The peer disconnects.
    Dreq,
    /// Our DREQ was answered or has timed out. The connection manager sends a DREQ by itself when
    /// it finds the connection to be stale.
    Drep,
    /// The queue pair number may be used again.
    TimewaitExit,
    /// An event that an active side does not get.
    Other,
}

impl Input {
    /// All inputs.
    pub const ALL: [Self; 11] = [
        Self::SendReq,
        Self::SendRtu,
        Self::Hangup,
        Self::Rep,
        Self::Rej,
        Self::ReqError,
        Self::Mra,
        Self::Dreq,
        Self::Drep,
        Self::TimewaitExit,
        Self::Other,
    ];
}

/// A report to the event handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Report {
    /// Nothing.
    Nothing,
    /// The peer needs more time.
    Later,
    /// The peer has replied; its private data comes with it.
    Answer,
    /// The peer has refused.
    Refused,
    /// The peer has not replied.
    Unreachable,
    /// The connection has ended.
    Disconnected,
    /// The queue pair number may be used again.
    TimewaitExit,
}

/// The next state and the report, or `None` for an action that `state` does not allow.
pub const fn next(state: State, input: Input) -> Option<(State, Report)> {
    use {
        Input as I,
        State as S, //
    };
    Some(match (state, input) {
        (S::Idle, I::SendReq) => (S::ReqSent, Report::Nothing),
        (S::RepRcvd, I::SendRtu) => (S::Established, Report::Nothing),
        (_, I::SendReq | I::SendRtu) => return None,
        (_, I::Hangup) => (S::Over, Report::Nothing),

        (S::ReqSent, I::Mra) => (S::ReqSent, Report::Later),
        (_, I::Mra | I::Other) => (state, Report::Nothing),
        (S::Over, I::TimewaitExit) => (S::Over, Report::TimewaitExit),
        // Nothing was requested, or the message is late.
        (S::Idle | S::Over, _) => (state, Report::Nothing),

        (S::ReqSent, I::Rep) => (S::RepRcvd, Report::Answer),
        (_, I::Rep) => (state, Report::Nothing),
        (S::ReqSent, I::Rej) => (S::Over, Report::Refused),
        (S::ReqSent, I::ReqError) => (S::Over, Report::Unreachable),
        (_, I::ReqError) => (state, Report::Nothing),
        (_, I::Rej | I::Dreq | I::Drep | I::TimewaitExit) => (S::Over, Report::Disconnected),
    })
}
