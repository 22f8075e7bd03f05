// SPDX-License-Identifier: GPL-2.0

//! The connection events of one channel.

use super::Throttle;
use crate::{
    errno::ENOTCONN,
    rdma::{
        cm::{
            Event,
            EventHandler,
            EventKind, //
        },
        ib_cm, //
    },
    srp::{
        error::{
            LoginFailure,
            Lost, //
        },
        ktime::{
            ktime_get,
            AtomicKtime,
            Ktime, //
        },
        proto::{
            login_iu::{
                LoginRej,
                LoginRsp, //
            },
            message_error::ProtocolError,
            reject::{
                Redirect,
                Reject, //
            }, //
        },
        status::Owner, //
    },
    sync::Completion, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        SpinLock, //
    },
    time::Msecs, //
};

/// The response of a target to a login request.
pub(super) type Response = Result<LoginRsp, ProtocolError>;

/// The end of a login step, with the target's response if the step is the login request.
pub(super) type StepEnd = Result<Option<Response>, LoginFailure>;

/// Receives the events of a connection: first as steps of the login, then as its loss.
#[pin_data]
pub(super) struct Events {
    owner: Arc<dyn Owner>,
    /// Shared by all logins at the target.
    throttle: Arc<Throttle>,
    /// Whether the target redirects as Topspin targets do.
    topspin: bool,
    /// Whether the channel is in use.
    in_use: Atomic<bool>,
    /// End of the time that the target has asked for; [`Ktime::MIN`] if it has not asked.
    until: AtomicKtime,
    /// The end of the last step, until [`Self::wait`] returns it.
    #[pin]
    progress: SpinLock<Option<StepEnd>>,
    #[pin]
    ended: Completion,
}

impl Events {
    /// Returns a receiver for the events of a connection that is not in use yet. It notifies
    /// `throttle` of each answer, and `owner` when a connection in use ends. `topspin`: the target
    /// redirects as Topspin targets do.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        owner: Arc<dyn Owner>,
        throttle: Arc<Throttle>,
        topspin: bool,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                owner,
                throttle,
                topspin,
                in_use: Atomic::new(false),
                until: AtomicKtime::new(Ktime::MIN),
                progress <- new_spinlock!(None, "Events::progress"),
                ended <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns a receiver for another connection, with the same owner and throttle.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn renew(&self) -> Result<Arc<Self>> {
        Self::new(self.owner.clone(), self.throttle.clone(), self.topspin)
    }

    /// The throttle of all logins to this destination.
    pub(super) fn throttle(&self) -> &Arc<Throttle> {
        &self.throttle
    }

    /// Waits for the end of a step, at most `timeout` milliseconds, and returns the result once.
    /// Returns `None` if the step has not ended. Sleeps.
    pub(super) fn wait(&self, timeout: Msecs) -> Option<StepEnd> {
        match self.ended.wait_interruptible_timeout(timeout) {
            Err(e) if e != ETIMEDOUT => Some(Err(LoginFailure::Signal)),
            _ => {
                // A step that ends after the wait is returned here. Its completion makes the next
                // wait return `None` at once, and the caller waits again.
                self.progress.lock().take()
            }
        }
    }

    /// Whether the time that the target has asked for is not over. Any context.
    pub(super) fn is_deferred(&self) -> bool {
        ktime_get() < self.until.load()
    }

    /// Handles a request of the target for this many milliseconds. Only the first request counts,
    /// so the answer has a deadline.
    fn defer(&self, ms: u32) {
        let until = ktime_get().add_ms(ms);
        if self.until.replace(Ktime::MIN, until) {
            self.throttle.hear();
        }
    }

    /// Sets whether the channel is in use. If it is, the end of its connection ends the session's.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection to be used has ended already.
    pub(super) fn set_in_use(&self, in_use: bool) -> Result {
        // Set under the lock, so that a later event sees it.
        let progress = self.progress.lock();
        if in_use && matches!(&*progress, Some(Err(_))) {
            return Err(ENOTCONN);
        }
        self.in_use.store(in_use, Release);
        Ok(())
    }

    /// Handles the end of a step or of the connection.
    fn step_ended(&self, end: StepEnd, event: EventKind) {
        if matches!(
            event,
            EventKind::Established | EventKind::Rejected | EventKind::Disconnected
        ) {
            self.throttle.hear();
        }
        let failed = end.is_err();
        let mut place = self.progress.lock();
        // The first failure explains the later ones.
        if !matches!(&*place, Some(Err(_))) {
            *place = Some(end);
        }
        drop(place);
        self.ended.complete();
        if failed && self.in_use.load(Acquire) {
            self.owner.as_arc_borrow().fail(Lost::Cm(event));
        }
    }
}

/// Decodes a rejected request; `data` is the private data.
fn rejected(reason: Reject, data: &[u8]) -> LoginFailure {
    match LoginRej::parse(data) {
        // iWARP has no reason that tells the origin of the data.
        Ok(rej) if reason.is_consumer_defined() || matches!(reason, Reject::Errno(_)) => {
            LoginFailure::Reject(rej.reason())
        }
        _ => LoginFailure::Reject(reason),
    }
}

impl EventHandler for Events {
    fn event(&self, event: Event<'_>) {
        let status = event.status();
        let end = match event.kind() {
            EventKind::AddrResolved | EventKind::RouteResolved => Ok(None),
            EventKind::Established => Ok(Some(LoginRsp::parse(event.private_data()))),
            EventKind::AddrError => Err(LoginFailure::Address(status)),
            EventKind::RouteError => Err(LoginFailure::Route(status)),
            EventKind::Unreachable => Err(LoginFailure::Unreachable(status)),
            EventKind::Rejected => Err(rejected(Reject::from_status(status), event.private_data())),
            EventKind::ConnectError => Err(LoginFailure::Setup(status)),
            EventKind::Disconnected => Err(LoginFailure::Disconnected),
            EventKind::DeviceRemoval => Err(LoginFailure::DeviceRemoval),
            // These events follow the end of a connection, or concern none.
            EventKind::TimewaitExit | EventKind::Other(_) => return,
            // A bond may have failed over: the address is on another device than the connection.
            EventKind::AddrChange => Err(LoginFailure::AddressChanged),
        };
        self.step_ended(end, event.kind());
    }
}

impl ib_cm::EventHandler for Events {
    fn event(&self, event: ib_cm::Event<'_>) {
        let (why, kind) = match event {
            ib_cm::Event::Later(ms) => return self.defer(ms),
            ib_cm::Event::Replied(data) => {
                let response = Some(LoginRsp::parse(data));
                return self.step_ended(Ok(response), EventKind::Established);
            }
            ib_cm::Event::Rejected {
                reason,
                info,
                private_data,
            } => {
                let why = match Redirect::parse(reason, info, self.topspin) {
                    Some(Ok(to)) => LoginFailure::Redirected(to),
                    Some(Err(e)) => LoginFailure::BadRedirect(e),
                    None => rejected(Reject::Ib(reason), private_data),
                };
                (why, EventKind::Rejected)
            }
            ib_cm::Event::Unreachable => {
                let why = LoginFailure::Unreachable(ETIMEDOUT.to_errno());
                (why, EventKind::Unreachable)
            }
            ib_cm::Event::Disconnected => (LoginFailure::Disconnected, EventKind::Disconnected),
            ib_cm::Event::TimewaitExit => return,
        };
        self.step_ended(Err(why), kind);
    }
}

#[cfg(SRP_KUNIT)]
mod tests;
