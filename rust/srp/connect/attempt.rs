// SPDX-License-Identifier: GPL-2.0

//! What the two connection managers have in common for a login.

use crate::{
    rdma::link::Link,
    srp::{
        error::LoginFailure,
        events::{
            Events,
            Progress, //
        },
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

/// What [`Attempt::request`] says of the connection, beside what SRP says.
pub(super) struct Terms {
    /// RDMA reads of the target that we answer at a time.
    pub responder_resources: u8,
    /// Retries of the transport.
    pub retry_count: u8,
    /// Retries when the peer has no receive posted.
    pub rnr_retry_count: u8,
}

/// One attempt to connect a channel.
///
/// Its steps are `resolve`, `route`, `request`, each of which ends when [`Attempt::wait`] says so,
/// and `confirm`. The queue pair is made on [`Attempt::link`] between the second and the third. All
/// of them may sleep.
pub(super) trait Attempt: Send + Sync {
    /// Begins to look for the target's address.
    ///
    /// # Errors
    ///
    /// What the connection manager says.
    fn resolve(&self) -> Result<(), LoginFailure>;

    /// Begins to look for the way to it.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::OtherPort`] if it leads through another port, otherwise what the connection
    /// manager says.
    fn route(&self) -> Result<(), LoginFailure>;

    /// What the queue pair is made on.
    fn link(&self) -> Arc<dyn Link>;

    /// Asks the target to log us in.
    ///
    /// # Errors
    ///
    /// What the connection manager says.
    fn request(&self, what: &Requested, terms: &Terms) -> Result<(), LoginFailure>;

    /// Waits for the end of the step, at most `timeout` milliseconds.
    fn wait(&self, timeout: Msecs) -> Progress;

    /// Takes the target's response. Returns the milliseconds after which a command has certainly
    /// ended, or 0 if that is not known.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::Disconnected`] if the connection has ended, otherwise what the device driver
    /// says.
    fn confirm(&self) -> Result<u32, LoginFailure>;

    /// Says that the target's response is of no use.
    fn refuse(&self);

    /// What the connection's end is told to.
    fn events(&self) -> &Events;

    /// An attempt at the port that the target has redirected this one to.
    ///
    /// # Errors
    ///
    /// [`LoginFailure::NotFollowed`] if it should not be made, `ENOMEM`.
    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn Attempt>, LoginFailure>;
}
