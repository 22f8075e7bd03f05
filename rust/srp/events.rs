// SPDX-License-Identifier: GPL-2.0

//! The connection events of one channel.

use super::{
    error::{
        LoginFailure,
        Lost, //
    },
    proto::{
        cm_rej::CmRej,
        login_rej::LoginRej, //
    },
    session::Session, //
};
use crate::{
    rdma::cm::{
        Event,
        EventHandler,
        EventKind, //
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

/// The longest login response that is kept; the fields that count are in the first 52 bytes.
const RESPONSE: usize = 64;

/// The answer of a target to a login request.
#[derive(Clone, Copy)]
pub struct Response {
    bytes: [u8; RESPONSE],
    len: usize,
}

impl Response {
    fn new(data: &[u8]) -> Self {
        let mut bytes = [0; RESPONSE];
        let len = data.len().min(RESPONSE);
        for (to, from) in bytes.iter_mut().zip(data) {
            *to = *from;
        }
        Self { bytes, len }
    }

    /// What arrived.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The end of one step of a login.
type Outcome = Result<Option<Response>, LoginFailure>;

/// Takes the events of a connection: as steps of the login first, then as its loss.
#[pin_data]
pub struct Events {
    session: Arc<Session>,
    /// The channel is in use.
    live: Atomic<bool>,
    #[pin]
    outcome: SpinLock<Option<Outcome>>,
    #[pin]
    ended: Completion,
}

impl Events {
    /// The events of a connection of `session` that is not in use yet.
    pub fn new(session: Arc<Session>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session,
                live: Atomic::new(false),
                outcome <- new_spinlock!(None, "Events::outcome"),
                ended <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for the end of a step, at most `timeout` milliseconds; `None` if there was none.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` after a signal.
    pub fn wait(&self, timeout: Msecs) -> Result<Option<Outcome>> {
        match self.ended.wait_interruptible_timeout(timeout) {
            Err(e) if e != ETIMEDOUT => Err(e),
            _ => {
                // A step that ends between the wait and here is found here, and its count by the
                // next wait, which finds nothing then and waits again.
                Ok(self.outcome.lock().take())
            }
        }
    }

    /// The login is done: from now on the end of the connection is the end of the session.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it has ended already.
    pub fn go_live(&self) -> Result {
        let outcome = self.outcome.lock();
        if matches!(&*outcome, Some(Err(_))) {
            return Err(crate::errno::ENOTCONN);
        }
        // Under the lock: an event after this finds it set.
        self.live.store(true, Release);
        Ok(())
    }

    fn end(&self, outcome: Outcome) {
        let mut place = self.outcome.lock();
        // The first failure explains the others.
        if !matches!(&*place, Some(Err(_))) {
            *place = Some(outcome);
        }
        drop(place);
        self.ended.complete();
    }
}

impl EventHandler for Events {
    fn event(&self, event: Event<'_>) {
        let status = event.status();
        let outcome = match event.kind() {
            EventKind::AddrResolved | EventKind::RouteResolved => Ok(None),
            EventKind::Established => Ok(Some(Response::new(event.private_data()))),
            EventKind::AddrError => Err(LoginFailure::Address(status)),
            EventKind::RouteError => Err(LoginFailure::Route(status)),
            EventKind::Unreachable => Err(LoginFailure::Unreachable(status)),
            EventKind::Rejected => {
                let reason = CmRej::from_status(status);
                Err(match LoginRej::parse(event.private_data()) {
                    // On iWARP there is no reason that would say whose data it is.
                    Ok(rej) if reason.is_consumer_defined() || status < 0 => {
                        LoginFailure::SrpReject(rej.reason)
                    }
                    _ => LoginFailure::CmReject(reason),
                })
            }
            EventKind::ConnectError => Err(LoginFailure::Setup(status)),
            EventKind::Disconnected => Err(LoginFailure::Disconnected),
            EventKind::DeviceRemoval => Err(LoginFailure::DeviceRemoval),
            // Both come after the end of a connection, or say nothing about one.
            EventKind::TimewaitExit | EventKind::Other(_) => return,
            // The connection goes on; when the old path is dead, the transport will say so.
            EventKind::AddrChange => return,
        };
        let failed = outcome.is_err();
        self.end(outcome);
        if failed && self.live.load(Acquire) {
            self.session.fail(Lost::Cm(event.kind()));
        }
    }
}
