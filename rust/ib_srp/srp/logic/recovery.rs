// SPDX-License-Identifier: GPL-2.0

//! Recovery of a lost connection: one state machine for the error path, the reconnect attempts, and
//! the handshake with the SRP transport class.
//!
//! ```text
//!           logged_in              lost
//!  Connecting ------> Live ----------------> Recovering        remove, from each of these four:
//!       |              ^                       |    |            Removing --removed--> Gone
//!       | lost         |        commit         |    |
//!       +---> Failed   +-----------------------+    +-- link and attempt, below
//!
//! link: Up --lost--> Lost --ending--> Notifying --notified--> Ending --ended--> Down -commit-> Up
//!       |               \---------(not Recovering)------------^           ^
//!       +--log_out--> Closing --lost--> Lost                            |
//!                                                                       |
//! attempt:                                                              |
//!   None --begin_attempt--> Connecting --connected--> Ready --commit--> Taken --returned--> None
//!    ^                          |                       |
//!    |                    attempt_failed             returned
//!    +----attempt_ended---- Failed <--------------------+
//! ```
//!
//! The link becomes `Lost` at once, in any context; one work item ends the connection. No attempt
//! starts before the link is `Down`, when all commands have ended. An attempt runs in a work item
//! of its own. A successful attempt is `Ready`. It becomes the session's connection only when the
//! transport class takes it through its callback, `commit`, so that the class orders this with its
//! timeouts.
//!
//! Each event is a method of [`Recovery`]. If the caller may have to act, the return type lists the
//! actions. Callers match it without `_`, so a new outcome does not compile until every caller
//! handles it.

mod deadlines;

pub use deadlines::Due;

use super::{
    backoff::{
        Backoff,
        Cause,
        Fill, //
    },
    state::{
        Attempt,
        Life,
        Link,
        Reset,
        State, //
    },
    time::Ktime,
    window::Window, //
};
use deadlines::Deadlines;

/// Number of protocol violations within a minute after which a session stops reconnecting.
pub const MAX_STRIKES: u32 = 5;

/// The caller's next step after [`Recovery::logged_in`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoggedIn {
    /// Arm the timers of the connection: the session is live.
    StartTimers,
    /// Fail the login: the connection is lost already, or the session is ending.
    TooLate,
}

/// The caller's next step after [`Recovery::lost`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// Queue the work item that ends the connection.
    End {
        /// Also log the cause.
        say: bool,
    },
    /// Log why the new connection has failed.
    Say,
    /// Start an attempt, or another one after the one in flight.
    Attempt,
    /// Nothing: the connection is lost already.
    Nothing,
}

/// The caller's next step after [`Recovery::ending`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// Tell the transport class that the connection is lost, call [`Recovery::notified`], and end
    /// the commands.
    Notify,
    /// End the commands.
    EndCommands,
}

/// The caller's next step after [`Recovery::ended`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Remove the session: the login has failed.
    Remove,
    /// Handle the next attempt.
    Retry(Retry),
}

/// The next attempt of a session that is down, with none in flight.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// Start the attempt after its pause.
    Later,
    /// No attempt: log that the target has violated the protocol too often.
    GiveUp,
    /// No attempt: the session is ending.
    None,
}

/// The caller's next step after [`Recovery::begin_attempt`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BeginAttempt {
    /// Log in.
    Connect,
    /// Return: no attempt may or should start now.
    Nothing,
}

/// The caller's next step after [`Recovery::returned`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Returned {
    /// Arm the timers of the connection, which now belongs to the session.
    StartTimers,
    /// The class has not taken the connection: tear it down and call [`Recovery::attempt_ended`].
    EndAttempt,
}

/// The caller's next step after [`Recovery::commit`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Commit {
    /// Report this outcome to the class.
    Outcome(Outcome),
    /// Start an attempt after the random delay that spreads timer-driven attempts, and tell the
    /// class that there is no connection yet.
    Attempt,
    /// Wait until the link is down, start an attempt, wait until [`State::asked`] clears, and call
    /// [`Recovery::waited`].
    Wait,
    /// Tell the class that the target has violated the protocol too often.
    Protocol,
}

/// The result for the transport class.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The class may proceed as if there were a connection.
    Accept,
    /// There is no connection yet.
    InProgress,
    /// The new connection is lost already.
    NotConnected,
    /// The session is ending.
    NoDevice,
}

/// The caller's next step after [`Recovery::remove`].
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remove {
    /// Queue the work item that removes the session.
    TearDown,
    /// Nothing: another call has queued it.
    Nothing,
}

/// The state of a session, its deadlines, and its history of losses and attempts. By default it is
/// logging in. An event that does not apply in the current state changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    state: State,
    deadlines: Deadlines,
    backoff: Backoff,
    fill: Fill,
    /// Protocol violations.
    strikes: Window,
    /// Time at which the connection came up.
    since: Ktime,
}

impl Recovery {
    /// Returns a session in this state, with no history.
    pub fn of(state: State) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    /// The current state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The history, which decides when the next attempt is due.
    pub const fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// Counter of protocol violations.
    pub const fn strikes(&self) -> Window {
        self.strikes
    }

    /// The attempts to add missing channels.
    pub const fn fill(&mut self) -> &mut Fill {
        &mut self.fill
    }

    /// The login is done, including the scan for disks.
    pub const fn logged_in(&mut self, now: Ktime) -> LoggedIn {
        if !matches!(self.state.life, Life::Connecting) {
            return LoggedIn::TooLate;
        }
        self.state.life = Life::Live;
        self.since = now;
        LoggedIn::StartTimers
    }

    /// A connection is lost: that of the session, of the login, or of an attempt.
    pub const fn lost(&mut self, cause: Cause, now: Ktime) -> Loss {
        let reset = matches!(cause, Cause::Reset);
        if !self.state.is_lost() {
            let say = matches!(self.state.link, Link::Up);
            self.state.life = match self.state.life {
                Life::Connecting => Life::Failed,
                Life::Live => Life::Recovering,
                life => life,
            };
            self.state.link = Link::Lost;
            self.state.starving = false;
            self.deadlines.end_test();
            self.deadlines.credits = None;
            self.state.reset = if reset { Reset::Wanted } else { Reset::None };
            self.backoff.lost(now.ns_since(self.since), cause);
            self.count(cause, now);
            return Loss::End { say };
        }
        if reset {
            // If the attempt in flight succeeds, it serves the reset; otherwise another one
            // follows.
            self.state.reset = Reset::Wanted;
            self.backoff.hurry();
            return match self.state.may_attempt() {
                true => Loss::Attempt,
                false => Loss::Nothing,
            };
        }
        // This may be a loss of the connection of the attempt, which is reported only here.
        match &mut self.state.attempt {
            Attempt::Connecting { broken } | Attempt::Ready { broken } if !*broken => {
                *broken = true
            }
            _ => return Loss::Nothing,
        }
        if !matches!(self.state.life, Life::Recovering) {
            return Loss::Nothing;
        }
        self.count(cause, now);
        Loss::Say
    }

    /// The work item that ends the connection has begun.
    pub const fn ending(&mut self) -> Ending {
        match (self.state.link, self.state.life) {
            (Link::Lost, Life::Recovering) => {
                self.state.link = Link::Notifying;
                return Ending::Notify;
            }
            (Link::Lost, _) => self.state.link = Link::Ending,
            _ => {}
        }
        Ending::EndCommands
    }

    /// The transport class has been told that the connection is lost.
    pub const fn notified(&mut self) {
        if matches!(self.state.link, Link::Notifying) {
            self.state.link = Link::Ending;
        }
    }

    /// All commands have ended.
    pub const fn ended(&mut self) -> Ended {
        if !matches!(self.state.link, Link::Ending) {
            return Ended::Retry(Retry::None);
        }
        self.state.link = Link::Down;
        self.deadlines.poll = None;
        match self.state.life {
            Life::Failed => Ended::Remove,
            _ => Ended::Retry(self.retry()),
        }
    }

    /// The reconnect work item runs. `automatic`: `reconnect_delay` is positive, so attempts also
    /// start without a host reset.
    pub const fn begin_attempt(&mut self, automatic: bool) -> BeginAttempt {
        let reset = matches!(self.state.reset, Reset::Wanted);
        let free = self.state.may_attempt() && matches!(self.state.attempt, Attempt::None);
        if self.state.banned {
            self.state.reset = Reset::None;
        } else if free && (reset || automatic) {
            if reset {
                self.state.reset = Reset::Tried;
            }
            self.state.attempt = Attempt::Connecting { broken: false };
            return BeginAttempt::Connect;
        }
        // A caller that asks before the link is down has not started this attempt.
        if self.state.may_attempt() {
            self.state.asked = false;
        }
        BeginAttempt::Nothing
    }

    /// The login of the attempt has succeeded: the class must take the connection.
    pub const fn connected(&mut self) {
        if let Attempt::Connecting { broken } = self.state.attempt {
            self.state.attempt = Attempt::Ready { broken };
            self.state.asked = false;
        }
    }

    /// The login of the attempt has failed; the attempt must be torn down.
    pub const fn attempt_failed(&mut self) {
        if matches!(self.state.attempt, Attempt::Connecting { .. }) {
            self.state.attempt = Attempt::Failed;
        }
    }

    /// The class has returned to the work item that offered it the connection.
    pub const fn returned(&mut self) -> Returned {
        match self.state.attempt {
            Attempt::Ready { .. } => {
                self.state.attempt = Attempt::Failed;
                return Returned::EndAttempt;
            }
            Attempt::Taken => self.state.attempt = Attempt::None,
            _ => {}
        }
        Returned::StartTimers
    }

    /// A failed attempt has been torn down.
    pub const fn attempt_ended(&mut self) -> Retry {
        if !matches!(self.state.attempt, Attempt::Failed) {
            return Retry::None;
        }
        self.state.attempt = Attempt::None;
        self.state.asked = false;
        // A reset that arrived in the meantime gets an attempt of its own.
        if matches!(self.state.reset, Reset::Tried) {
            self.state.reset = Reset::None;
        }
        self.backoff.failed();
        self.retry()
    }

    /// The transport class wants a connection. `blocks`: the timeouts of the class block the port
    /// while there is no connection. `running`: the class considers the port running.
    pub const fn commit(&mut self, blocks: bool, running: bool, now: Ktime) -> Commit {
        match self.state.life {
            Life::Live => return Commit::Outcome(Outcome::Accept),
            Life::Recovering => {}
            _ => return Commit::Outcome(Outcome::NoDevice),
        }
        // Until the class has been told of the loss, it must not see a failed attempt.
        let notified = match self.state.link {
            Link::Ending | Link::Down => true,
            Link::Notifying => blocks && !running,
            Link::Up | Link::Closing | Link::Lost => false,
        };
        if !notified {
            return Commit::Outcome(Outcome::Accept);
        }
        if self.state.banned {
            return Commit::Protocol;
        }
        match self.state.attempt {
            Attempt::Ready { broken } => Commit::Outcome(self.take(broken, now)),
            Attempt::None if blocks => {
                self.backoff.wanted();
                Commit::Attempt
            }
            _ if blocks => Commit::Outcome(Outcome::InProgress),
            // The connection was lost as soon as it was taken. The caller is the work item of this
            // attempt, or blocks it, and must not wait for the next one.
            Attempt::Taken => Commit::Outcome(Outcome::Accept),
            // Waiting delays no timeout of the class here, and an error would fail the commands.
            _ => {
                self.state.asked = true;
                self.backoff.wanted();
                Commit::Wait
            }
        }
    }

    /// The wait of [`Commit::Wait`] is over.
    pub const fn waited(&mut self, now: Ktime) -> Outcome {
        match (self.state.life, self.state.attempt) {
            (Life::Live, _) => Outcome::Accept,
            (Life::Recovering, Attempt::Ready { broken }) => self.take(broken, now),
            (Life::Recovering, _) => Outcome::InProgress,
            _ => Outcome::NoDevice,
        }
    }

    /// `fast_io_fail_tmo` has expired, or the class gives up the port.
    pub const fn fail_fast(&mut self) {
        self.state.failing = true;
    }

    /// The target has violated the protocol on a connection that an attempt has not handed over
    /// yet.
    pub const fn strike(&mut self, now: Ktime) {
        self.count(Cause::Violation, now);
    }

    /// The target has violated the protocol too often.
    pub const fn ban(&mut self) {
        self.state.banned = true;
    }

    /// Removes the session: logout, module unload, device removal, a failed login, a target
    /// unreachable for too long.
    ///
    /// If no command ends for half of `patience` milliseconds, the target is probed. `ended` is the
    /// number of commands that have ended.
    pub const fn remove(&mut self, now: Ktime, patience: u32, ended: i32) -> Remove {
        if matches!(self.state.life, Life::Removing | Life::Gone) {
            return Remove::Nothing;
        }
        self.state.life = Life::Removing;
        self.deadlines.remove(now, patience, ended);
        Remove::TearDown
    }

    /// The disks are gone, and the target is logged out.
    pub const fn log_out(&mut self) {
        self.deadlines.end_removal();
        if matches!(self.state.link, Link::Up) {
            self.state.link = Link::Closing;
        }
    }

    /// The teardown is done.
    pub const fn removed(&mut self) {
        if matches!(self.state.life, Life::Removing) {
            self.state.life = Life::Gone;
        }
    }

    /// The class takes the connection of an attempt.
    const fn take(&mut self, broken: bool, now: Ktime) -> Outcome {
        if broken {
            return Outcome::NotConnected;
        }
        self.state = State {
            life: Life::Live,
            link: Link::Up,
            attempt: Attempt::Taken,
            reset: Reset::None,
            failing: false,
            ..self.state
        };
        self.backoff.connected();
        self.since = now;
        Outcome::Accept
    }

    /// Decides about the next attempt, with none in flight.
    const fn retry(&mut self) -> Retry {
        match self.state.life {
            Life::Recovering if self.state.banned => {
                self.state.reset = Reset::None;
                Retry::GiveUp
            }
            Life::Recovering => Retry::Later,
            _ => Retry::None,
        }
    }

    const fn count(&mut self, cause: Cause, now: Ktime) {
        if matches!(cause, Cause::Violation) && self.strikes.add(now) >= MAX_STRIKES {
            self.ban();
        }
    }
}
