// SPDX-License-Identifier: GPL-2.0

//! The login of one channel, through one of the two connection managers.

use super::{
    events::{
        Events,
        Response,
        StepEnd, //
    },
    throttle::SILENCE_MS,
    Login, //
};
use crate::{
    random::random_u64,
    rdma::cm_id::CmId,
    srp::{
        channel::Connection,
        error::LoginFailure,
        ktime::{
            ktime_get,
            Ktime, //
        },
        proto::{
            login_iu::{
                Granted,
                LoginRsp,
                MultiChannel,
                Requested, //
            },
            reject::Redirect, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// RNR retry count 7: no limit. The peer always has a receive posted for each credit that it
/// granted.
pub(super) const RNR_RETRY_COUNT: u8 = 7;
/// Interval at which a waiting login checks whether the session has ended, in milliseconds.
const SLICE_MS: Msecs = 100;

/// The login of one channel through a connection manager.
///
/// The steps are `resolve`, `route`, `request` and `confirm`. [`ChannelLogin::wait`] reports the
/// end of each of the first three. The queue pair is created on [`ChannelLogin::cm_id`] between
/// `route` and `request`. All methods may sleep.
pub(super) trait ChannelLogin: Send + Sync {
    /// Starts to resolve the target's address.
    ///
    /// # Errors
    ///
    /// The error of the connection manager.
    fn resolve(&self) -> Result<(), LoginFailure>;

    /// Starts to resolve the route to the target.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::OtherPort`] if the route leads through another port, otherwise the error of
    /// the connection manager.
    fn route(&self) -> Result<(), LoginFailure>;

    /// The identifier to create the queue pair on.
    fn cm_id(&self) -> Arc<dyn CmId>;

    /// Sends the login request to the target.
    ///
    /// # Errors
    ///
    /// The error of the connection manager.
    fn request(&self, what: &Requested) -> Result<(), LoginFailure>;

    /// Waits for the end of the current step, at most `timeout` milliseconds.
    fn wait(&self, timeout: Msecs) -> Option<StepEnd> {
        self.events().wait(timeout)
    }

    /// Accepts the target's response. Returns the time after which the transport has given up every
    /// request, in milliseconds; 0 if unknown.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::Disconnected`] if the connection has ended, otherwise the error of the
    /// device driver.
    fn confirm(&self) -> Result<u32, LoginFailure>;

    /// Rejects the target's response.
    fn refuse(&self);

    /// The receiver of the connection's events.
    fn events(&self) -> &Events;

    /// Returns a login at the port that the target redirects to.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::BadRedirect`] if the redirection must not be followed, `ENOMEM`.
    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn ChannelLogin>, LoginFailure>;
}

/// The failure to create a channel.
pub(super) fn no_channel(e: Error) -> LoginFailure {
    LoginFailure::Step("channel", e)
}

/// The failure to create an identifier of the connection manager.
pub(super) fn no_identifier(e: Error) -> LoginFailure {
    LoginFailure::Step("connection identifier", e)
}

/// A channel whose login is done, and the grant of the target.
pub(super) type Opened = (Arc<Connection>, Granted);

/// The step that a channel's login is in.
#[derive(Clone, Copy)]
enum Step {
    /// Address resolution.
    Address,
    /// Route resolution.
    Route,
    /// The wait for the response to a request, sent at this time.
    Response(Requested, Ktime),
    /// The login is done; the channel is open.
    Open(Granted),
}

/// A channel that logs in. Dropping it ends its connection, unless the channel is open.
pub(super) struct Candidate<'a> {
    login: &'a Login<'a>,
    cm: Arc<dyn ChannelLogin>,
    /// `None` for the first channel of a session until its route is known.
    connection: Option<Arc<Connection>>,
    multichannel: MultiChannel,
    step: Step,
}

impl<'a> Candidate<'a> {
    /// Starts to resolve the address for a channel, or for the first one, which is created when its
    /// route is known: a login to an unreachable target allocates no channel. May sleep.
    ///
    /// # Errors
    ///
    /// Those of the connection manager.
    pub(super) fn new(
        login: &'a Login<'a>,
        connection: Option<&Arc<Connection>>,
        multichannel: MultiChannel,
    ) -> Result<Self, LoginFailure> {
        let logins = login.logins;
        let (destination, owner, throttle) = match connection.and_then(|c| c.as_answer_channel()) {
            Some((number, owner)) => {
                let from = logins.params.answers_from.get(number);
                let from = from.ok_or(LoginFailure::Removed)?;
                (&from.destination, owner, &from.throttle)
            }
            None => (&logins.params.destination, &login.owner, &logins.throttle),
        };
        let cm = destination.channel_login(logins, owner, throttle)?;
        cm.resolve()?;
        Ok(Self {
            login,
            cm,
            connection: connection.cloned(),
            multichannel,
            step: Step::Address,
        })
    }

    /// Waits for the end of the current step, and starts the next one. Sleeps.
    ///
    /// # Errors
    ///
    /// If a step failed, the session ends, or a signal arrives.
    pub(super) fn advance(&mut self) -> Result<(), LoginFailure> {
        match self.step {
            Step::Address => {
                let _ = self.wait("address resolution", ktime_get())?;
                self.cm.route()?;
                self.step = Step::Route;
                Ok(())
            }
            Step::Route => {
                let _ = self.wait("route resolution", ktime_get())?;
                self.request()
            }
            Step::Response(requested, since) => match self.wait("login response", since) {
                Ok(response) => self.accept(&requested, response),
                Err(LoginFailure::Redirected(to)) => self.redirect(&to),
                Err(why) => Err(why),
            },
            Step::Open(_) => Ok(()),
        }
    }

    /// Waits for the end of the current step, which began at the time `since`. Returns the response
    /// if the step is a login request, otherwise an empty one.
    fn wait(&self, what: &'static str, since: Ktime) -> Result<Response, LoginFailure> {
        let (login, events) = (self.login, self.cm.events());
        loop {
            if login.is_over() {
                return Err(LoginFailure::Removed);
            }
            match self.cm.wait(SLICE_MS) {
                Some(Err(LoginFailure::Signal)) if login.is_over() => continue,
                Some(end) => return end.map(|response| response.unwrap_or(LoginRsp::parse(&[]))),
                None => {}
            }
            let silence = events.throttle().silence(since);
            if silence >= login.patience.get() && !events.is_deferred() {
                return Err(LoginFailure::Timeout(what));
            }
            if silence >= SILENCE_MS {
                login.permit.set(None);
            }
        }
    }

    /// Creates the queue pair, and sends the login request.
    fn request(&mut self) -> Result<(), LoginFailure> {
        let login = self.login;
        let (status, params) = (&login.logins.status, &login.logins.params);
        if self.connection.is_none() {
            self.connection = Some(login.channel(0, &[]).map_err(no_channel)?);
        }
        let connection = self.connection()?;
        connection.renew();
        connection
            .create(self.cm.cm_id())
            .map_err(|e| LoginFailure::Step("queue pair", e))?;
        let requested = Requested {
            tag: random_u64(),
            max_it_iu_len: status.geometry.it_iu_len,
            descriptors: status.geometry.descriptors,
            immediate: status.geometry.immediate,
            multichannel: self.multichannel,
            initiator: params.initiator,
            target: params.target,
        };
        self.step = Step::Response(requested, ktime_get());
        login.in_time(self.cm.events().throttle(), || self.cm.request(&requested))
    }

    /// Goes back to address resolution, for the port that the target redirects to. The channel
    /// keeps its memory.
    fn redirect(&mut self, to: &Redirect) -> Result<(), LoginFailure> {
        let cm = self.cm.redirect(to)?;
        self.connection()?.destroy();
        self.cm = cm;
        self.step = Step::Address;
        self.cm.resolve()
    }

    /// Opens the channel, if the target has accepted the request.
    fn accept(&mut self, requested: &Requested, response: Response) -> Result<(), LoginFailure> {
        let connection = self.connection()?;
        let refuse = |_: &LoginFailure| self.cm.refuse();
        let granted = self.check(requested, response);
        let granted = granted.inspect_err(refuse)?;
        let timeout = self.cm.confirm().inspect_err(refuse)?;
        self.login.logins.allow_time(timeout);
        let events = self.cm.events();
        let disconnected = |_| LoginFailure::Disconnected;
        events.set_in_use(true).map_err(disconnected)?;
        let opened = connection.open(&granted);
        // Keep an open channel even if it has failed: commands may be in flight on it. They end
        // when the session has no connection left.
        if opened.is_ok() || connection.is_open() {
            self.step = Step::Open(granted);
        }
        opened.map_err(disconnected)
    }

    /// Checks the response of the target. Returns the grant.
    fn check(&self, requested: &Requested, response: Response) -> Result<Granted, LoginFailure> {
        let response = response.map_err(LoginFailure::NotLoginRsp)?;
        if self.connection()?.as_answer_channel().is_some() {
            return response
                .check_answer_channel(requested)
                .map_err(LoginFailure::Response);
        }
        let granted = response.check(requested).map_err(LoginFailure::Response)?;
        // The midlayer keeps the limits of the first login.
        if u32::from(granted.descriptors) < self.login.logins.needed_descriptors() {
            return Err(LoginFailure::Shrunk);
        }
        Ok(granted)
    }

    /// The channel, which exists from the login request on.
    fn connection(&self) -> Result<&Arc<Connection>, LoginFailure> {
        self.connection.as_ref().ok_or(LoginFailure::Removed)
    }

    /// Returns the channel and the grant of the target, if the login is done.
    pub(super) fn opened(&self) -> Option<Opened> {
        match (self.step, &self.connection) {
            (Step::Open(granted), Some(connection)) => Some((connection.clone(), granted)),
            _ => None,
        }
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        if let (Step::Response(..), Some(connection)) = (self.step, &self.connection) {
            let _ = self.cm.events().set_in_use(false);
            connection.hang_up();
            connection.shutdown();
            connection.close();
            connection.retire();
            self.login.retire(connection);
        }
    }
}
