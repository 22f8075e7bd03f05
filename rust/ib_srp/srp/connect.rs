// SPDX-License-Identifier: GPL-2.0

//! The login of each channel: address, route, connection, SRP login.
//!
//! The first channel connects alone, because it tells the target to end our older channels. The
//! others go through the steps together, and those that fail are left out. The answer channels
//! follow in the same way: they carry responses to requests on the other channels.
//!
//! A request ends with its response, when the connection manager gives up, or when the target has
//! been silent for too long. In the last case, the connection manager notifies the target. A target
//! that answers other logins, or has asked for time, is busy, and the login waits for it.

mod channel_login;
mod events;
mod ib_cm;
mod login_context;
mod rdma_cm;
mod throttle;

use super::{
    channel::{
        Channel,
        Connection, //
    },
    channels::Channels,
    error::LoginFailure,
    ktime::{
        ktime_get,
        Ktime, //
    },
    log::session_log,
    logic::time::ANSWER_CHANNEL_TIMEOUT_MS,
    proto::login_iu::{
        Granted,
        MultiChannel, //
    },
    status::Owner, //
};
use crate::rdma::pd::Pd;
use channel_login::{
    no_channel,
    Candidate,
    Opened, //
};
use core::{
    cell::Cell,
    iter::once, //
};
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::Arc,
    time::Msecs, //
};
use throttle::Permit;

pub use ib_cm::Service;
pub use login_context::{
    AnswerNode,
    Destination,
    LoginContext, //
    LoginParams,
};
pub use rdma_cm::Address;
pub use throttle::Throttle;

/// Length of one wait for a permit, in milliseconds.
const PERMIT_MS: Msecs = 10_000;
/// When a session reconnects, a TCP connection of an iWARP device that is not established after
/// this many milliseconds is closed and opened again. TCP retries each second for five seconds,
/// then more rarely.
const OPEN_AGAIN_MS: Msecs = 5_500;

/// Purpose of a login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A new session.
    First,
    /// A session that has lost its connection.
    Again,
    /// The channels that a session lacks.
    More,
}

/// A login in progress.
pub struct Login<'a> {
    logins: &'a Arc<LoginContext>,
    owner: Arc<dyn Owner>,
    purpose: Purpose,
    pd: Arc<Pd>,
    /// Milliseconds of silence of the target, to all logins, after which this login gives up.
    patience: Cell<Msecs>,
    /// The permit of this login, while it holds one.
    permit: Cell<Option<Permit>>,
    /// Time at which the wait for the current group of channels began.
    asked: Cell<Option<Ktime>>,
    /// Connections that have failed. Their queue pairs are destroyed together, after one grace
    /// period.
    retired: Cell<KVec<Arc<Connection>>>,
}

impl<'a> Login<'a> {
    /// Waits for a permit at the target. From then on, the login is given up when the target has
    /// been silent for `patience` milliseconds, to this login and to all others. Channels are
    /// created in `pd`, and `owner` is notified of their events. Sleeps.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::Removed`] if the session is ending, [`LoginFailure::Signal`] after a signal.
    pub fn new(
        logins: &'a Arc<LoginContext>,
        owner: Arc<dyn Owner>,
        pd: Arc<Pd>,
        purpose: Purpose,
        patience: Msecs,
    ) -> Result<Self, LoginFailure> {
        let this = Self {
            logins,
            owner,
            purpose,
            pd,
            patience: Cell::new(patience),
            permit: Cell::new(None),
            asked: Cell::new(None),
            retired: Cell::new(KVec::new()),
        };
        while !this.is_over() {
            // The end of the session interrupts the wait.
            let permit = logins.waiting.run(|| match this.is_over() {
                true => Ok(None),
                false => logins.throttle.acquire(PERMIT_MS),
            });
            match permit {
                Ok(Some(permit)) => {
                    this.permit.set(Some(permit));
                    if purpose != Purpose::More {
                        logins.status.statistics.login_tries.increment();
                    }
                    return Ok(this);
                }
                // Only the process of a first login gets signals. A work item is interrupted when
                // the session ends.
                Err(_) if purpose == Purpose::First && !this.is_over() => {
                    return Err(LoginFailure::Signal);
                }
                Ok(None) | Err(_) => {}
            }
        }
        Err(LoginFailure::Removed)
    }

    /// The protection domain of all channels.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Creates and connects the channels of a new session, as many as the device has room for.
    /// Returns the channels, and the grants to those that the target accepted. Sleeps.
    ///
    /// # Errors
    ///
    /// If the first channel fails, the session ends, or a signal arrives.
    pub fn first(&self) -> Result<(Channels, KVec<Granted>), LoginFailure> {
        let (logins, status) = (self.logins, &self.logins.status);
        let (first, leader) = self.lead(None)?;
        let mut channels = Channels::default();
        channels.push(first).map_err(memory)?;
        let wanted = status.geometry.all_channels();
        for index in 1..wanted {
            match self.channel(index, &[]) {
                Ok(channel) => channels.push(channel).map_err(memory)?,
                Err(e) => {
                    session_log!(
                        Warning,
                        status,
                        "resources for only {index} of {wanted} channels: error {}",
                        e.to_errno()
                    );
                    break;
                }
            }
        }
        let others = channels.iter().skip(1);
        let granted = self.follow("channels", others, Some(leader))?;
        // CAST: At most `wanted` channels, of 16 bits.
        for (index, _) in (channels.len() as u16..).zip(&logins.params.answers_from) {
            let answers = self.channel(index, &channels).map_err(no_channel)?;
            channels.push_answer_channel(answers).map_err(memory)?;
        }
        self.connect_answer_channels(&channels)?;
        Ok((channels, granted))
    }

    /// Connects the channels of a session that has lost its connection, except answer channels.
    /// Returns how many are connected. Sleeps.
    ///
    /// # Errors
    ///
    /// If the memory regions cannot be renewed, the first channel fails, or the session ends. Some
    /// channels may be connected then.
    pub fn again(&self, channels: &Channels) -> Result<usize, LoginFailure> {
        let (first, others) = channels.split_first().ok_or(LoginFailure::Removed)?;
        let renewed = channels.iter().try_for_each(|c| c.renew_regions());
        renewed.map_err(|e| LoginFailure::Step("memory regions", e))?;
        let (_, leader) = self.lead(Some(first))?;
        Ok(self.follow("channels", others.iter(), Some(leader))?.len())
    }

    /// Connects as many missing channels as possible; with `answer_channels`, answer channels too.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// If the session ends or has lost its connection. If no missing channel could be connected,
    /// the failure of the last one.
    pub fn more(&self, channels: &Channels, answer_channels: bool) -> Result<(), LoginFailure> {
        let missing = channels.iter().filter(|c| !c.is_open());
        let result = self.follow("channels", missing, None);
        if let Err(why @ (LoginFailure::Signal | LoginFailure::Removed)) = result {
            return Err(why);
        }
        if answer_channels {
            self.connect_answer_channels(channels)?;
        }
        result.map(|_| ())
    }

    /// Connects the missing answer channels. Their peers may be down while the target is up.
    fn connect_answer_channels(&self, channels: &Channels) -> Result<(), LoginFailure> {
        self.patience.set(ANSWER_CHANNEL_TIMEOUT_MS);
        self.asked.set(None);
        let missing = channels.answer_channels().iter().filter(|c| !c.is_open());
        self.follow("answer channels", missing, None).map(|_| ())
    }

    /// Creates a channel, see [`Channel::new`]. Sleeps.
    fn channel(&self, index: u16, answered: &[Arc<Connection>]) -> Result<Arc<Connection>> {
        Channel::new(&self.logins.status, &self.owner, index, &self.pd, answered)
    }

    /// Connects the first channel, and creates it if not given. The target drops the channels of an
    /// earlier connection.
    fn lead(&self, first: Option<&Arc<Connection>>) -> Result<Opened, LoginFailure> {
        let (leader, lost) = self.open_all(once(first), MultiChannel::Single)?;
        let opened = leader.first().and_then(Candidate::opened);
        opened.ok_or(lost.unwrap_or(LoginFailure::Removed))
    }

    /// Connects further channels, called `name` in the log. Returns the grants of the target: that
    /// to the leader, if given, and those to these channels.
    fn follow<'b>(
        &self,
        name: &str,
        others: impl Iterator<Item = &'b Arc<Connection>>,
        leader: Option<Granted>,
    ) -> Result<KVec<Granted>, LoginFailure> {
        let mut wanted = usize::from(leader.is_some());
        let others = others.inspect(|_| wanted += 1);
        let (open, lost) = self.open_all(others.map(Some), MultiChannel::Multi)?;
        self.destroy_retired();
        self.permit.set(None);
        let mut granted = KVec::new();
        let others = open.iter().filter_map(Candidate::opened);
        for grant in Iterator::chain(leader.into_iter(), others.map(|(_, granted)| granted)) {
            granted.push(grant, GFP_KERNEL).map_err(memory)?;
        }
        match lost {
            Some(why) if self.purpose == Purpose::More && granted.is_empty() => return Err(why),
            Some(why) => session_log!(
                Warning,
                self.logins.status,
                "only {} of {wanted} {name} connected: {why}",
                granted.len()
            ),
            None => {}
        }
        Ok(granted)
    }

    /// Takes channels through all steps of a login. Starts each step for all of them before it
    /// waits for one. Returns the open channels, and the failure of the last of the others.
    ///
    /// # Errors
    ///
    /// A failure of the whole login.
    fn open_all<'b, 'c>(
        &'c self,
        all: impl Iterator<Item = Option<&'b Arc<Connection>>>,
        multichannel: MultiChannel,
    ) -> Result<(KVec<Candidate<'c>>, Option<LoginFailure>), LoginFailure> {
        let (mut list, mut lost) = (KVec::new(), None);
        for connection in all {
            let candidate = Candidate::new(self, connection, multichannel);
            keep(&mut list, candidate, &mut lost)?;
        }
        while !list.iter().all(|c| c.opened().is_some()) {
            for mut candidate in core::mem::take(&mut list) {
                let step = candidate.advance().map(|()| candidate);
                keep(&mut list, step, &mut lost)?;
            }
        }
        Ok((list, lost))
    }

    /// Calls `request`, which may wait without a deadline: an iWARP device opens the TCP connection
    /// in the connect request, with TCP's own retries. The wait is interrupted at the time
    /// limit or when the session ends. The target has then not received the login request.
    fn in_time(
        &self,
        throttle: &Arc<Throttle>,
        request: impl FnOnce() -> Result<(), LoginFailure>,
    ) -> Result<(), LoginFailure> {
        let logins = self.logins;
        let now = ktime_get();
        let asked = match Arc::ptr_eq(throttle, &logins.throttle) {
            true => self.asked.get().unwrap_or(now),
            // Each answering peer has a time limit of its own.
            false => now,
        };
        self.asked.set(Some(asked));
        // Earlier channels may have used up some of the time.
        let left = self.patience.get().saturating_sub(throttle.silence(asked));
        let limit = match self.purpose {
            Purpose::First | Purpose::More => left,
            Purpose::Again => left.min(OPEN_AGAIN_MS),
        };
        let timeout = Err(LoginFailure::Timeout("connect request"));
        logins.waiting.run(|| {
            if self.is_over() {
                return Err(LoginFailure::Removed);
            }
            if limit == 0 {
                return timeout;
            }
            match logins.waiting.at_most(limit, request) {
                (Err(LoginFailure::Signal), _) if self.is_over() => Err(LoginFailure::Removed),
                // Only the process of a first login may have other signals.
                (Err(LoginFailure::Signal), over) if over || self.purpose != Purpose::First => {
                    timeout
                }
                (result, _) => result,
            }
        })
    }

    /// Keeps a failed connection until [`Self::destroy_retired`].
    fn retire(&self, connection: &Arc<Connection>) {
        let mut all = self.retired.take();
        if all.push(connection.clone(), GFP_KERNEL).is_err() {
            connection.destroy();
        }
        self.retired.set(all);
    }

    /// Destroys the queue pairs of all failed connections. Sleeps.
    fn destroy_retired(&self) {
        for connection in self.retired.take() {
            connection.destroy();
        }
    }

    /// Whether to abandon this login.
    fn is_over(&self) -> bool {
        let state = self.logins.status.state();
        state.is_ending() || self.purpose != Purpose::Again && state.is_lost()
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        self.permit.set(None);
        self.destroy_retired();
    }
}

/// Adds a channel that has completed a step to `list`. Drops a failed channel, and returns a
/// failure of the whole login.
fn keep<T>(
    list: &mut KVec<T>,
    step: Result<T, LoginFailure>,
    lost: &mut Option<LoginFailure>,
) -> Result<(), LoginFailure> {
    match step {
        Ok(channel) => list.push(channel, GFP_KERNEL).map_err(memory),
        Err(why @ (LoginFailure::Signal | LoginFailure::Removed)) => Err(why),
        Err(why) => {
            *lost = Some(why);
            Ok(())
        }
    }
}

fn memory(_: AllocError) -> LoginFailure {
    LoginFailure::Step("channel list", ENOMEM)
}
