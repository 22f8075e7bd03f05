// SPDX-License-Identifier: GPL-2.0

//! What the messages of the InfiniBand connection manager mean for one connection attempt.
//!
//! ```text
//!   Idle --SendReq--> ReqSent --Rep--> RepRcvd --SendRtu--> Established
//!     |                  | Rej, ReqError, | Rej, Dreq,         |
//!     |                  v Dreq, ...      v Drep, ...          v
//!     +-----Hangup-----> Over <-----------+--------------------+
//! ```
//!
//! The connection manager of the kernel checks messages against its own state. This one is of our
//! side only: whoever connects hears of one answer at most and of one end at most, the answer
//! first, whatever arrives in whatever order.

/// How far an attempt has come, in the words of `enum ib_cm_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// Nothing was sent.
    Idle = 0,
    /// The REQ was sent.
    ReqSent = 1,
    /// The REP has arrived and is being looked at.
    RepRcvd = 2,
    /// The RTU was sent, or is being sent.
    Established = 3,
    /// Refused, given up or disconnected.
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

/// What happens: what we do, then what the connection manager tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// We send the REQ.
    SendReq,
    /// We take the answer and send the RTU.
    SendRtu,
    /// We give up, refuse or disconnect.
    Hangup,
    /// The REP arrived.
    Rep,
    /// A REJ arrived.
    Rej,
    /// Nobody answered the REQ.
    ReqError,
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

/// What `input` does in `state`, or `None` if we must not do that there.
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
        // Nothing was asked, or it is a message from before the end.
        (S::Idle | S::Over, _) => (state, Report::Nothing),

        (S::ReqSent, I::Rep) => (S::RepRcvd, Report::Answer),
        (_, I::Rep) => (state, Report::Nothing),
        (S::ReqSent, I::Rej) => (S::Over, Report::Refused),
        (S::ReqSent, I::ReqError) => (S::Over, Report::Unreachable),
        (_, I::ReqError) => (state, Report::Nothing),
        (_, I::Rej | I::Dreq | I::Drep | I::TimewaitExit) => (S::Over, Report::Disconnected),
    })
}
