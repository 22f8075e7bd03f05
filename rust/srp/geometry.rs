// SPDX-License-Identifier: GPL-2.0

//! How large things are: from the login options, the parameters and the device.

use super::{
    logic::{
        channels,
        registration::Regions,
        send_queue::{
            DeviceLimits,
            Sizes, //
        }, //
    },
    proto::{
        cmd::IMM_DATA_OFFSET,
        login::{
            it_iu_len,
            Granted, //
        },
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
    sys, //
};
use kernel::prelude::*;

/// 512-byte sectors of a command without `max_sect`, if [`DEFAULT_REGIONS`] hold them: 1 MiB, where the
/// midlayer's default is half of that.
const DEFAULT_SECTORS: u32 = 2048;
/// Regions that a command without `max_sect` may have: 256 pages are 1 MiB only for data that begins with a page.
const DEFAULT_REGIONS: u32 = 2;

/// Bytes of a receive buffer. The longest message that a target can send has 292.
pub const RECEIVE_SIZE: usize = 512;

/// The sizes of a session.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Commands and regions of each channel.
    pub sizes: Sizes,
    /// Channels to ask for, without the polled ones.
    pub channels: u32,
    /// Polled channels to ask for, which come after the others.
    pub polled: u32,
    /// Completion vector of channel 0, if chosen.
    first_vector: Option<u32>,
    /// What the device can do.
    pub device: device::Limits,
    /// Bytes of the longest message to the target, with immediate data.
    pub it_iu_len: u32,
    /// The same without immediate data.
    pub message_len: u32,
    /// Descriptors in a message.
    pub descriptors: u8,
    /// Bytes of immediate data, 0 for none.
    pub immediate: u32,
    /// The longest read that goes through static memory, in bytes; 0 for none.
    pub static_read: u32,
    max_sectors: u32,
    sg_tablesize: u32,
    cmd_per_lun: Option<u32>,
}

impl Geometry {
    /// Decides on all sizes before the login. Says in the log what had to be made smaller.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a device without fast registration, `EINVAL` if not even one command fits.
    pub fn new(options: &Options<'_>, device: device::Limits) -> Result<Self> {
        if device.max_pages_per_mr < 2 {
            pr_err!("the RDMA device has no fast memory registration\n");
            return Err(crate::errno::EOPNOTSUPP);
        }
        let regions = regions(&device);
        let most = (MAX_PER_HANDLE as u32).min(u32::from(options.cmd_sg_entries));
        let wanted = options.max_sect.unwrap_or(
            DEFAULT_SECTORS.min(regions.max_sectors(most.min(DEFAULT_REGIONS + regions.spare()))),
        );
        let max_sectors = wanted.min(regions.max_sectors(most));
        if max_sectors < wanted {
            pr_warn!(
                "max_sect {wanted} lowered to {max_sectors}: {most} memory regions per command\n"
            );
        }
        let per_command = regions
            .per_command(max_sectors, options.sg_tablesize)
            .min(most);
        let entries = regions.sg_tablesize(per_command);
        let sg_tablesize = match options.sg_tablesize {
            // Nobody said: as many as the regions take.
            0 => entries,
            n => n.min(entries),
        };
        let wanted = Sizes {
            depth: options.queue_size,
            regions: per_command,
        };
        let sizes = wanted
            .fit(DeviceLimits {
                max_qp_wr: device.max_qp_wr,
                max_cqe: device.max_cqe,
                max_mr: u32::MAX,
            })
            .ok_or(EINVAL)?;
        if sizes.depth < wanted.depth {
            pr_warn!(
                "queue_size {} lowered to {}, the most that the device takes\n",
                wanted.depth,
                sizes.depth
            );
        }
        let machine = channels::Machine {
            nodes: sys::num_online_nodes(),
            cpus: sys::num_online_cpus(),
            vectors: device.num_comp_vectors,
        };
        let channels = channels::count(options.ch_count, machine);
        if let Some(wanted) = options.ch_count.filter(|&wanted| wanted > channels) {
            pr_info!("ch_count {wanted} lowered to {channels}: there are no more CPUs\n");
        }
        // The data is a part of its own.
        let immediate = if params::use_imm_data() && device.max_send_sge >= 2 {
            params::max_imm_data().min(MAX_IMMEDIATE)
        } else {
            0
        };
        let (descriptors, longest) = (options.cmd_sg_entries, options.max_it_iu_size);
        Ok(Self {
            sizes,
            channels,
            polled: params::poll_queues().min(MAX_POLL_QUEUES),
            first_vector: options.comp_vector,
            device,
            it_iu_len: it_iu_len(descriptors, immediate, longest),
            message_len: it_iu_len(descriptors, 0, longest).max(IMM_DATA_OFFSET as u32),
            descriptors,
            immediate,
            static_read: static_read(&device, sizes.depth),
            max_sectors,
            sg_tablesize: sg_tablesize.min(SG_MAX_SEGMENTS),
            cmd_per_lun: options.cmd_per_lun,
        })
    }

    /// Bytes of each slot's memory for small data, and of the part of it that the target may write.
    pub fn bounce(&self) -> (usize, usize) {
        let (read, immediate) = (self.static_read as usize, self.immediate as usize);
        if read == 0 {
            return (immediate, 0);
        }
        let page = self.device.mr_page_size as usize;
        // Both are small, and a page has bytes.
        let whole = |len: usize| len.checked_next_multiple_of(page).unwrap_or(0);
        (whole(immediate).max(whole(read)), whole(read))
    }

    /// All channels to ask for.
    pub fn all_channels(&self) -> u16 {
        let all = self.channels.saturating_add(self.polled);
        u16::try_from(all).unwrap_or(u16::MAX)
    }

    /// A channel is polled.
    pub fn is_polled(&self, channel: u32) -> bool {
        channel >= self.channels
    }

    /// The completion vector of a channel.
    pub fn vector(&self, channel: u32) -> u32 {
        channels::vector(
            self.first_vector,
            channel,
            self.channels,
            self.device.num_comp_vectors,
        )
    }

    /// Regions of a command, given what the target granted to each of the channels: no more than its
    /// message has room for.
    fn regions_of(&self, granted: &[Granted]) -> u32 {
        let descriptors = granted.iter().map(|g| u32::from(g.descriptors)).min();
        // A target without room for a list still takes one direct descriptor.
        self.sizes.regions.min(descriptors.unwrap_or(0).max(1))
    }

    /// Descriptors that a message must have room for, from now on; 0 if one direct one is enough.
    pub fn needed_descriptors(&self, granted: &[Granted]) -> u32 {
        match self.regions_of(granted) {
            1 => 0,
            n => n,
        }
    }

    /// What the SCSI midlayer may ask for with so many channels, given what the target granted to those
    /// that are connected.
    ///
    /// # Errors
    ///
    /// `EINVAL` without a channel, or if a target grants so little that nothing can be sent.
    pub fn host_limits(&self, channels: usize, granted: &[Granted]) -> Result<scsi::Limits> {
        let least = granted.iter().map(|g| g.req_lim).min().ok_or(EINVAL)?;
        // One credit is kept for task management.
        let depth = self.sizes.depth.min(least.saturating_sub(1));
        let count = self.regions_of(granted);
        let shape = regions(&self.device);
        let small = |n: u32| u16::try_from(n).map_err(|_| EINVAL);
        let channels = u16::try_from(channels).map_err(|_| EINVAL)?;
        let all = depth.saturating_mul(channels.into());
        Ok(scsi::Limits {
            nr_hw_queues: channels,
            // Those that the device has no room for are the last ones.
            polled_queues: channels.saturating_sub(small(self.channels)?),
            queue_depth: small(depth)?,
            cmd_per_lun: small(
                self.cmd_per_lun
                    .unwrap_or(all)
                    .min(all)
                    .min(CMD_PER_LUN_MAX),
            )?,
            max_id: 1,
            max_lun: u64::MAX,
            max_cmd_len: 16,
            sg_tablesize: small(self.sg_tablesize.min(count * shape.pages))?,
            max_sectors: self.max_sectors.min(shape.max_sectors(count)),
            max_segment_size: if self.device.sg_gaps {
                self.device.max_segment_size
            } else {
                0
            },
            virt_boundary_mask: if self.device.sg_gaps {
                0
            } else {
                self.device.mr_page_size as usize - 1
            },
            dma_boundary: 0,
        })
    }
}

/// Most immediate data that is asked for, whatever the parameter says: a slot's memory is at most
/// 64 KiB.
const MAX_IMMEDIATE: u32 = 32 << 10;
/// Most polled channels, whatever the parameter says.
const MAX_POLL_QUEUES: u32 = 8;
/// Longest read through static memory, whatever the parameter says.
const MAX_STATIC_READ: u32 = 32 << 10;
/// Most commands of a disk, whatever the queues hold: a `short` in `struct Scsi_Host`.
const CMD_PER_LUN_MAX: u32 = i16::MAX as u32;

// The options are checked without a kernel at hand.
const _: () = assert!(SG_TABLESIZE_MAX as u32 == SG_MAX_SEGMENTS);

fn regions(device: &device::Limits) -> Regions {
    Regions {
        page_size: device.mr_page_size,
        pages: device.max_pages_per_mr,
        gaps: device.sg_gaps,
        bounced: device.bounces,
    }
}

/// The parameter, or less if one region does not cover the static memory of all slots.
fn static_read(device: &device::Limits, depth: u32) -> u32 {
    let page = device.mr_page_size;
    if page > MAX_STATIC_READ {
        return 0;
    }
    let pages = device.max_pages_per_mr / depth.max(1);
    params::static_read_max()
        .min(MAX_STATIC_READ)
        .min(pages.saturating_mul(page))
}
