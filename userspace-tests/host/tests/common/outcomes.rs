// SPDX-License-Identifier: GPL-2.0

//! Names of the outcomes that events of a session's recovery return. A new outcome does not compile
//! until it is here.

use srp_host::logic::recovery::{
    BeginAttempt, Commit, Ended, Ending, LoggedIn, Loss, Outcome, Remove, Retry, Returned,
};

/// An outcome of an event.
pub trait Named {
    /// The name of the outcome.
    fn name(&self) -> &'static str;
}

impl Named for () {
    fn name(&self) -> &'static str {
        "()"
    }
}

macro_rules! outcomes {
    ($($type:ident { $($outcome:pat,)+ })+) => {
        /// All outcomes of all events.
        pub const ALL: &[&str] = &[$($(stringify!($outcome),)+)+];

        $(impl Named for $type {
            fn name(&self) -> &'static str {
                match self {
                    $($outcome => stringify!($outcome),)+
                }
            }
        })+
    };
}

outcomes! {
    LoggedIn {
        LoggedIn::StartTimers,
        LoggedIn::TooLate,
    }
    Loss {
        Loss::End { say: false },
        Loss::End { say: true },
        Loss::Say,
        Loss::Attempt,
        Loss::Nothing,
    }
    Ending {
        Ending::Notify,
        Ending::EndCommands,
    }
    Ended {
        Ended::Remove,
        Ended::Retry(Retry::Later),
        Ended::Retry(Retry::GiveUp),
        Ended::Retry(Retry::None),
    }
    BeginAttempt {
        BeginAttempt::Connect,
        BeginAttempt::Nothing,
    }
    Returned {
        Returned::StartTimers,
        Returned::EndAttempt,
    }
    Retry {
        Retry::Later,
        Retry::GiveUp,
        Retry::None,
    }
    Commit {
        Commit::Outcome(Outcome::Accept),
        Commit::Outcome(Outcome::InProgress),
        Commit::Outcome(Outcome::NotConnected),
        Commit::Outcome(Outcome::NoDevice),
        Commit::Attempt,
        Commit::Wait,
        Commit::Protocol,
    }
    Outcome {
        Outcome::Accept,
        Outcome::InProgress,
        Outcome::NotConnected,
        Outcome::NoDevice,
    }
    Remove {
        Remove::TearDown,
        Remove::Nothing,
    }
}
