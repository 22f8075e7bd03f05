// SPDX-License-Identifier: GPL-2.0

//! How a session loses its connection and gets another: one table for the error path, the tries to
//! reconnect, and the handshake with the SRP transport class.
//!
//! ```text
//!           logged_in              lost
//!  Connecting ------> Live ----------------> Recovering        remove, from each of these four:
//!       |              ^                       |    |            Removing --removed--> Gone
//!       | lost         |        commit         |    |
//!       +---> Failed   +-----------------------+    +-- link and try, below
//!
//! link: Up --lost--> Lost --ending--> Notifying --notified--> Ending --ended--> Down -commit-> Up
//!       |               \---------(not Recovering)------------^           ^
//!       +--log_out--> Closing --lost--> Lost                            |
//!                                                                       |
//! try:  None --begin_try--> Connecting --connected--> Ready --commit--> Taken --returned--> None
//!        ^                      |                       |
//!        |                  try_failed               returned
//!        +----try_ended---- Failed <--------------------+
//! ```
//!
//! The link is `Lost` at once, in any context, and ended by one work item. No try begins before it
//! is `Down`, when all commands are ended. A try runs on a thread of its own. One that has
//! succeeded is `Ready`, and becomes the connection of the session only when the class takes it by
//! its callback, which is `commit`: so the class orders it with its timeouts.
//!
//! Each event is a method of [`Recovery`]. Its type lists what the caller can have to do next.
//! Callers match it without `_`, so that a new outcome does not compile until each of them handles
//! it.

use super::{
    backoff::{
        Backoff,
        Cause, //
    },
    ktime::Ktime,
    session::Life,
    strikes::Strikes, //
};

/// The connection of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Link {
    /// Commands can be sent, or the login is making it.
    Up,
    /// The log-out has begun, so that its end is no news.
    Closing,
    /// It is of no more use, and a work item that ends it is queued.
    Lost,
    /// The transport class is told of that, and knows it if its timeouts have blocked the port.
    Notifying,
    /// The class knows, if there will be another connection. The commands are ended.
    Ending,
    /// All commands are ended, and the queue pairs are gone.
    Down,
}

/// A try to reconnect: where the thread is that makes it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Attempt {
    /// There is none.
    None,
    /// It connects.
    Connecting {
        /// Something has failed since it began.
        broken: bool,
    },
    /// It has succeeded, and waits for the transport class to take it.
    Ready {
        /// As above.
        broken: bool,
    },
    /// The class has taken the connection, and its call has not returned.
    Taken,
    /// It has failed, and what was made is being ended.
    Failed,
}

/// A reset of the host, which wants one try, whatever the pause between tries is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reset {
    /// Nobody waits for one.
    None,
    /// The next try is for it.
    Wanted,
    /// The present try is.
    Tried,
}

/// All that is decided together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    /// The life of the session.
    pub life: Life,
    /// Its connection.
    pub link: Link,
    /// The try to get another.
    pub attempt: Attempt,
    /// The reset that somebody waits for.
    pub reset: Reset,
    /// Commands fail at once: the target has been away for `fast_io_fail_tmo`.
    pub failing: bool,
    /// The target has broken the protocol too often: there are no more tries.
    pub banned: bool,
    /// A caller of [`Recovery::commit`] waits for the outcome of a try.
    pub asked: bool,
}

/// What the caller of [`Recovery::logged_in`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoggedIn {
    /// Set the timers of the connection: the session is live.
    StartTimers,
    /// Fail the login: the connection is lost already, or the session is ending.
    TooLate,
}

/// What the caller of [`Recovery::lost`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// Queue the work item that ends the connection.
    End {
        /// Log why, too.
        say: bool,
    },
    /// Log why the connection that is being made has failed.
    Say,
    /// Begin a try, or another one after the one that is under way.
    Try,
    /// Nothing: the connection is lost already.
    Nothing,
}

/// What the caller of [`Recovery::ending`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// Tell the transport class that the connection is lost, report [`Recovery::notified`], and end
    /// the commands.
    Notify,
    /// End the commands.
    EndCommands,
}

/// What the caller of [`Recovery::ended`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Remove the session: the login has failed.
    Remove,
    /// See about the next try.
    Retry(Retry),
}

/// The next try of a session that is down, with none under way.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// Begin it after its pause.
    Later,
    /// There is none: log that the target has broken the protocol too often.
    GiveUp,
    /// There is none: the session is ending.
    None,
}

/// What the caller of [`Recovery::begin_try`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BeginTry {
    /// Log in.
    Connect,
    /// Stop: no try is wanted now.
    Nothing,
}

/// What the caller of [`Recovery::returned`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Returned {
    /// Set the timers of the connection: it is the session's.
    StartTimers,
    /// End what the try has made, and report [`Recovery::try_ended`]: the class has not taken it.
    EndTry,
}

/// What the caller of [`Recovery::commit`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Commit {
    /// Tell the class.
    Outcome(Outcome),
    /// Begin a try, within the time that spreads the tries of a timer, and tell the class that
    /// there is no connection yet.
    TrySpread,
    /// Wait until the link is down, begin a try, wait until [`State::asked`] clears, and report
    /// [`Recovery::waited`].
    Wait,
    /// Tell the class that the target has broken the protocol too often.
    Protocol,
}

/// What the transport class gets to know.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It may go on as if there were a connection.
    Accept,
    /// There is no connection yet.
    InProgress,
    /// The new connection is lost already.
    NotConnected,
    /// The session is ending.
    NoDevice,
}

/// What the caller of [`Recovery::remove`] does next.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remove {
    /// Queue the work item that removes the session.
    TearDown,
    /// Nothing: another call has queued it.
    Nothing,
}

impl State {
    /// There is no connection, or it is of no more use.
    pub const fn is_lost(&self) -> bool {
        !matches!(self.link, Link::Up | Link::Closing)
    }

    /// That, and all commands are ended.
    pub const fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    /// A try may be begun.
    pub const fn may_try(&self) -> bool {
        matches!(self.life, Life::Recovering) && self.is_down()
    }

    /// The session is live again, or commands fail and nothing is under way that could make it so; and a reset has had its
    /// try.
    pub const fn is_settled(&self) -> bool {
        let settled = match self.life {
            Life::Connecting => false,
            // The port is running, too.
            Life::Live => !matches!(self.attempt, Attempt::Taken),
            Life::Recovering => {
                let nearly = matches!(self.attempt, Attempt::Ready { .. } | Attempt::Taken);
                (self.failing || self.banned) && !nearly
            }
            Life::Failed | Life::Removing | Life::Gone => return true,
        };
        settled && matches!(self.reset, Reset::None)
    }
}

/// The state of a session, and what it remembers of its losses and tries. An event that comes in a
/// state that it does not belong to changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    state: State,
    backoff: Backoff,
    strikes: Strikes,
    /// When the connection came up.
    since: Ktime,
}

impl Recovery {
    /// A session that logs in.
    pub const fn new() -> Self {
        Self::of(State {
            life: Life::Connecting,
            link: Link::Up,
            attempt: Attempt::None,
            reset: Reset::None,
            failing: false,
            banned: false,
            asked: false,
        })
    }

    /// A session in this state, which remembers nothing.
    pub const fn of(state: State) -> Self {
        Self {
            state,
            backoff: Backoff::new(),
            strikes: Strikes::new(),
            since: Ktime::from_ns(0),
        }
    }

    /// The state now.
    pub const fn state(&self) -> State {
        self.state
    }

    /// When the next try is made, and how many have failed.
    pub const fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// Violations of the protocol so far.
    pub const fn strikes(&self) -> Strikes {
        self.strikes
    }

    /// The login is done, and so is the scan for disks.
    pub const fn logged_in(&mut self, now: Ktime) -> LoggedIn {
        if !matches!(self.state.life, Life::Connecting) {
            return LoggedIn::TooLate;
        }
        self.state.life = Life::Live;
        self.since = now;
        LoggedIn::StartTimers
    }

    /// A connection is lost: the session's, the login's, or the one that a try makes.
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
            self.state.reset = if reset { Reset::Wanted } else { Reset::None };
            self.backoff.lost(now.ns_since(self.since), cause);
            self.count(cause, now);
            return Loss::End { say };
        }
        if reset {
            // The caller gets a try, or what is being made if that succeeds.
            self.state.reset = Reset::Wanted;
            self.backoff.hurry();
            return match self.state.may_try() {
                true => Loss::Try,
                false => Loss::Nothing,
            };
        }
        // It may be of the connection that is being made, whose loss is told here only.
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

    /// The transport class knows that the connection is lost.
    pub const fn notified(&mut self) {
        if matches!(self.state.link, Link::Notifying) {
            self.state.link = Link::Ending;
        }
    }

    /// All commands are ended.
    pub const fn ended(&mut self) -> Ended {
        if !matches!(self.state.link, Link::Ending) {
            return Ended::Retry(Retry::None);
        }
        self.state.link = Link::Down;
        match self.state.life {
            Life::Failed => Ended::Remove,
            _ => Ended::Retry(self.retry()),
        }
    }

    /// The thread that tries has begun. `automatic`: `reconnect_delay` is positive, so tries that
    /// no caller asks for are wanted, too.
    pub const fn begin_try(&mut self, automatic: bool) -> BeginTry {
        let reset = matches!(self.state.reset, Reset::Wanted);
        let free = self.state.may_try() && matches!(self.state.attempt, Attempt::None);
        if self.state.banned {
            self.state.reset = Reset::None;
        } else if free && (reset || automatic) {
            if reset {
                self.state.reset = Reset::Tried;
            }
            self.state.attempt = Attempt::Connecting { broken: false };
            return BeginTry::Connect;
        }
        self.state.asked = false;
        BeginTry::Nothing
    }

    /// The login of the try has succeeded: the class is to take the connection.
    pub const fn connected(&mut self) {
        if let Attempt::Connecting { broken } = self.state.attempt {
            self.state.attempt = Attempt::Ready { broken };
            self.state.asked = false;
        }
    }

    /// The login of the try has failed: what it has made is to be ended.
    pub const fn try_failed(&mut self) {
        if matches!(self.state.attempt, Attempt::Connecting { .. }) {
            self.state.attempt = Attempt::Failed;
        }
    }

    /// The class has returned to the thread whose try it was to take.
    pub const fn returned(&mut self) -> Returned {
        match self.state.attempt {
            Attempt::Ready { .. } => {
                self.state.attempt = Attempt::Failed;
                return Returned::EndTry;
            }
            Attempt::Taken => self.state.attempt = Attempt::None,
            _ => {}
        }
        Returned::StartTimers
    }

    /// What a failed try has made is ended.
    pub const fn try_ended(&mut self) -> Retry {
        if !matches!(self.state.attempt, Attempt::Failed) {
            return Retry::None;
        }
        self.state.attempt = Attempt::None;
        self.state.asked = false;
        // A reset that came meanwhile has a try of its own.
        if matches!(self.state.reset, Reset::Tried) {
            self.state.reset = Reset::None;
        }
        self.backoff.failed();
        self.retry()
    }

    /// The transport class wants a connection. `blocks`: its timeouts block the port while there is
    /// none. `running`: for the class the port is running.
    pub const fn commit(&mut self, blocks: bool, running: bool, now: Ktime) -> Commit {
        match self.state.life {
            Life::Live => return Commit::Outcome(Outcome::Accept),
            Life::Recovering => {}
            _ => return Commit::Outcome(Outcome::NoDevice),
        }
        // While the class is to hear of the loss, it must not take this for a try that failed.
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
                Commit::TrySpread
            }
            _ if blocks => Commit::Outcome(Outcome::InProgress),
            // The caller is the thread of this try, or has that wait: what was taken was lost at once. There
            // will be another try, which this must not wait for.
            Attempt::Taken => Commit::Outcome(Outcome::Accept),
            // There is no timeout that would be late, and an error would have the commands fail.
            _ => {
                self.state.asked = true;
                self.backoff.wanted();
                Commit::Wait
            }
        }
    }

    /// The caller of [`Self::commit`] has waited for a try.
    pub const fn waited(&mut self, now: Ktime) -> Outcome {
        match (self.state.life, self.state.attempt) {
            (Life::Live, _) => Outcome::Accept,
            (Life::Recovering, Attempt::Ready { broken }) => self.take(broken, now),
            (Life::Recovering, _) => Outcome::InProgress,
            _ => Outcome::NoDevice,
        }
    }

    /// `fast_io_fail_tmo` has passed, or the class gives the port up.
    pub const fn fail_fast(&mut self) {
        self.state.failing = true;
    }

    /// The target has broken the protocol on a connection that is not the session's yet.
    pub const fn strike(&mut self, now: Ktime) {
        self.count(Cause::Violation, now);
    }

    /// The target has broken the protocol too often.
    pub const fn ban(&mut self) {
        self.state.banned = true;
    }

    /// An event of the port, which is none of the table's: see [`Backoff::event`].
    pub const fn port_event(&mut self, now: Ktime) -> u32 {
        self.backoff.event(now, self.state.is_lost())
    }

    /// The session must go: log-out, module unload, device removal, a login that failed, a target
    /// that was away for too long.
    pub const fn remove(&mut self) -> Remove {
        if matches!(self.state.life, Life::Removing | Life::Gone) {
            return Remove::Nothing;
        }
        self.state.life = Life::Removing;
        Remove::TearDown
    }

    /// The disks are gone, and the target is told so.
    pub const fn log_out(&mut self) {
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

    /// The class takes the connection that a try has made.
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

    /// The session is down, and no try is under way.
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
        if matches!(cause, Cause::Violation) {
            self.strikes.add(now);
            if self.strikes.is_out() {
                self.ban();
            }
        }
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Self::new()
    }
}
