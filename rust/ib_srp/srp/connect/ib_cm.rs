// SPDX-License-Identifier: GPL-2.0

//! Connecting by `ib_cm`, to a GID.
//!
//! Linux's target does not listen by `ib_cm` on Ethernet ports, but `rdma_cm` does so for it, at a
//! service ID made of its TCP port. This allows tests with I/O on RoCE.

use super::{
    channel_login::{
        no_identifier,
        ChannelLogin,
        RNR_RETRY_COUNT, //
    },
    events::{
        Events,
        StepEnd, //
    },
    LoginContext, //
};
use crate::{
    errno,
    rdma::{
        cm_id::CmId,
        device::Fabric,
        ib_cm::{
            Id,
            Request, //
        },
        lookup::Lookup,
        path::{
            Path,
            PathRec, //
        }, //
    },
    srp::{
        error::LoginFailure,
        logic::time::RESOLVE_TIMEOUT_MS,
        proto::{
            guid::Gid,
            login_iu::{
                is_ip_cm,
                LoginReq,
                LoginReqIpCm,
                MultiChannel,
                Requested, //
            },
            reject::{
                Redirect,
                RedirectError, //
            }, //
        }, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};

/// The service to connect to.
pub struct Service {
    /// GID of the target's port.
    pub dgid: Gid,
    /// P_Key of the partition.
    pub pkey: u16,
    /// Service ID of the target at this port.
    pub service_id: u64,
    /// Whether the target redirects as Topspin targets do.
    pub topspin: bool,
}

/// The step of a login.
enum Stage {
    /// Nothing has been started.
    Begin,
    /// The path is being looked up.
    Resolving(Lookup),
    /// The path is known.
    Found(Path),
    /// The request was sent on this path; true for the first channel.
    Asked(Path, bool),
}

/// The port of the target that a login goes to. A redirection changes it.
struct TargetPort {
    dgid: Gid,
    pkey: u16,
    /// Queue pair number of the port's connection manager, unless it is 1.
    cm_qpn: Option<u32>,
    /// Number of redirections so far.
    redirects: u8,
}

/// The login of a channel by `ib_cm`.
#[pin_data]
pub(super) struct IbCm {
    logins: Arc<LoginContext>,
    service_id: u64,
    to: TargetPort,
    id: Arc<Id<Events>>,
    #[pin]
    stage: Mutex<Stage>,
}

impl IbCm {
    pub(super) fn begin(
        logins: &Arc<LoginContext>,
        events: Arc<Events>,
        service: &Service,
    ) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        let to = TargetPort {
            dgid: service.dgid,
            pkey: service.pkey,
            cm_qpn: None,
            redirects: 0,
        };
        Self::make(logins, events, service.service_id, to, Stage::Begin)
    }

    fn make(
        logins: &Arc<LoginContext>,
        events: Arc<Events>,
        service_id: u64,
        to: TargetPort,
        stage: Stage,
    ) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        let port = logins.status.port();
        let id = Id::new(port.device(), port.number(), to.pkey, events).map_err(no_identifier)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                logins: logins.clone(),
                service_id,
                to,
                id,
                stage <- new_mutex!(stage, "IbCm::stage"),
            }),
            GFP_KERNEL,
        );
        Ok(this.map_err(no_identifier)?)
    }

    /// Whether the port is RoCE: GIDs are IP addresses, and there are no LIDs.
    fn is_roce(&self) -> bool {
        let port = self.logins.status.port();
        port.device().fabric(port.number()) == Fabric::Roce
    }
}

impl ChannelLogin for IbCm {
    fn resolve(&self) -> Result<(), LoginFailure> {
        let mut stage = self.stage.lock();
        // After a redirection the path may be known.
        if let Stage::Begin = &*stage {
            let port = self.logins.status.port();
            let (device, number) = (port.device(), port.number());
            let sgid = device
                .gid(number, 0)
                .map_err(|e| LoginFailure::Step("GID of the port", e))?;
            let rec = PathRec {
                sgid,
                dgid: self.to.dgid.0,
                pkey: self.to.pkey,
                service_id: self.service_id,
            };
            let lookup = Lookup::start(device, number, &rec, RESOLVE_TIMEOUT_MS)
                .map_err(LoginFailure::Path)?;
            *stage = Stage::Resolving(lookup);
        }
        Ok(())
    }

    fn route(&self) -> Result<(), LoginFailure> {
        // The path includes the route.
        Ok(())
    }

    fn cm_id(&self) -> Arc<dyn CmId> {
        self.id.clone()
    }

    fn request(&self, what: &Requested) -> Result<(), LoginFailure> {
        let mut stage = self.stage.lock();
        let Stage::Found(mut path) = core::mem::replace(&mut *stage, Stage::Begin) else {
            return Err(LoginFailure::Path(errno::EHOSTUNREACH));
        };
        let (sgid, dgid) = (Gid(path.sgid()), Gid(path.dgid()));
        let request = LoginReq::new(what);
        let ip_cm = LoginReqIpCm::new(&sgid, &dgid, what);
        let private_data = if self.is_roce() && is_ip_cm(self.service_id) {
            ip_cm.as_bytes()
        } else {
            request.as_bytes()
        };
        let result = self.id.request(
            &mut path,
            &Request {
                service_id: self.service_id,
                private_data,
                responder_resources: self.logins.responder_resources(),
                retry_count: self.logins.params.retry_count,
                rnr_retry_count: RNR_RETRY_COUNT,
                remote_cm_qpn: self.to.cm_qpn,
            },
        );
        *stage = Stage::Asked(path, what.multichannel == MultiChannel::Single);
        result.map_err(|e| LoginFailure::Step("connect request", e))
    }

    fn wait(&self, timeout: Msecs) -> Option<StepEnd> {
        let mut stage = self.stage.lock();
        let found = match &*stage {
            Stage::Resolving(lookup) => lookup.wait(timeout),
            Stage::Begin | Stage::Found(_) => return Some(Ok(None)),
            Stage::Asked(..) => {
                drop(stage);
                return self.events().wait(timeout);
            }
        };
        match found {
            Err(_) => Some(Err(LoginFailure::Signal)),
            Ok(None) => None,
            Ok(Some(Err(e))) => Some(Err(LoginFailure::Path(e))),
            Ok(Some(Ok(path))) => {
                *stage = Stage::Found(path);
                Some(Ok(None))
            }
        }
    }

    fn confirm(&self) -> Result<u32, LoginFailure> {
        let timeout = self
            .id
            .confirm(self.logins.params.ack_timeout)
            .map_err(|e| match e {
                errno::ENOTCONN => LoginFailure::Disconnected,
                e => LoginFailure::Step("queue pair", e),
            })?;
        if let Stage::Asked(path, true) = &*self.stage.lock() {
            *self.logins.reached.lock() = Some(Gid(path.dgid()));
        }
        Ok(timeout)
    }

    fn refuse(&self) {
        self.id.refuse();
    }

    fn events(&self) -> &Events {
        self.id.handler()
    }

    fn redirect(&self, to: &Redirect) -> Result<Arc<dyn ChannelLogin>, LoginFailure> {
        let redirects = to
            .follow(&self.to.dgid, self.to.redirects)
            .map_err(LoginFailure::BadRedirect)?;
        if let Some(pkey) = to.pkey {
            let port = self.logins.status.port();
            port.device()
                .pkey_index(port.number(), pkey)
                .map_err(|_| LoginFailure::BadRedirect(RedirectError::OtherPartition(pkey)))?;
        }
        let old = core::mem::replace(&mut *self.stage.lock(), Stage::Begin);
        let stage = match (to.lid, old) {
            (Some(lid), Stage::Asked(mut path, _)) if !self.is_roce() => {
                path.redirect(lid, to.gid.map(|gid| gid.0), to.pkey);
                Stage::Found(path)
            }
            _ => Stage::Begin,
        };
        let to = TargetPort {
            dgid: to.gid.unwrap_or(self.to.dgid),
            pkey: to.pkey.unwrap_or(self.to.pkey),
            cm_qpn: to.qpn,
            redirects,
        };
        let events = self.events().renew();
        let events = events.map_err(no_identifier)?;
        Self::make(&self.logins, events, self.service_id, to, stage)
    }
}
