// SPDX-License-Identifier: GPL-2.0

//! The login of each channel: address, route, connection, SRP login.
//!
//! The first channel connects alone, because it tells the target to end our older channels. The
//! others go through the steps together, and those that fail are left out. The answer channels
//! follow in the same way: they carry responses to requests on the other channels.
//!
//! A request ends with its response, when the connection manager gives up, or when the target has
//! been silent for too long; then the connection manager notifies it. A target that answers other
//! logins, or has asked for time, is busy, and the login waits for it.

mod attempt;
mod connecting;
mod events;
mod ib;
mod nexus;
mod plan;
mod rdma;
mod throttle;
mod waiting;

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
    logic::timeouts::ANSWERS_TIMEOUT_MS,
    owner::Owner,
    proto::{
        login::{
            Granted,
            LoginRsp,
            MultiChannel,
            Requested, //
        },
        redirect::Redirect, //
    }, //
};
use crate::{
    random::random_u64,
    rdma::pd::Pd, //
};
use attempt::{
    Attempt,
    Terms, //
};
use connecting::{
    Connecting,
    Retired, //
};
use core::cell::Cell;
use events::{
    Progress,
    Response, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};
use throttle::{
    Permit,
    SILENCE_MS, //
};

pub use ib::Service;
pub use nexus::Nexus;
pub use plan::{
    AnswersFrom,
    Destination,
    Plan, //
};
pub use rdma::Address;
pub use throttle::Throttle;
pub use waiting::Waiting;

/// Maximum number of concurrent RDMA reads that we serve, if the device can.
const RESPONDER_RESOURCES: u8 = 16;
/// RNR retry count 7: no limit. The peer always has a receive posted for each credit that it
/// granted.
const RNR_RETRY_COUNT: u8 = 7;
/// Interval at which a waiting login checks whether the session has ended, in milliseconds.
const SLICE_MS: u32 = 100;
/// Length of one wait for a permit, in milliseconds.
const PERMIT_MS: Msecs = 10_000;
/// When a session reconnects, a TCP connection of an iWARP device that is not established after
/// this many milliseconds is opened anew. TCP retries each second for five seconds, then more
/// rarely.
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

/// A channel in address or route resolution.
struct Resolving {
    attempt: Arc<dyn Attempt>,
    /// `None` for channel 0 of a new session, which is created after route resolution.
    connection: Option<Arc<Connection>>,
}

/// A login in progress.
pub struct Login<'a> {
    nexus: &'a Arc<Nexus>,
    owner: Arc<dyn Owner>,
    purpose: Purpose,
    pd: Arc<Pd>,
    /// Milliseconds of silence of the target, to all logins, after which this login gives up.
    patience: Cell<Msecs>,
    /// The permit of this login, while it holds one.
    permit: Cell<Option<Permit>>,
    /// When the first connect request was sent.
    asked: Cell<Option<Ktime>>,
    retired: Retired,
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
        nexus: &'a Arc<Nexus>,
        owner: Arc<dyn Owner>,
        pd: Arc<Pd>,
        purpose: Purpose,
        patience: Msecs,
    ) -> Result<Self, LoginFailure> {
        let this = Self {
            nexus,
            owner,
            purpose,
            pd,
            patience: Cell::new(patience),
            permit: Cell::new(None),
            asked: Cell::new(None),
            retired: Retired::new(),
        };
        while !this.is_over() {
            // The end of the session interrupts the wait.
            let permit = nexus.waiting.run(|| match this.is_over() {
                true => Ok(None),
                false => nexus.throttle.acquire(PERMIT_MS),
            });
            match permit {
                Ok(None) => {}
                Ok(permit) => {
                    this.permit.set(permit);
                    if purpose != Purpose::More {
                        nexus.status.statistics.login_tries.increment();
                    }
                    return Ok(this);
                }
                // A process may have a signal; a work item has only the interrupt when the session
                // ends.
                Err(_) if purpose == Purpose::First && !this.is_over() => {
                    return Err(LoginFailure::Signal);
                }
                Err(_) => {}
            }
        }
        Err(LoginFailure::Removed)
    }

    /// The protection domain of all channels.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Creates and connects the channels of a new session, as many as the device has room for.
    /// Returns them, and what the target granted to those that it accepted. Sleeps.
    ///
    /// # Errors
    ///
    /// If the first channel fails, the session ends, or a signal arrives.
    pub fn first(&self) -> Result<(Channels, KVec<Granted>), LoginFailure> {
        let memory = |_| LoginFailure::Step("channel list", ENOMEM);
        let leader = self.lead(None)?;
        let mut channels = Channels::default();
        channels.push(leader.0.clone()).map_err(memory)?;
        for index in 1..self.nexus.status.geometry.all_channels() {
            match Channel::new(&self.nexus.status, &self.owner, index, &self.pd) {
                Ok(channel) => channels.push(channel).map_err(memory)?,
                Err(e) => {
                    session_log!(
                        Warning,
                        self.nexus.status,
                        "resources for only {} of {} channels: error {}",
                        index,
                        self.nexus.status.geometry.all_channels(),
                        e.to_errno()
                    );
                    break;
                }
            }
        }
        let others = channels.iter().skip(1);
        let mut granted = KVec::new();
        for (_, grant) in self.follow("channels", others, Some(leader))? {
            granted.push(grant, GFP_KERNEL).map_err(memory)?;
        }
        for number in 0..self.nexus.plan.answers_from.len() {
            let status = &self.nexus.status;
            let answers = Channel::answering(status, &self.owner, number, &self.pd, &channels)
                .map_err(|e| LoginFailure::Step("answer channel", e))?;
            channels.push_answers(answers).map_err(memory)?;
        }
        self.answering(&channels)?;
        Ok((channels, granted))
    }

    /// Connects the channels of a session that has lost its connection, except answer channels.
    /// Returns how many are connected. Sleeps.
    ///
    /// # Errors
    ///
    /// If the first channel fails, or the session ends. Some channels may be connected then.
    pub fn again(&self, channels: &Channels) -> Result<usize, LoginFailure> {
        let (first, others) = channels.split_first().ok_or(LoginFailure::Removed)?;
        for connection in channels.iter() {
            connection
                .renew_regions()
                .map_err(|e| LoginFailure::Step("memory regions", e))?;
        }
        let leader = self.lead(Some(first))?;
        Ok(self.follow("channels", others.iter(), Some(leader))?.len())
    }

    /// Connects missing channels as far as possible; with `answers`, answer channels too. Sleeps.
    ///
    /// # Errors
    ///
    /// If the session ends or has lost its connection.
    pub fn more(&self, channels: &Channels, answers: bool) -> Result<(), LoginFailure> {
        let missing = channels.iter().filter(|c| !c.is_open());
        let result = self.follow("channels", missing, None);
        if let Err(why @ (LoginFailure::Signal | LoginFailure::Removed)) = result {
            return Err(why);
        }
        if answers {
            self.answering(channels)?;
        }
        result.map(|_| ())
    }

    /// Connects the missing answer channels. Their peers may be down while the target is up.
    fn answering(&self, channels: &Channels) -> Result<(), LoginFailure> {
        self.patience.set(ANSWERS_TIMEOUT_MS);
        self.asked.set(None);
        let missing = channels.answers().iter().filter(|c| !c.is_open());
        self.follow("answer channels", missing, None).map(|_| ())
    }

    /// Connects the first channel. The target drops what is left of an earlier connection.
    /// `connection` is `None` for a new session.
    fn lead(
        &self,
        connection: Option<&Arc<Connection>>,
    ) -> Result<(Arc<Connection>, Granted), LoginFailure> {
        let leader = self.resolve(connection)?;
        self.wait(&leader, "address resolution")?;
        leader.attempt.route()?;
        self.wait(&leader, "route resolution")?;
        self.accept(self.connect(leader, MultiChannel::Single)?)
    }

    /// Connects further channels, called `name` in the log. Starts each step for all channels
    /// before it waits for one.
    fn follow<'b>(
        &self,
        name: &str,
        others: impl Iterator<Item = &'b Arc<Connection>>,
        leader: Option<(Arc<Connection>, Granted)>,
    ) -> Result<KVec<(Arc<Connection>, Granted)>, LoginFailure> {
        let mut channels = KVec::new();
        let mut lost = None;
        if let Some(leader) = leader {
            self.keep(&mut channels, Ok(leader), &mut lost)?;
        }
        let mut wanted = channels.len();
        let mut all = KVec::new();
        for connection in others {
            wanted += 1;
            self.keep(&mut all, self.resolve(Some(connection)), &mut lost)?;
        }
        let mut ready = KVec::new();
        for channel in all {
            let step = self
                .wait(&channel, "address resolution")
                .and_then(|()| channel.attempt.route())
                .map(|()| channel);
            self.keep(&mut ready, step, &mut lost)?;
        }
        let mut asked = KVec::new();
        for channel in ready {
            let step = self
                .wait(&channel, "route resolution")
                .and_then(|()| self.connect(channel, MultiChannel::Multi));
            self.keep(&mut asked, step, &mut lost)?;
        }
        for channel in asked {
            let step = self.accept(channel);
            self.keep(&mut channels, step, &mut lost)?;
        }
        self.retired.clear();
        self.permit.set(None);
        match lost {
            Some(why) if self.purpose == Purpose::More && channels.is_empty() => Err(why),
            Some(why) => {
                session_log!(
                    Warning,
                    self.nexus.status,
                    "only {} of {} {name} connected: {}",
                    channels.len(),
                    wanted,
                    format_args!("{why}")
                );
                Ok(channels)
            }
            None => Ok(channels),
        }
    }

    /// Adds a channel that completed a step to `list`. One that failed is dropped; a failure of the
    /// whole login is returned.
    fn keep<T>(
        &self,
        list: &mut KVec<T>,
        step: Result<T, LoginFailure>,
        lost: &mut Option<LoginFailure>,
    ) -> Result<(), LoginFailure> {
        match step {
            Ok(channel) => list
                .push(channel, GFP_KERNEL)
                .map_err(|_| LoginFailure::Step("channel list", ENOMEM)),
            Err(why @ (LoginFailure::Signal | LoginFailure::Removed)) => Err(why),
            Err(why) => {
                *lost = Some(why);
                Ok(())
            }
        }
    }

    fn resolve(&self, connection: Option<&Arc<Connection>>) -> Result<Resolving, LoginFailure> {
        let (nexus, plan) = (self.nexus, &self.nexus.plan);
        let attempt = match connection.and_then(|c| c.as_answers()) {
            Some((number, owner)) => {
                let from = plan.answers_from.get(number);
                let from = from.ok_or(LoginFailure::Removed)?;
                from.destination.attempt(nexus, owner, &from.throttle)
            }
            None => plan
                .destination
                .attempt(nexus, &self.owner, &nexus.throttle),
        }?;
        attempt.resolve()?;
        Ok(Resolving {
            attempt,
            connection: connection.cloned(),
        })
    }

    fn connect(
        &self,
        channel: Resolving,
        multichannel: MultiChannel,
    ) -> Result<Connecting<'_>, LoginFailure> {
        let (geometry, plan) = (&self.nexus.status.geometry, &self.nexus.plan);
        let Resolving {
            attempt,
            connection,
        } = channel;
        let queue_pair = |e| LoginFailure::Step("queue pair", e);
        let connection = match connection {
            Some(connection) => connection,
            None => {
                Channel::new(&self.nexus.status, &self.owner, 0, &self.pd).map_err(queue_pair)?
            }
        };
        connection.renew();
        connection.connect(attempt.link()).map_err(queue_pair)?;
        let channel = Connecting {
            attempt,
            connection: Some(connection),
            requested: Requested {
                tag: random_u64(),
                max_it_iu_len: geometry.it_iu_len,
                descriptors: geometry.descriptors,
                immediate: geometry.immediate,
                multichannel,
                initiator: plan.initiator,
                target: plan.target,
            },
            since: ktime_get(),
            retired: &self.retired,
        };
        let terms = Terms {
            responder_resources: geometry.device.max_qp_rd_atom.min(RESPONDER_RESOURCES),
            retry_count: plan.retry_count,
            rnr_retry_count: RNR_RETRY_COUNT,
        };
        let throttle = channel.attempt.events().throttle();
        self.in_time(throttle, || {
            channel.attempt.request(&channel.requested, &terms)
        })
        .map_err(|why| match why {
            LoginFailure::Signal if self.is_over() => LoginFailure::Removed,
            // Only the process of a first login may have other signals.
            LoginFailure::Signal if self.purpose != Purpose::First => {
                LoginFailure::Timeout("connect request")
            }
            why => why,
        })?;
        Ok(channel)
    }

    /// Calls `f`, which may wait without a deadline: an iWARP device opens the TCP connection in
    /// the connect request, with TCP's own retries. The wait is interrupted when the time is over
    /// or the session is ending; the target has no request then.
    fn in_time(
        &self,
        throttle: &Throttle,
        f: impl FnOnce() -> Result<(), LoginFailure>,
    ) -> Result<(), LoginFailure> {
        let nexus = self.nexus;
        let now = ktime_get();
        let asked = match core::ptr::eq(throttle, &raw const *nexus.throttle) {
            true => self.asked.get().unwrap_or(now),
            // Each answering peer has a time limit of its own.
            false => now,
        };
        self.asked.set(Some(asked));
        // Earlier channels may have used up some of the time.
        let left = self.patience.get();
        let left = left.saturating_sub(throttle.silence(asked));
        let limit = match self.purpose {
            Purpose::First | Purpose::More => left,
            Purpose::Again => left.min(OPEN_AGAIN_MS),
        };
        nexus.waiting.run(|| {
            if self.is_over() {
                return Err(LoginFailure::Signal);
            }
            if limit == 0 {
                return Err(LoginFailure::Timeout("connect request"));
            }
            let (result, over) = nexus.waiting.at_most(limit, f);
            match result {
                Err(LoginFailure::Signal) if over && !self.is_over() => {
                    Err(LoginFailure::Timeout("connect request"))
                }
                result => result,
            }
        })
    }

    /// Sends the login request to the port that the target redirects to. The channel keeps its
    /// memory.
    fn redirect(
        &self,
        mut from: Connecting<'_>,
        to: &Redirect,
    ) -> Result<Connecting<'_>, LoginFailure> {
        let attempt = from.attempt.redirect(to)?;
        let connection = from.connection.take().ok_or(LoginFailure::Removed)?;
        connection.disconnect();
        let next = Resolving {
            attempt,
            connection: Some(connection),
        };
        next.attempt.resolve()?;
        self.wait(&next, "address resolution")?;
        next.attempt.route()?;
        self.wait(&next, "route resolution")?;
        self.connect(next, from.requested.multichannel)
    }

    /// Waits for the target's response, following redirections.
    fn response<'b>(
        &'b self,
        mut channel: Connecting<'b>,
    ) -> Result<(Connecting<'b>, Response), LoginFailure> {
        loop {
            match self.wait_for(&*channel.attempt, "login response", channel.since) {
                Ok(response) => return Ok((channel, response)),
                Err(LoginFailure::Redirected(to)) => channel = self.redirect(channel, &to)?,
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits for the login response and opens the channel.
    fn accept(&self, channel: Connecting<'_>) -> Result<(Arc<Connection>, Granted), LoginFailure> {
        let (mut channel, response) = self.response(channel)?;
        let attempt = channel.attempt.clone();
        let connection = channel.connection.as_ref().ok_or(LoginFailure::Removed)?;
        let granted = self
            .granted(&response, &channel.requested, connection)
            .inspect_err(|_| attempt.refuse())?;
        let timeout = attempt.confirm().inspect_err(|_| attempt.refuse())?;
        self.nexus.allow_time(timeout);
        attempt
            .events()
            .go_live()
            .map_err(|_| LoginFailure::Disconnected)?;
        let opened = connection.open(&granted);
        if opened.is_err() && !connection.is_open() {
            return Err(LoginFailure::Disconnected);
        }
        // From here on, commands may be in flight on the connection. They end when the session has
        // no connection left, even if this one has failed.
        let connection = channel.connection.take().ok_or(LoginFailure::Removed)?;
        opened.map_err(|_| LoginFailure::Disconnected)?;
        Ok((connection, granted))
    }

    fn granted(
        &self,
        response: &Response,
        requested: &Requested,
        connection: &Connection,
    ) -> Result<Granted, LoginFailure> {
        let response = LoginRsp::parse(response.bytes()).map_err(LoginFailure::Answer)?;
        if connection.as_answers().is_some() {
            return response
                .check_answers(requested)
                .map_err(LoginFailure::Response);
        }
        let granted = response.check(requested).map_err(LoginFailure::Response)?;
        // The midlayer keeps the limits of the first login.
        if u32::from(granted.descriptors) < self.nexus.needed_descriptors() {
            return Err(LoginFailure::Shrunk);
        }
        Ok(granted)
    }

    /// Whether to abandon this login.
    fn is_over(&self) -> bool {
        let status = &self.nexus.status;
        match self.purpose {
            Purpose::First | Purpose::More => status.is_lost() || status.is_ending(),
            Purpose::Again => status.is_ending(),
        }
    }

    /// Waits for the end of a step before the connect request.
    fn wait(&self, channel: &Resolving, what: &'static str) -> Result<(), LoginFailure> {
        self.wait_for(&*channel.attempt, what, ktime_get())
            .map(|_| ())
    }

    /// Waits for the end of a step that began at the time `since`. Returns the response if that was
    /// the connect request.
    fn wait_for(
        &self,
        attempt: &dyn Attempt,
        what: &'static str,
        since: Ktime,
    ) -> Result<Response, LoginFailure> {
        loop {
            if self.is_over() {
                return Err(LoginFailure::Removed);
            }
            match attempt.wait(SLICE_MS) {
                Progress::Failed(LoginFailure::Signal) if self.is_over() => {
                    return Err(LoginFailure::Removed)
                }
                Progress::Failed(why) => return Err(why),
                Progress::Done => return Ok(Response::default()),
                Progress::Response(response) => return Ok(response),
                Progress::Pending => {}
            }
            let silence = attempt.events().throttle().silence(since);
            if silence >= self.patience.get() && !attempt.events().is_deferred() {
                return Err(LoginFailure::Timeout(what));
            }
            if silence >= SILENCE_MS {
                self.permit.set(None);
            }
        }
    }
}
