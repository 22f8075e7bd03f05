// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/infiniband_srp/srp-<device>-<port>/`: `add_target`, `ibdev`, `port`.

use super::host::Io;
use crate::{
    capability::{
        capable,
        CAP_SYS_ADMIN, //
    },
    params,
    srp::{
        log::port_log,
        login,
        proto::options::{
            Defaults,
            Options, //
        },
        sessions::Sessions, //
    },
    sysfs::{
        attribute_group,
        ClassDevice,
        Page, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

attribute_group! {
    /// The files of a port.
    pub static PORT_ATTRIBUTES: ClassDevice<Arc<Sessions>> {
        add_target: 0o200, store = store_add_target;
        ibdev: 0o444, show = show_ibdev;
        port: 0o444, show = show_port;
    }
}

fn show_ibdev(sessions: &Arc<Sessions>, page: &mut Page<'_>) -> Result {
    page.emit(format_args!("{}\n", sessions.port().device().name()))
}

fn show_port(sessions: &Arc<Sessions>, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{}\n", sessions.port().number()))
}

/// Logs in at the target that `text` describes, see [`Options`]. Sleeps, see [`login::log_in`].
///
/// # Errors
///
/// - `EPERM` without `CAP_SYS_ADMIN`
/// - `EINVAL`, `ERANGE` for a bad string, which changes nothing
/// - those of [`login::log_in`]
pub(in crate::srp) fn store_add_target(sessions: &Arc<Sessions>, text: &[u8]) -> Result {
    if !capable(CAP_SYS_ADMIN) {
        return Err(EPERM);
    }
    let sg = params::sg_entries();
    let defaults = Defaults {
        // CAST: At most 255.
        cmd_sg_entries: sg.cmd as u8,
        // By default, as many as the memory regions can map.
        sg_tablesize: if sg.indirect > sg.cmd { sg.indirect } else { 0 },
        allow_ext_sg: params::allow_ext_sg(),
        ch_count: params::ch_count(),
    };
    let options = Options::parse(text, &defaults).map_err(|e| {
        port_log!(pr_warn, sessions.port(), "login refused: {e}");
        match e.is_range() {
            true => ERANGE,
            false => EINVAL,
        }
    })?;
    login::log_in(sessions, &options, |connected| {
        Io::host(connected, &options)
    })
}
