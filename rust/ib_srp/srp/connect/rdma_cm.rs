// SPDX-License-Identifier: GPL-2.0

//! Connecting by `rdma_cm`, to an IP address.

use super::{
    channel_login::{
        no_identifier,
        ChannelLogin,
        RNR_RETRY_COUNT, //
    },
    events::Events,
    LoginContext, //
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
        cm_id::CmId, //
    },
    srp::{
        error::LoginFailure,
        logic::time::RESOLVE_TIMEOUT_MS,
        proto::{
            login_iu::{
                LoginReqRdma,
                MultiChannel,
                Requested, //
            },
            reject::{
                Redirect,
                Reject, //
            }, //
        }, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// The address to connect to.
pub struct Address {
    /// The caller's network namespace.
    pub net: ARef<Namespace>,
    /// Our address, if given.
    pub src: Option<SocketAddr>,
    /// The target's address.
    pub dest: SocketAddr,
}

/// The login of a channel by `rdma_cm`.
pub(super) struct RdmaCm {
    logins: Arc<LoginContext>,
    src: Option<SocketAddr>,
    dest: SocketAddr,
    id: Arc<Id<Events>>,
}

impl RdmaCm {
    pub(super) fn begin(
        logins: &Arc<LoginContext>,
        events: Arc<Events>,
        to: &Address,
    ) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        let id = Id::new(&to.net, events).map_err(no_identifier)?;
        let params = &logins.params;
        if let Some(tos) = params.tos {
            id.set_service_type(tos);
        }
        if let Some(timeout) = params.ack_timeout {
            id.set_ack_timeout(timeout).map_err(no_identifier)?;
        }
        let this = Self {
            logins: logins.clone(),
            src: to.src,
            dest: to.dest,
            id,
        };
        Ok(Arc::new(this, GFP_KERNEL).map_err(|e| no_identifier(e.into()))?)
    }
}

impl ChannelLogin for RdmaCm {
    fn resolve(&self) -> Result<(), LoginFailure> {
        self.id
            .resolve_addr(self.src.as_ref(), &self.dest, RESOLVE_TIMEOUT_MS)
            .map_err(|e| LoginFailure::Step("address resolution", e))
    }

    fn route(&self) -> Result<(), LoginFailure> {
        let port = self.logins.status.port();
        if !self.id.is_on(port.device(), port.number()) {
            return Err(LoginFailure::OtherPort);
        }
        self.id
            .resolve_route(RESOLVE_TIMEOUT_MS)
            .map_err(|e| LoginFailure::Step("route resolution", e))
    }

    fn cm_id(&self) -> Arc<dyn CmId> {
        self.id.clone()
    }

    fn request(&self, what: &Requested) -> Result<(), LoginFailure> {
        if what.multichannel == MultiChannel::Single {
            *self.logins.bound.lock() = self.id.src_addr();
        }
        let request = LoginReqRdma::new(what);
        self.id
            .connect(&ConnectParam {
                private_data: request.as_bytes(),
                responder_resources: self.logins.responder_resources(),
                retry_count: self.logins.params.retry_count,
                rnr_retry_count: RNR_RETRY_COUNT,
            })
            .map_err(|e| match e {
                EINTR | ERESTARTSYS => LoginFailure::Signal,
                errno::ECONNREFUSED | errno::ECONNRESET | errno::EHOSTUNREACH | ETIMEDOUT => {
                    LoginFailure::Reject(Reject::from_status(e.to_errno()))
                }
                e => LoginFailure::Step("connect request", e),
            })
    }

    fn confirm(&self) -> Result<u32, LoginFailure> {
        // `rdma_cm` has confirmed the response already.
        Ok(0)
    }

    fn refuse(&self) {
        self.id.disconnect();
    }

    fn events(&self) -> &Events {
        self.id.handler()
    }

    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        // `rdma_cm` reports no redirections.
        Err(LoginFailure::Redirected(*to))
    }
}
