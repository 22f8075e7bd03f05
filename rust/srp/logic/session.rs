// SPDX-License-Identifier: GPL-2.0

//! The life of a session, the login at one target.
//!
//! ```text
//!   Connecting --LoggedIn--> Live --Remove--> Removing --Removed--> Gone
//!       |   |                 |                ^   ^
//!       |   +--Fail--+      Fail               |   |
//!       |            v        v                |   |
//!       |          Failed <---+                |   |
//!       |            +--------Remove-----------+   |
//!       +---------------------Remove---------------+
//! ```

/// A login that has not ended after this many milliseconds is given up.
pub const LOGIN_TIMEOUT_MS: u32 = 10_000;
/// A task management request that is not answered in this many milliseconds has failed.
pub const TSK_MGMT_TIMEOUT_MS: u32 = 5_000;
/// An address or route that is not found in this many milliseconds is given up.
pub const RESOLVE_TIMEOUT_MS: u32 = 1_000;

/// State of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// The login is under way; there are no disks yet.
    Connecting = 0,
    /// Commands are taken.
    Live = 1,
    /// The connection is lost; commands are failed.
    Failed = 2,
    /// Removal has begun; it cannot be stopped.
    Removing = 3,
    /// Nothing is left.
    Gone = 4,
}

impl State {
    /// All states, by number.
    pub const ALL: [Self; 5] = [
        Self::Connecting,
        Self::Live,
        Self::Failed,
        Self::Removing,
        Self::Gone,
    ];

    /// True if commands may be sent: in a live session, and during the removal while the midlayer
    /// says goodbye to its disks. A removal after a failure must send nothing; the channels refuse
    /// it.
    pub const fn takes_commands(self) -> bool {
        matches!(self, Self::Live | Self::Removing)
    }
}

/// What happens to a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// All channels that will be there are there.
    LoggedIn,
    /// A login, a connection or the protocol failed.
    Fail,
    /// Somebody wants the session gone: logout, module unload, device removal, the failure itself.
    Remove,
    /// The removal is done.
    Removed,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 4] = [Self::LoggedIn, Self::Fail, Self::Remove, Self::Removed];
}

/// What an event does to a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The state changes; whoever caused it carries out what the new state means, once.
    To(State),
    /// The event came late or twice and changes nothing.
    Stay,
}

/// What `event` does in `state`, or `None` if it must not happen there.
pub const fn next(state: State, event: Event) -> Option<Step> {
    Some(match (state, event) {
        (State::Connecting, Event::LoggedIn) => Step::To(State::Live),
        (State::Connecting | State::Live, Event::Fail) => Step::To(State::Failed),
        (State::Connecting | State::Live | State::Failed, Event::Remove) => {
            Step::To(State::Removing)
        }
        (State::Removing, Event::Removed) => Step::To(State::Gone),
        // The connection was lost or removed while the login was being finished.
        (State::Failed | State::Removing, Event::LoggedIn) => Step::Stay,
        (State::Failed | State::Removing | State::Gone, Event::Fail) => Step::Stay,
        (State::Removing | State::Gone, Event::Remove) => Step::Stay,
        (State::Live | State::Gone, Event::LoggedIn) => return None,
        (State::Connecting | State::Live | State::Failed | State::Gone, Event::Removed) => {
            return None
        }
    })
}
