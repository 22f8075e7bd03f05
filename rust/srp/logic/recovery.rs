// SPDX-License-Identifier: GPL-2.0

//! How a session loses its connection and gets another: one table for the error path, the tries to
//! reconnect, and the handshake with the SRP transport class.
//!
//! ```text
//!            LoggedIn             Lost
//!  Connecting ------> Live ----------------> Recovering        Remove, from each of these four:
//!       |              ^                       |    |            Removing --Removed--> Gone
//!       | Lost         |        Commit         |    |
//!       +---> Failed   +-----------------------+    +-- link and attempt, below
//!
//!  link:     Up --Lost--> Lost --Ending--> Notifying --Notified--> Ending --Ended--> Down --Commit--> Up
//!            |               \---------(not Recovering)------------^           ^
//!            +--LogOut--> Closing --Lost--> Lost                             |
//!                                                                            |
//!  attempt:  None --Try--> Connecting --Connected--> Ready --Commit--> Taken --Returned--> None
//!             ^                 |                      |
//!             |              TryFailed      Returned, TryFailed
//!             +----TryEnded---- Failed <---------------+
//! ```
//!
//! The link is `Lost` at once, in any context, and ended by one work item. Nobody tries before it is
//! `Down`, when all commands are ended. A try runs on a thread of its own. One that has succeeded is
//! `Ready`, and becomes the connection of the session only when the class takes it by its callback,
//! which is `Commit`: so the class orders it with its timeouts.

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
    /// A caller of [`Event::Commit`] waits for the outcome of a try.
    pub asked: bool,
}

/// What happens to a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The login is done, and so is the scan for disks.
    LoggedIn,
    /// A login or a connection is of no more use.
    Lost(Cause),
    /// The work item that ends the connection has begun.
    Ending,
    /// The transport class knows that the connection is lost.
    Notified,
    /// All commands are ended.
    Ended,
    /// Somebody wants a try now.
    Hurry,
    /// The thread that tries has begun. `automatic`: tries that nobody asks for are wanted, too.
    Try {
        /// `reconnect_delay` is positive.
        automatic: bool,
    },
    /// Its login has succeeded.
    Connected,
    /// Its login has failed.
    TryFailed,
    /// What a failed try has made is ended.
    TryEnded,
    /// The transport class wants a connection.
    Commit {
        /// Its timeouts block the port while there is none.
        blocks: bool,
        /// For the class the port is running.
        running: bool,
    },
    /// The caller of that has waited for a try.
    Outcome,
    /// The class has returned to the thread whose try it was to take.
    Returned,
    /// `fast_io_fail_tmo` has passed, or the class gives the port up.
    FailFast,
    /// The target has broken the protocol too often.
    Banned,
    /// Somebody wants the session gone: log-out, module unload, device removal, a login that failed,
    /// a target that was away for too long.
    Remove,
    /// The disks are gone, and the target is told so.
    LogOut,
    /// The removal is done.
    Removed,
}

/// What the caller has to do after an event.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// The event came too late: to give up what was to follow.
    Refuse,
    /// To set the timers of a connection that is new.
    StartTimers,
    /// To queue the work item that ends the connection.
    End {
        /// It is to be told why.
        say: bool,
    },
    /// To tell why the connection that is being made is of no use.
    Say,
    /// To tell the transport class that the connection is lost, and then end the commands.
    Notify,
    /// To end the commands.
    EndCommands,
    /// To begin a try, or another one after the one that is under way.
    Try,
    /// The same, within the time that spreads the tries of a timer.
    TrySpread,
    /// To begin a try after the pause that it has.
    TryLater,
    /// To tell that there will be no more tries.
    GiveUp,
    /// To log in.
    Connect,
    /// To have the class take the connection.
    Take,
    /// To end what the try has made.
    EndAttempt,
    /// To have the session removed: [`Event::Remove`].
    Remove,
    /// To queue the work item that removes it.
    TearDown,
    /// To wait until the link is down, to hurry, to wait until nobody is [`State::asked`], and then
    /// to cause [`Event::Outcome`].
    Wait,
    /// The class may go on as if there were a connection.
    Accept,
    /// To tell the class that there is no connection yet.
    InProgress,
    /// To tell the class that the session is ending.
    NoDevice,
    /// To tell the class that the new connection is lost already.
    NotConnected,
    /// To tell the class that the target has broken the protocol too often.
    Protocol,
}

impl State {
    /// A session that logs in.
    pub const fn new() -> Self {
        Self {
            life: Life::Connecting,
            link: Link::Up,
            attempt: Attempt::None,
            reset: Reset::None,
            failing: false,
            banned: false,
            asked: false,
        }
    }

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

    const fn living(self, life: Life) -> Self {
        Self { life, ..self }
    }

    const fn linked(self, link: Link) -> Self {
        Self { link, ..self }
    }

    const fn trying(self, attempt: Attempt) -> Self {
        Self { attempt, ..self }
    }

    const fn wanting(self, reset: Reset) -> Self {
        Self { reset, ..self }
    }

    const fn asked(self, asked: bool) -> Self {
        Self { asked, ..self }
    }

    /// The class has the connection that a try has made.
    const fn commit(self, broken: bool) -> (Self, Action) {
        if broken {
            return (self, Action::NotConnected);
        }
        let live = Self {
            life: Life::Live,
            link: Link::Up,
            attempt: Attempt::Taken,
            reset: Reset::None,
            failing: false,
            ..self
        };
        (live, Action::Accept)
    }

    /// A session that is down, with no try under way.
    const fn rest(self) -> (Self, Action) {
        match self.life {
            Life::Recovering if self.banned => (self.wanting(Reset::None), Action::GiveUp),
            Life::Recovering => (self, Action::TryLater),
            Life::Failed => (self, Action::Remove),
            _ => (self, Action::Nothing),
        }
    }

    const fn lost(self, cause: Cause) -> (Self, Action) {
        let reset = match cause {
            Cause::Reset => Reset::Wanted,
            Cause::Plain | Cause::Violation => Reset::None,
        };
        if !self.is_lost() {
            let life = match self.life {
                Life::Connecting => Life::Failed,
                Life::Live => Life::Recovering,
                life => life,
            };
            let say = matches!(self.link, Link::Up);
            let lost = self.living(life).linked(Link::Lost).wanting(reset);
            return (lost, Action::End { say });
        }
        if matches!(cause, Cause::Reset) {
            // Whoever wants this gets a try, or what is being made if that succeeds.
            let action = match self.may_try() {
                true => Action::Try,
                false => Action::Nothing,
            };
            return (self.wanting(reset), action);
        }
        // It may be of the connection that is being made, which nobody else would tell of.
        let attempt = match self.attempt {
            Attempt::Connecting { broken: false } => Attempt::Connecting { broken: true },
            Attempt::Ready { broken: false } => Attempt::Ready { broken: true },
            _ => return (self, Action::Nothing),
        };
        let action = match self.life {
            Life::Recovering => Action::Say,
            _ => Action::Nothing,
        };
        (self.trying(attempt), action)
    }

    /// The work item that ends the connection has come so far.
    const fn ending(self, event: Event) -> (Self, Action) {
        match (event, self.link) {
            (Event::Ending, Link::Lost) if matches!(self.life, Life::Recovering) => {
                (self.linked(Link::Notifying), Action::Notify)
            }
            (Event::Ending, Link::Lost) | (Event::Notified, Link::Notifying) => {
                (self.linked(Link::Ending), Action::EndCommands)
            }
            (Event::Ended, Link::Ending) => self.linked(Link::Down).rest(),
            _ => (self, Action::Refuse),
        }
    }

    /// The thread that tries begins.
    const fn begin(self, automatic: bool) -> (Self, Action) {
        let unasked = self.asked(false);
        if self.banned {
            return (unasked.wanting(Reset::None), Action::Nothing);
        }
        let reset = match self.reset {
            Reset::Wanted => Reset::Tried,
            reset if automatic => reset,
            _ => return (unasked, Action::Nothing),
        };
        if !self.may_try() || !matches!(self.attempt, Attempt::None) {
            return (unasked, Action::Nothing);
        }
        let attempt = Attempt::Connecting { broken: false };
        (self.trying(attempt).wanting(reset), Action::Connect)
    }

    /// It has come so far.
    const fn tried(self, event: Event) -> (Self, Action) {
        match (event, self.attempt) {
            (Event::Connected, Attempt::Connecting { broken }) => {
                let ready = self.trying(Attempt::Ready { broken });
                (ready.asked(false), Action::Take)
            }
            (Event::TryFailed, Attempt::Connecting { .. })
            | (Event::Returned, Attempt::Ready { .. }) => {
                (self.trying(Attempt::Failed), Action::EndAttempt)
            }
            (Event::Returned, Attempt::Taken) => (self.trying(Attempt::None), Action::StartTimers),
            (Event::TryEnded, Attempt::Failed) => {
                let reset = match self.reset {
                    // One that came meanwhile has a try of its own.
                    Reset::Wanted => Reset::Wanted,
                    Reset::Tried | Reset::None => Reset::None,
                };
                let over = self.trying(Attempt::None).wanting(reset);
                over.asked(false).rest()
            }
            _ => (self, Action::Refuse),
        }
    }

    /// The transport class wants a connection.
    const fn wanted(self, blocks: bool, running: bool) -> (Self, Action) {
        match self.life {
            Life::Live => return (self, Action::Accept),
            Life::Recovering => {}
            _ => return (self, Action::NoDevice),
        }
        // While the class is to hear of the loss, it must not take this for a try that failed.
        let notified = match self.link {
            Link::Ending | Link::Down => true,
            Link::Notifying => blocks && !running,
            Link::Up | Link::Closing | Link::Lost => false,
        };
        if !notified {
            return (self, Action::Accept);
        }
        if self.banned {
            return (self, Action::Protocol);
        }
        match self.attempt {
            Attempt::Ready { broken } => self.commit(broken),
            Attempt::None if blocks => (self, Action::TrySpread),
            _ if blocks => (self, Action::InProgress),
            // The caller is the thread of this try, or has that wait: what was taken was lost at once. There
            // will be another try, which this must not wait for.
            Attempt::Taken => (self, Action::Accept),
            // There is no timeout that would be late, and an error would have the commands fail.
            _ => (self.asked(true), Action::Wait),
        }
    }
}

/// The state after `event`, and what is to be done.
pub const fn next(state: State, event: Event) -> (State, Action) {
    match (event, state.life) {
        (Event::LoggedIn, Life::Connecting) => (state.living(Life::Live), Action::StartTimers),
        (Event::LoggedIn, _) => (state, Action::Refuse),
        (Event::Lost(cause), _) => state.lost(cause),
        (Event::Ending | Event::Notified | Event::Ended, _) => state.ending(event),
        (Event::Hurry, _) if state.may_try() => (state, Action::Try),
        (Event::Hurry, _) => (state, Action::Nothing),
        (Event::Try { automatic }, _) => state.begin(automatic),
        (Event::Connected | Event::TryFailed | Event::TryEnded | Event::Returned, _) => {
            state.tried(event)
        }
        (Event::Commit { blocks, running }, _) => state.wanted(blocks, running),
        (Event::Outcome, Life::Recovering) => match state.attempt {
            Attempt::Ready { broken } => state.commit(broken),
            _ => (state, Action::InProgress),
        },
        (Event::Outcome, Life::Live) => (state, Action::Accept),
        (Event::Outcome, _) => (state, Action::NoDevice),
        (Event::FailFast, _) => {
            let failing = true;
            (State { failing, ..state }, Action::Nothing)
        }
        (Event::Banned, _) => {
            let banned = true;
            (State { banned, ..state }, Action::Nothing)
        }
        (Event::Remove, Life::Removing | Life::Gone) => (state, Action::Nothing),
        (Event::Remove, _) => (state.living(Life::Removing), Action::TearDown),
        (Event::LogOut, _) => match state.link {
            Link::Up => (state.linked(Link::Closing), Action::Nothing),
            _ => (state, Action::Nothing),
        },
        (Event::Removed, Life::Removing) => (state.living(Life::Gone), Action::Nothing),
        (Event::Removed, _) => (state, Action::Refuse),
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of a session, and what it remembers of its losses and tries.
#[derive(Clone, Copy, Debug, Default)]
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
        Self {
            state: State::new(),
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

    /// `event` happens at the time `now`.
    pub const fn on(&mut self, event: Event, now: Ktime) -> Action {
        let before = self.state;
        let (after, action) = next(before, event);
        self.state = after;
        match (event, action) {
            (Event::LoggedIn, Action::StartTimers) => self.since = now,
            (Event::Lost(cause), Action::End { .. }) => {
                self.backoff.lost(now.ns_since(self.since), cause);
                self.count(cause, now);
            }
            (Event::Lost(cause), Action::Say) => self.count(cause, now),
            (Event::Lost(Cause::Reset), _) => self.backoff.hurry(),
            (Event::TryEnded, Action::TryLater | Action::GiveUp | Action::Nothing) => {
                self.backoff.failed()
            }
            (Event::Commit { .. }, Action::TrySpread | Action::Wait) => self.backoff.wanted(),
            (Event::Commit { .. } | Event::Outcome, Action::Accept)
                if before.is_lost() && !after.is_lost() =>
            {
                self.backoff.connected();
                self.since = now;
            }
            _ => {}
        }
        action
    }

    /// An event of the port, which is none of the table's: see [`Backoff::event`].
    pub const fn port_event(&mut self, now: Ktime) -> u32 {
        self.backoff.event(now, self.state.is_lost())
    }

    /// The target has broken the protocol on a connection that is not the session's yet.
    pub const fn strike(&mut self, now: Ktime) {
        self.count(Cause::Violation, now);
    }

    const fn count(&mut self, cause: Cause, now: Ktime) {
        if matches!(cause, Cause::Violation) {
            self.strikes.add(now);
            if self.strikes.is_out() {
                self.state = next(self.state, Event::Banned).0;
            }
        }
    }
}
