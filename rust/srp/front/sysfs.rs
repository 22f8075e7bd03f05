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
    scsi::{
        self,
        Host, //
    },
    srp::{
        channel::Connection,
        connect::{
            Login,
            Plan, //
        },
        error::LoginFailure,
        geometry::Geometry,
        port::Port,
        proto::{
            address::Address,
            ids::{
                Gid,
                PortId, //
            },
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

/// Logs in at the target that `text` describes, see [`Options`]. Sleeps, at most 10 s and the time
/// that the midlayer takes to look at the disks.
///
/// # Errors
///
/// - `EPERM` without `CAP_SYS_ADMIN`
/// - `EINVAL`, `ERANGE` for a bad string, which changes nothing
/// - `EEXIST` if the port is logged in there
/// - `EOPNOTSUPP` for an InfiniBand CM login, or a device without fast registration
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

    let session = port.begin(options.key(), options.target_port())?;
    let result = log_in(&session, &options, &geometry, &plan);
    if let Err(why) = &result {
        pr_warn!(
            "{}: login at {} failed: {}\n",
            format_args!("{}", session.name()),
            plan.dest,
            format_args!("{why}")
        );
        session.remove(LOG_OUT_PATIENCE_MS);
        port.wait_gone(&session);
    }
    result.map_err(|why| why.errno())
}

/// Who logs in where.
fn plan(port: &Arc<Port>, options: &Options<'_>) -> Result<Plan> {
    let Target::Rdma { src, dest } = options.target else {
        pr_warn!(
            "{}: login refused: dgid: InfiniBand CM logins are not supported, use dest\n",
            format_args!("{}", port.name())
        );
        return Err(crate::errno::EOPNOTSUPP);
    };
    let net = Namespace::current();
    let resolve = |what: &str, address: &Address<'_>| {
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
    let topspin = params::topspin_workarounds() && options.ioc_guid.wants_topspin_workarounds();
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
        net,
        src,
        dest,
        sgid,
        initiator,
        target: options.target_port(),
        retry_count: options.tl_retry_count,
    })
}

/// Connects the session, adds its host and looks for disks.
fn log_in(
    session: &Arc<Session>,
    options: &Options<'_>,
    geometry: &Geometry,
    plan: &Plan,
) -> Result<(), LoginFailure> {
    let channels = Login::new(session, geometry, plan)?.run()?;
    let (host, limits) = host(session, options, geometry, plan, channels).map_err(|e| match e {
        _ if session.is_ending() => LoginFailure::Removed,
        e => LoginFailure::Step("SCSI host", e),
    })?;
    pr_info!(
        "{}: logged in at {}: host{}, {} channels of {} commands\n",
        format_args!("{}", session.name()),
        plan.dest,
        host.number(),
        limits.nr_hw_queues,
        limits.can_queue
    );
    drop(host);
    session.look_for_disks()
}

/// Adds the host of a session that is connected.
fn host(
    session: &Arc<Session>,
    options: &Options<'_>,
    geometry: &Geometry,
    plan: &Plan,
    channels: KVec<(Arc<Connection>, Granted)>,
) -> Result<(Arc<Host<Io>>, scsi::Limits)> {
    let mut granted = KVec::with_capacity(channels.len(), GFP_KERNEL)?;
    let mut connections = KVec::with_capacity(channels.len(), GFP_KERNEL)?;
    for (connection, grant) in channels {
        granted.push(grant, GFP_KERNEL)?;
        session.add_connection(connection.clone())?;
        connections.push(connection, GFP_KERNEL)?;
    }
    let limits = geometry.host_limits(&granted)?;
    let facts = Facts {
        id_ext: options.id_ext,
        ioc_guid: options.ioc_guid,
        sgid: plan.sgid,
        comp_vector: options.comp_vector.unwrap_or(0),
        tl_retry_count: options.tl_retry_count,
        cmd_sg_entries: options.cmd_sg_entries,
        allow_ext_sg: options.allow_ext_sg,
    };
    let per_target = options.target_can_queue.unwrap_or(0);
    let io = Io::new(session.clone(), connections, per_target, facts);
    let io = Arc::new(io, GFP_KERNEL)?;
    let info = CString::try_from_fmt(fmt!("SRP.T10:{:016X}", options.id_ext.0))?;
    let host = Host::new(&limits, &info, session.port().transport(), io)?;
    let host = Arc::new(host, GFP_KERNEL)?;
    session.go_live(host.clone())?;
    host.add(session.port().device().parent(), &session.target().0)?;
    Ok((host, limits))
}
