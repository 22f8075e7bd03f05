// SPDX-License-Identifier: GPL-2.0

//! Connecting by `rdma_cm`, to an IP address.

use super::{
    attempt::{
        Attempt,
        Terms, //
    },
    events::{
        Events,
        Progress, //
    },
    Nexus,
    Throttle, //
};
use crate::{
    errno,
    net::{
        Namespace,
        SocketAddr, //
    },
    rdma::{
        cm::{
            ConnectParam,
            Id, //
        },
        link::Link, //
    },
    srp::{
        error::LoginFailure,
        logic::timeouts::RESOLVE_TIMEOUT_MS,
        owner::Owner,
        proto::{
            cm_rej::CmRej,
            login::{
                LoginReqRdma,
                MultiChannel,
                Requested, //
            },
            redirect::Redirect, //
        }, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// The address to connect to.
pub struct Address {
    /// The caller's network namespace.
    pub net: ARef<Namespace>,
    /// Our address, if given.
    pub src: Option<SocketAddr>,
    /// The target's address.
    pub dest: SocketAddr,
    /// Our address in the first channel's last request.
    bound: Pin<KBox<Mutex<Option<SocketAddr>>>>,
}

impl Address {
    /// Returns an address without a connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(net: ARef<Namespace>, src: Option<SocketAddr>, dest: SocketAddr) -> Result<Self> {
        let bound = KBox::pin_init(new_mutex!(None, "Address::bound"), GFP_KERNEL)?;
        Ok(Self {
            net,
            src,
            dest,
            bound,
        })
    }

    /// Our address in the first channel's last connect request; [`None`] before that. May sleep.
    pub fn bound(&self) -> Option<SocketAddr> {
        *self.bound.lock()
    }
}

/// An attempt by `rdma_cm`.
pub(super) struct Rdma {
    nexus: Arc<Nexus>,
    src: Option<SocketAddr>,
    dest: SocketAddr,
    events: Arc<Events>,
    id: Arc<Id<Events>>,
}

impl Rdma {
    pub(super) fn begin(
        nexus: &Arc<Nexus>,
        owner: &Arc<dyn Owner>,
        throttle: &Arc<Throttle>,
        to: &Address,
    ) -> Result<Arc<dyn Attempt>, LoginFailure> {
        let step = |e: Error| LoginFailure::Step("connection identifier", e);
        let events = Events::new(owner.clone(), throttle.clone(), false).map_err(step)?;
        let id = Id::new(&to.net, events.clone()).map_err(step)?;
        let plan = &nexus.plan;
        if let Some(tos) = plan.tos {
            id.set_service_type(tos);
        }
        if let Some(timeout) = plan.ack_timeout {
            id.set_ack_timeout(timeout).map_err(step)?;
        }
        let this = Self {
            nexus: nexus.clone(),
            src: to.src,
            dest: to.dest,
            events,
            id,
        };
        Ok(Arc::new(this, GFP_KERNEL).map_err(|e| step(e.into()))?)
    }
}

impl Attempt for Rdma {
    fn resolve(&self) -> Result<(), LoginFailure> {
        self.id
            .resolve_addr(self.src.as_ref(), &self.dest, RESOLVE_TIMEOUT_MS)
            .map_err(|e| LoginFailure::Step("address resolution", e))
    }

    fn route(&self) -> Result<(), LoginFailure> {
        let port = self.nexus.status.port();
        if !self.id.is_on(port.device(), port.number()) {
            return Err(LoginFailure::OtherPort);
        }
        self.id
            .resolve_route(RESOLVE_TIMEOUT_MS)
            .map_err(|e| LoginFailure::Step("route resolution", e))
    }

    fn link(&self) -> Arc<dyn Link> {
        self.id.clone()
    }

    fn request(&self, what: &Requested, terms: &Terms) -> Result<(), LoginFailure> {
        if let (MultiChannel::Single, Some(address)) =
            (what.multichannel, self.nexus.plan.destination.address())
        {
            *address.bound.lock() = self.id.src_addr();
        }
        let request = LoginReqRdma::new(what);
        self.id
            .connect(&ConnectParam {
                private_data: request.as_bytes(),
                responder_resources: terms.responder_resources,
                retry_count: terms.retry_count,
                rnr_retry_count: terms.rnr_retry_count,
            })
            .map_err(|e| match e {
                EINTR | ERESTARTSYS => LoginFailure::Signal,
                errno::ECONNREFUSED | errno::ECONNRESET | errno::EHOSTUNREACH | ETIMEDOUT => {
                    LoginFailure::CmReject(CmRej::from_status(e.to_errno()))
                }
                e => LoginFailure::Step("connect request", e),
            })
    }

    fn wait(&self, timeout: Msecs) -> Progress {
        self.events.wait(timeout)
    }

    fn confirm(&self) -> Result<u32, LoginFailure> {
        // `rdma_cm` has confirmed the response already.
        Ok(0)
    }

    fn refuse(&self) {
        self.id.disconnect();
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn Attempt>, LoginFailure> {
        // `rdma_cm` reports no redirections.
        Err(LoginFailure::Redirected(*to))
    }
}
