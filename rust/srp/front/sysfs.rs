// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/infiniband_srp/srp-<device>-<port>/`: `add_target`, `ibdev`, `port`.

use super::{
    host::Facts,
    scsi::Io, //
};
use crate::{
    net::{
        Namespace,
        SocketAddr, //
    },
    params,
    rdma::{
        device::Fabric,
        pd::Pd, //
    },
    scsi::{
        self,
        transport::srp::Rport,
        Host, //
    },
    srp::{
        channels::Channels,
        connect::{
            Address,
            Login,
            Plan,
            Purpose,
            Service,
            Way, //
        },
        error::LoginFailure,
        geometry::Geometry,
        log::session_log,
        logic::session::LOGIN_TIMEOUT_MS,
        port::Port,
        proto::{
            self,
            guid::{
                Gid,
                IoClass, //
            },
            ids::PortId,
            login::Granted,
            option_error::Errno,
            options::{
                Defaults,
                Options,
                Target, //
            }, //
        },
        session::{
            Session,
            LOG_OUT_PATIENCE_MS, //
        }, //
    },
    sys::{
        capable,
        CAP_SYS_ADMIN, //
    },
    sysfs::{
        attribute_group,
        ClassDevice,
        Page, //
    }, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

attribute_group! {
    /// The files of a port.
    pub static PORT_ATTRIBUTES: ClassDevice<Arc<Port>> {
        add_target: 0o200, store = store_add_target;
        ibdev: 0o444, show = show_ibdev;
        port: 0o444, show = show_port;
    }
}

fn show_ibdev(port: &Arc<Port>, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{}\n", format_args!("{}", port.device().name())))
}

fn show_port(port: &Arc<Port>, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{}\n", port.number()))
}

/// Logs in at the target that `text` describes, see [`Options`]. Sleeps, while the target answers, at most
/// 10 s longer, and for the time that the midlayer takes to look at the disks.
///
/// # Errors
///
/// - `EPERM` without `CAP_SYS_ADMIN`
/// - `EINVAL`, `ERANGE` for a bad string, which changes nothing
/// - `EEXIST` if the port is logged in there
/// - `EOPNOTSUPP` for an InfiniBand CM login or `ack_timeout` by an iWARP port, or a device without fast registration
/// - `ENOENT` for an InfiniBand CM login in a partition that the port is not in
/// - [`LoginFailure::errno`](crate::srp::error::LoginFailure::errno) for a login that failed
/// - `ECONNRESET` if the connection was lost while the disks were looked for
fn store_add_target(port: &Arc<Port>, text: &[u8]) -> Result {
    if !capable(CAP_SYS_ADMIN) {
        return Err(EPERM);
    }
    let sg = params::sg_entries();
    let defaults = Defaults {
        // CAST: At most 255.
        cmd_sg_entries: sg.cmd as u8,
        // Without a choice of the administrator: whatever the memory regions can take.
        sg_tablesize: if sg.indirect > sg.cmd { sg.indirect } else { 0 },
        allow_ext_sg: params::allow_ext_sg(),
        ch_count: params::ch_count(),
    };
    let options = Options::parse(text, &defaults).map_err(|e| {
        pr_warn!(
            "{}: login refused: {}\n",
            format_args!("{}", port.name()),
            format_args!("{e}")
        );
        match e.errno() {
            Errno::Invalid => EINVAL,
            Errno::Range => ERANGE,
        }
    })?;
    let plan = plan(port, &options)?;
    let geometry = Geometry::new(&options, port.device().limits()).inspect_err(|e| {
        pr_warn!(
            "{}: login refused: the RDMA device cannot do it: error {}\n",
            format_args!("{}", port.name()),
            e.to_errno()
        );
    })?;

    let session = port.begin(options.key(), plan, geometry)?;
    let result = log_in(&session, &options);
    if let Err(why) = &result {
        session_log!(
            Warning,
            session,
            "login at {} failed: {}",
            fmt!("{}", session.plan.way),
            format_args!("{why}")
        );
        session.remove(LOG_OUT_PATIENCE_MS);
        port.wait_gone(&session);
    }
    result.map_err(|why| why.errno())
}

/// Who logs in where.
fn plan(port: &Arc<Port>, options: &Options<'_>) -> Result<Plan> {
    let topspin = params::topspin_workarounds() && options.ioc_guid.wants_topspin_workarounds();
    if let Some(timeout) = options.ack_timeout {
        // TCP waits by itself.
        check_transport(
            port,
            format_args!("'ack_timeout={timeout}': the port has the timeouts of TCP"),
        )?;
    }
    let way = match options.target {
        Target::Rdma { src, dest } => Way::Rdma(address(port, src, dest)?),
        Target::Ib {
            dgid,
            pkey,
            service_id,
        } => {
            check_service(port, pkey)?;
            Way::Ib(Service::new(dgid, pkey, service_id, topspin)?)
        }
    };
    let sgid = port
        .device()
        .gid(port.number(), 0)
        .map(Gid)
        .inspect_err(|_| {
            pr_warn!(
                "{}: login refused: the port has no GID; is its network interface up?\n",
                format_args!("{}", port.name())
            );
        })?;
    let initiator = if topspin {
        PortId::topspin(port.device().node_guid())
    } else {
        options.initiator_port(sgid.interface_id())
    };
    Ok(Plan {
        way,
        sgid,
        initiator,
        target: options.target_port(),
        retry_count: options.tl_retry_count,
        ack_timeout: options.ack_timeout,
        tos: options.tos,
    })
}

/// The IP addresses of an RDMA/CM login.
fn address(
    port: &Port,
    src: Option<proto::address::Address<'_>>,
    dest: proto::address::Address<'_>,
) -> Result<Address> {
    let net = Namespace::current();
    let resolve = |what: &str, address: &proto::address::Address<'_>| {
        SocketAddr::with_scope(
            &net,
            address.ip,
            address.port.unwrap_or(0),
            address.scope.map(str::as_bytes),
        )
        .inspect_err(|_| {
            pr_warn!(
                "{}: login refused: {what}={}: no such network interface\n",
                format_args!("{}", port.name()),
                format_args!("{address}")
            )
        })
    };
    let src = src.map(|src| resolve("src", &src)).transpose()?;
    let dest = resolve("dest", &dest)?;
    Address::new(net, src, dest)
}

/// Whether the port is one of InfiniBand or RoCE; `why` says what iWARP has no use for.
fn check_transport(port: &Port, why: core::fmt::Arguments<'_>) -> Result {
    if port.device().fabric(port.number()) == Fabric::Other {
        pr_warn!(
            "{}: login refused: {why}\n",
            format_args!("{}", port.name())
        );
        return Err(crate::errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Whether the port can make an InfiniBand CM login in this partition.
fn check_service(port: &Port, pkey: u16) -> Result {
    check_transport(
        port,
        format_args!("dgid: the port has no InfiniBand connection manager, use dest"),
    )?;
    port.device()
        .pkey_index(port.number(), pkey)
        .map(|_| ())
        .inspect_err(|_| {
            pr_warn!(
                "{}: login refused: pkey={pkey:04x}: the port is not in that partition\n",
                format_args!("{}", port.name())
            )
        })
}

/// Connects the session, adds its host and looks for disks.
fn log_in(session: &Arc<Session>, options: &Options<'_>) -> Result<(), LoginFailure> {
    let login = Login::new(session, Purpose::First, LOGIN_TIMEOUT_MS)?;
    let (channels, granted) = login.first()?;
    let host = host(session, options, login.pd(), channels, &granted);
    let (host, limits) = host.map_err(|e| match e {
        _ if session.is_ending() => LoginFailure::Removed,
        e => LoginFailure::Step("SCSI host", e),
    })?;
    session_log!(
        Info,
        session,
        "logged in at {}: {} channels of {} commands",
        fmt!("{}", session.plan.way),
        granted.len(),
        limits.can_queue
    );
    drop(host);
    session.look_for_disks()
}

/// Adds the host of a session that is connected.
fn host(
    session: &Arc<Session>,
    options: &Options<'_>,
    pd: &Arc<Pd>,
    channels: Channels,
    granted: &[Granted],
) -> Result<(Arc<Host<Io>>, scsi::Limits)> {
    let channels = Arc::new(channels, GFP_KERNEL)?;
    let limits = session.geometry.host_limits(channels.len(), granted)?;
    let descriptors = session.geometry.needed_descriptors(granted);
    let facts = Facts {
        id_ext: options.id_ext,
        ioc_guid: options.ioc_guid,
        sgid: session.plan.sgid,
        comp_vector: options.comp_vector.unwrap_or(0),
        tl_retry_count: options.tl_retry_count,
        ack_timeout: options.ack_timeout,
        tos: options.tos,
        cmd_sg_entries: options.cmd_sg_entries,
        allow_ext_sg: options.allow_ext_sg,
    };
    let per_target = options.target_can_queue.unwrap_or(0);
    let io = Io::new(session.clone(), channels.clone(), per_target, facts);
    let io = Arc::new(io, GFP_KERNEL)?;
    let info = CString::try_from_fmt(fmt!("SRP.T10:{:016X}", options.id_ext.0))?;
    let transport = session.port().transport().clone();
    let host = Host::new(&limits, &info, Some(transport), io)?;
    let host = Arc::new(host, GFP_KERNEL)?;
    session.keep(pd.clone(), channels, host.clone(), descriptors)?;
    // In sysfs the order is always that of revision 16a.
    let port_id = PortId::new(IoClass::Rev16a, options.id_ext.0, options.ioc_guid.0);
    host.add(session.port().device().parent())?;
    session.keep_rport(Rport::add(&host, &port_id.0, session.clone())?)?;
    Ok((host, limits))
}

#[cfg(SRP_KUNIT)]
pub(in crate::srp) mod tests;
