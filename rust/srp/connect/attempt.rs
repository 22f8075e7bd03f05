// SPDX-License-Identifier: GPL-2.0

//! Common interface of the two connection managers for a login.

use super::events::{
    Events,
    Progress, //
};
use crate::{
    rdma::link::Link,
    srp::{
        error::LoginFailure,
        proto::{
            login::Requested,
            redirect::Redirect, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// Connection parameters of [`Attempt::request`], beside those of SRP.
pub(super) struct Terms {
    /// Concurrent RDMA reads of the target that we serve, at most.
    pub responder_resources: u8,
    /// Retry count of the transport.
    pub retry_count: u8,
    /// Retry count for a peer without a posted receive.
    pub rnr_retry_count: u8,
}

/// One attempt to connect a channel.
///
/// Its steps are `resolve`, `route`, `request`, each of which ends when [`Attempt::wait`] reports
/// it, and `confirm`. The queue pair is created on [`Attempt::link`] between `route` and `request`.
/// All methods may sleep.
pub(super) trait Attempt: Send + Sync {
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

    /// The link to create the queue pair on.
    fn link(&self) -> Arc<dyn Link>;

    /// Sends the login request to the target.
    ///
    /// # Errors
    ///
    /// The error of the connection manager.
    fn request(&self, what: &Requested, terms: &Terms) -> Result<(), LoginFailure>;

    /// Waits for the end of the current step, at most `timeout` milliseconds.
    fn wait(&self, timeout: Msecs) -> Progress;

    /// Accepts the target's response. Returns the milliseconds after which the transport has
    /// certainly ended a command, or 0 if unknown.
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

    /// Returns an attempt at the port that the target has redirected this one to.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::NotFollowed`] if the redirection must not be followed, `ENOMEM`.
    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn Attempt>, LoginFailure>;
}
