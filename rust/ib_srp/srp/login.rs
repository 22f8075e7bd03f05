// SPDX-License-Identifier: GPL-2.0

//! A login, from the options to the disks.

use super::{
    channels::Channels,
    connect::{
        Address,
        AnswerNode,
        Destination,
        LoginParams,
        Purpose,
        Service, //
    },
    error::LoginFailure,
    log::{
        port_log,
        session_log, //
    },
    logic::time::LOGIN_TIMEOUT_MS,
    port::Port,
    proto::{
        self,
        guid::{
            Gid,
            IoClass, //
        },
        ids::PortId,
        options::{
            Options,
            Target, //
        }, //
    },
    session::{
        Session,
        SessionHost,
        LOGOUT_PATIENCE_MS, //
    },
    sessions::Sessions,
    sizes, //
};
use crate::{
    errno::EOPNOTSUPP,
    net::{
        Namespace,
        SocketAddr, //
    },
    params,
    rdma::device::Fabric,
    scsi::{
        self,
        transport::srp::Transport, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Logs the reason for refusing a login through this port.
macro_rules! refuse {
    ($port:expr, $($why:tt)+) => {
        port_log!(pr_warn, $port, "login refused: {}", format_args!($($why)+))
    };
}

/// The parameters of the SCSI host of a connected session.
pub struct HostParams<'a> {
    /// The session.
    pub session: &'a Arc<Session>,
    /// Channels of the session, connected or not, one for each hardware queue.
    pub channels: Arc<Channels>,
    /// Limits for the midlayer.
    pub limits: scsi::Limits,
    /// SRP transport of the host.
    pub transport: &'a Arc<Transport<Session>>,
}

/// Logs in through a port: checks the options, connects, has `host` create the host, adds it, and
/// scans for disks. A failed login leaves nothing behind. Sleeps while the target answers, for up
/// to 30 s of silence, and while the midlayer scans the disks.
///
/// # Errors
///
/// - `EINVAL` for options that the port or its device does not support
/// - `EEXIST` if the port is already logged in there
/// - `EOPNOTSUPP` for an InfiniBand CM login or `ack_timeout` on an iWARP port, or a device without
///   fast registration
/// - `ENOENT` for an InfiniBand CM login in a partition that the port is not in
/// - [`LoginFailure::errno`] for a login that failed
/// - `ECONNRESET` if the connection was lost during the scan
pub fn log_in(
    sessions: &Arc<Sessions>,
    options: &Options<'_>,
    host: impl FnOnce(&HostParams<'_>) -> Result<Arc<SessionHost>>,
) -> Result {
    let session = begin(sessions, options)?;
    let result = set_up(sessions, &session, options, host);
    if let Err(why) = &result {
        session_log!(
            Warning,
            session,
            "login at {} failed: {why}",
            session.logins.params.destination
        );
        session.remove(LOGOUT_PATIENCE_MS);
        sessions.wait_gone(&session);
    }
    result.map_err(|why| why.errno())
}

/// Chooses the parameters of the logins and all sizes, and creates the session.
fn begin(sessions: &Arc<Sessions>, options: &Options<'_>) -> Result<Arc<Session>> {
    let port = sessions.port();
    let params = login_params(port, options)?;
    let geometry = sizes::geometry(options, port.device().limits()).inspect_err(|e| {
        let e = e.to_errno();
        refuse!(port, "options do not fit the RDMA device: error {e}");
    })?;
    sessions.begin(options.key(), params, geometry)
}

/// Connects the session, adds its host and scans for disks.
fn set_up(
    sessions: &Sessions,
    session: &Arc<Session>,
    options: &Options<'_>,
    host: impl FnOnce(&HostParams<'_>) -> Result<Arc<SessionHost>>,
) -> Result<(), LoginFailure> {
    let login = session.log_in(Purpose::First, LOGIN_TIMEOUT_MS)?;
    let (channels, granted) = login.first()?;
    let add = || -> Result<u16> {
        let channels = Arc::new(channels, GFP_KERNEL)?;
        let geometry = &session.status().geometry;
        let limits = geometry.host_limits(channels.len(), &granted);
        let params = HostParams {
            session,
            channels: channels.clone(),
            limits: limits.ok_or(EINVAL)?,
            transport: sessions.transport(),
        };
        let descriptors = geometry.needed_descriptors(&granted);
        let host = host(&params)?;
        session.keep(login.pd().clone(), channels, host.clone(), descriptors)?;
        // sysfs always shows the order of revision 16a.
        let port_id = PortId::new(IoClass::Rev16a, options.id_ext.0, options.ioc_guid.0);
        let parent = session.status().port().device().parent();
        session.keep_rport(host.add_with_rport(parent, &port_id.0, session.clone())?)?;
        Ok(params.limits.queue_depth)
    };
    let depth = add().map_err(|e| match e {
        _ if session.status().state().is_ending() => LoginFailure::Removed,
        e => LoginFailure::Step("SCSI host", e),
    })?;
    session_log!(
        Info,
        session,
        "logged in at {}: {} channels of {depth} commands",
        session.logins.params.destination,
        granted.len()
    );
    session.scan()
}

/// Builds the parameters of the logins from the options.
fn login_params(port: &Port, options: &Options<'_>) -> Result<LoginParams> {
    let topspin = params::topspin_workarounds() && options.ioc_guid.wants_topspin_workarounds();
    let iwarp = port.device().fabric(port.number()) == Fabric::Other;
    if let (true, Some(timeout)) = (iwarp, options.ack_timeout) {
        refuse!(
            port,
            "'ack_timeout={timeout}': not for an iWARP port, which has the timeouts of TCP"
        );
        return Err(EOPNOTSUPP);
    }
    let (destination, answers_src) = match options.target {
        Target::Rdma { src, dest } => {
            let to = address(port, "dest", src, dest)?;
            // Answer channels choose their local port themselves.
            let src = src.map(|src| proto::address::Address { port: None, ..src });
            (Destination::Rdma(to), src)
        }
        Target::Ib {
            dgid,
            pkey,
            service_id,
        } => {
            if iwarp {
                refuse!(
                    port,
                    "dgid: the port has no InfiniBand connection manager, use dest"
                );
                return Err(EOPNOTSUPP);
            }
            let index = port.device().pkey_index(port.number(), pkey);
            index.inspect_err(|_| {
                refuse!(port, "pkey={pkey:04x}: the port is not in that partition")
            })?;
            let service = Service {
                dgid,
                pkey,
                service_id,
                topspin,
            };
            (Destination::Ib(service), None)
        }
    };
    let mut answers_from = KVec::new();
    for from in options.answers_from.iter().flatten() {
        let to = address(port, "answers_from", answers_src, *from)?;
        answers_from.push(AnswerNode::new(Destination::Rdma(to))?, GFP_KERNEL)?;
    }
    let sgid = port
        .device()
        .gid(port.number(), 0)
        .map(Gid)
        .inspect_err(|_| {
            refuse!(port, "the port has no GID; is its network interface up?");
        })?;
    let initiator = if topspin {
        PortId::topspin(port.device().node_guid())
    } else {
        options.initiator_port(sgid.interface_id())
    };
    Ok(LoginParams {
        destination,
        answers_from,
        sgid,
        initiator,
        target: options.target_port(),
        retry_count: options.tl_retry_count,
        ack_timeout: options.ack_timeout,
        tos: options.tos,
    })
}

/// Resolves the IP addresses of an RDMA/CM login; `what` is the option with the target's address.
fn address(
    port: &Port,
    what: &str,
    src: Option<proto::address::Address<'_>>,
    dest: proto::address::Address<'_>,
) -> Result<Address> {
    let net = Namespace::current().ok_or(ESRCH)?;
    let resolve = |what: &str, address: &proto::address::Address<'_>| {
        SocketAddr::with_scope(
            &net,
            address.ip,
            address.port.unwrap_or(0),
            address.scope.map(str::as_bytes),
        )
        .inspect_err(|_| refuse!(port, "{what}={address}: no such network interface"))
    };
    let src = src.map(|src| resolve("src", &src)).transpose()?;
    let dest = resolve(what, &dest)?;
    Ok(Address { net, src, dest })
}

#[cfg(SRP_KUNIT)]
pub(in crate::srp) mod tests;
