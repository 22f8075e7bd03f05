// SPDX-License-Identifier: GPL-2.0

//! Chooses the sizes of a session on this machine.

use super::{
    logic::geometry::{
        Environment,
        Lowered,
        Unfit, //
    },
    proto::options::{
        Options,
        SG_TABLESIZE_MAX, //
    }, //
};
use crate::{
    errno::{
        EADDRINUSE,
        EOPNOTSUPP, //
    },
    params,
    rdma::{
        device::Limits,
        mr::MAX_PER_HANDLE, //
    },
    scsi::SG_MAX_SEGMENTS,
    topology, //
};
use kernel::prelude::*;

pub use super::logic::geometry::Geometry;

// The code that checks the options cannot use kernel constants.
const _: () = assert!(SG_TABLESIZE_MAX as u32 == SG_MAX_SEGMENTS);

/// Chooses all sizes before the login. Logs each size that it lowers.
///
/// # Errors
///
/// `EOPNOTSUPP` for a device without fast registration. `EADDRINUSE` for several channels with one
/// local port. `EINVAL` if not even one command fits, if an answer channel cannot hold the
/// responses to all commands, or if `max_sect` is less than a page.
pub fn geometry(options: &Options<'_>, device: Limits) -> Result<Geometry> {
    let environment = Environment {
        nodes: topology::num_online_nodes(),
        cpus: topology::num_online_cpus(),
        // CAST: `MAX_PER_HANDLE` is 16.
        mrs_per_command: MAX_PER_HANDLE as u32,
        immediate: match params::use_imm_data() {
            true => params::max_imm_data(),
            false => 0,
        },
        static_read: params::static_read_max(),
        poll_queues: params::poll_queues(),
    };
    Geometry::new(options, &environment, device, say).map_err(refuse)
}

fn refuse(why: Unfit) -> Error {
    match why {
        Unfit::NoRegistration => {
            pr_err!("the RDMA device has no fast memory registration\n");
            return EOPNOTSUPP;
        }
        Unfit::NoCommand => {}
        Unfit::MaxSect(wanted, least) => {
            pr_err!("max_sect {wanted} is less than a page of memory ({least} sectors)\n")
        }
        Unfit::AnswerChannel(commands) => pr_err!(
            "answers_from: receive queue cannot hold the responses to {commands} commands; \
             lower queue_size or ch_count\n"
        ),
        Unfit::LocalPort(n) => {
            pr_err!("src: a port serves one channel, not {n}; omit it or give ch_count=1\n");
            return EADDRINUSE;
        }
    }
    EINVAL
}

fn say(lowered: Lowered) {
    match lowered {
        Lowered::ChCount(..) => pr_info!("{}\n", format_args!("{lowered}")),
        _ => pr_warn!("{}\n", format_args!("{lowered}")),
    }
}
