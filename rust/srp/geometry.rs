// SPDX-License-Identifier: GPL-2.0

//! The sizes of a session on this machine, see [`logic::geometry`](super::logic::geometry).

use super::{
    logic::{
        channels::Machine,
        data_path::Regions, //
        geometry::{
            self,
            Device,
            Lowered,
            Parameters,
            Unfit, //
        },
    },
    proto::{
        login::Granted,
        options::{
            Options,
            SG_TABLESIZE_MAX, //
        }, //
    },
};
use crate::{
    params,
    rdma::{
        device,
        mr::MAX_PER_HANDLE, //
    },
    scsi::{
        self,
        SG_MAX_SEGMENTS, //
    },
    topology, //
};
use core::ops::Deref;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Size of a receive buffer, in bytes. The longest message from a target is 292 bytes: an SRP_RSP
/// with 4 bytes of response data and 252 of sense data.
pub const RECEIVE_SIZE: usize = 512;

// The code that checks the options cannot use kernel constants.
const _: () = assert!(SG_TABLESIZE_MAX as u32 == SG_MAX_SEGMENTS);

/// The sizes of a session, and what the device can do.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    inner: geometry::Geometry,
    /// What the device can do.
    pub device: device::Limits,
}

impl Deref for Geometry {
    type Target = geometry::Geometry;

    fn deref(&self) -> &geometry::Geometry {
        &self.inner
    }
}

impl Geometry {
    /// Computes all sizes before the login. Logs each size that it lowers.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device without fast registration. `EINVAL` if not even one command fits,
    /// if an answer channel cannot hold the responses to all commands, or if `max_sect` is less
    /// than a page.
    pub fn new(options: &Options<'_>, device: device::Limits) -> Result<Self> {
        let parameters = Parameters {
            immediate: match params::use_imm_data() {
                true => params::max_imm_data(),
                false => 0,
            },
            static_read: params::static_read_max(),
            poll_queues: params::poll_queues(),
        };
        let machine = Machine {
            nodes: topology::num_online_nodes(),
            cpus: topology::num_online_cpus(),
            vectors: device.num_comp_vectors,
        };
        let limits = Device {
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
            max_send_sge: device.max_send_sge,
            regions: Regions {
                page_size: device.mr_page_size,
                pages: device.max_pages_per_mr,
                gaps: device.sg_gaps,
                bounced: device.bounces,
                // CAST: At most 64 KiB.
                memory_page: PAGE_SIZE as u32,
            },
            // CAST: It is 16.
            regions_per_command: MAX_PER_HANDLE as u32,
            max_segment_size: device.max_segment_size,
        };
        match geometry::Geometry::new(options, parameters, machine, limits, say) {
            Ok(inner) => Ok(Self { inner, device }),
            Err(Unfit::NoRegistration) => {
                pr_err!("the RDMA device has no fast memory registration\n");
                Err(crate::errno::EOPNOTSUPP)
            }
            Err(Unfit::NoCommand) => Err(EINVAL),
            Err(Unfit::MaxSect(wanted, least)) => {
                pr_err!("max_sect {wanted} is less than a page of memory ({least} sectors)\n");
                Err(EINVAL)
            }
            Err(Unfit::Answers(commands)) => {
                pr_err!(
                    "answers_from: receive queue cannot hold the responses to {commands} commands; \
                     lower queue_size or ch_count\n"
                );
                Err(EINVAL)
            }
        }
    }

    /// Returns the limits of a SCSI host with this many channels, given what the target granted to
    /// the connected ones.
    ///
    /// # Errors
    ///
    /// `EINVAL` without a channel.
    pub fn host_limits(&self, channels: usize, granted: &[Granted]) -> Result<scsi::Limits> {
        let limits = self.inner.host_limits(channels, granted).ok_or(EINVAL)?;
        Ok(scsi::Limits {
            nr_hw_queues: limits.channels,
            polled_queues: limits.polled,
            queue_depth: limits.queue_depth,
            cmd_per_lun: limits.cmd_per_lun,
            max_id: 1,
            max_lun: u64::MAX,
            max_cmd_len: 16,
            sg_tablesize: limits.sg_tablesize,
            max_sectors: limits.max_sectors,
            max_segment_size: limits.max_segment_size,
            virt_boundary_mask: limits.virt_boundary_mask as usize,
            dma_boundary: 0,
        })
    }
}

fn say(lowered: Lowered) {
    match lowered {
        Lowered::MaxSect(wanted, max_sectors, most) => pr_warn!(
            "max_sect {wanted} lowered to {max_sectors}: {most} memory regions per command\n"
        ),
        Lowered::QueueSize(wanted, depth) => {
            pr_warn!("queue_size {wanted} lowered to {depth}, the most that the device takes\n")
        }
        Lowered::ChCount(wanted, channels) => {
            pr_info!("ch_count {wanted} lowered to {channels}: there are no more CPUs\n")
        }
    }
}
