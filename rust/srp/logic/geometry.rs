// SPDX-License-Identifier: GPL-2.0

//! Sizes of a session, from the login options, the parameters, the machine and the device.

use super::{
    super::proto::{
        cmd::IMM_DATA_OFFSET,
        login::{
            it_iu_len,
            Granted, //
        },
        options::{
            Options,
            SG_TABLESIZE_MAX, //
        },
    },
    channels,
    data_path::Regions,
    send_queue::{
        DeviceLimits,
        Sizes, //
    }, //
};

/// Default of `max_sect` in 512-byte sectors, if [`DEFAULT_REGIONS`] hold them: 1 MiB. The
/// midlayer's default is half of that.
const DEFAULT_SECTORS: u32 = 2048;
/// Maximum number of regions per command without `max_sect`: 256 pages are 1 MiB only for
/// page-aligned data.
const DEFAULT_REGIONS: u32 = 2;
/// Upper limit of the parameter `max_imm_data`, in bytes: a slot's memory is at most 64 KiB.
const MAX_IMMEDIATE: u32 = 32 << 10;
/// Upper limit of the parameter `poll_queues`.
const MAX_POLL_QUEUES: u32 = 8;
/// Upper limit of the parameter `static_read_max`, in bytes.
const MAX_STATIC_READ: u32 = 32 << 10;
/// Maximum number of commands per disk: a `short` in `struct Scsi_Host`.
const CMD_PER_LUN_MAX: u32 = i16::MAX as u32;

/// Limits of the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    /// Maximum number of work requests per queue of a queue pair.
    pub max_qp_wr: u32,
    /// Maximum number of entries per completion queue.
    pub max_cqe: u32,
    /// Maximum number of scatter-gather entries per send.
    pub max_send_sge: u32,
    /// Memory regions; without fast registration they have no pages.
    pub regions: Regions,
    /// Maximum number of regions per command.
    pub regions_per_command: u32,
    /// Maximum length of a DMA segment, in bytes.
    pub max_segment_size: u32,
}

/// Module parameters; any value is possible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parameters {
    /// Maximum length of immediate data, in bytes; 0 for none.
    pub immediate: u32,
    /// Maximum length of a read through static memory, in bytes; 0 for none.
    pub static_read: u32,
    /// Number of polled channels.
    pub poll_queues: u32,
}

/// A size that had to be lowered: first the requested value, then the actual one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lowered {
    /// 512-byte sectors per command; the third value is the number of regions that limits them.
    MaxSect(u32, u32, u32),
    /// Commands per channel, limited by the device.
    QueueSize(u32, u32),
    /// Number of channels, limited by the number of CPUs.
    ChCount(u32, u32),
}

/// Why the sizes cannot be chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unfit {
    /// The device has no fast registration.
    NoRegistration,
    /// Not even one command fits.
    NoCommand,
    /// `max_sect`, and the minimum that the block layer accepts: a page of memory. Both in 512-byte
    /// sectors.
    MaxSect(u32, u32),
    /// An answer channel would need room for this many responses, one for each command.
    Answers(u32),
}

/// The sizes of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Number of commands and regions of each channel.
    pub sizes: Sizes,
    /// Number of channels to request, without the polled ones.
    pub channels: u32,
    /// Number of polled channels to request, which come after the others.
    pub polled: u32,
    /// Number of answer channels to request.
    pub answers: u32,
    /// Completion vector of channel 0, if given.
    first_vector: Option<u32>,
    vectors: u32,
    regions: Regions,
    max_segment_size: u32,
    /// Maximum length of a message with immediate data, in bytes.
    pub it_iu_len: u32,
    /// Maximum length of a message without immediate data, in bytes.
    pub message_len: u32,
    /// Maximum number of descriptors in a message.
    pub descriptors: u8,
    /// Maximum length of immediate data, in bytes; 0 for none.
    pub immediate: u32,
    /// Maximum length of a read through static memory, in bytes; 0 for none.
    pub static_read: u32,
    max_sectors: u32,
    sg_tablesize: u32,
    cmd_per_lun: Option<u32>,
}

/// Limits of a SCSI host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostLimits {
    /// Number of channels, each with a hardware queue.
    pub channels: u16,
    /// Number of polled channels among them, the last ones.
    pub polled: u16,
    /// Maximum number of commands per channel.
    pub queue_depth: u16,
    /// Initial queue depth of a disk, in commands.
    pub cmd_per_lun: u16,
    /// Maximum number of segments per command.
    pub sg_tablesize: u16,
    /// Maximum number of 512-byte sectors per command.
    pub max_sectors: u32,
    /// Maximum length of a segment, in bytes; 0 for the default.
    pub max_segment_size: u32,
    /// Alignment of segment boundaries inside the data, minus 1; 0 for none.
    pub virt_boundary_mask: u32,
}

impl Geometry {
    /// Chooses all sizes before the login. Calls `lowered` for each size that had to be lowered.
    pub fn new(
        options: &Options<'_>,
        parameters: Parameters,
        machine: channels::Machine,
        device: Device,
        mut lowered: impl FnMut(Lowered),
    ) -> Result<Self, Unfit> {
        let regions = device.regions;
        if regions.pages < 2 {
            return Err(Unfit::NoRegistration);
        }
        let most = device
            .regions_per_command
            .min(u32::from(options.cmd_sg_entries));
        let wanted = options.max_sect.unwrap_or(
            DEFAULT_SECTORS.min(regions.max_sectors(most.min(DEFAULT_REGIONS + regions.spare()))),
        );
        let least = min_sectors(regions);
        if wanted < least && options.max_sect.is_some() {
            return Err(Unfit::MaxSect(wanted, least));
        }
        let max_sectors = wanted.min(regions.max_sectors(most));
        if max_sectors < least {
            return Err(Unfit::NoCommand);
        }
        if max_sectors < wanted {
            lowered(Lowered::MaxSect(wanted, max_sectors, most));
        }
        let per_command = regions
            .per_command(max_sectors, options.sg_tablesize)
            .min(most);
        let entries = regions.sg_tablesize(per_command);
        let sg_tablesize = match options.sg_tablesize {
            // Not given: as many as the regions hold.
            0 => entries,
            n => n.min(entries),
        };
        let wanted = Sizes {
            depth: options.queue_size,
            regions: per_command,
        };
        let limits = DeviceLimits {
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
        };
        let sizes = wanted.fit(limits).ok_or(Unfit::NoCommand)?;
        if sizes.depth < wanted.depth {
            lowered(Lowered::QueueSize(wanted.depth, sizes.depth));
        }
        let channels = channels::count(options.ch_count, machine);
        if let Some(wanted) = options.ch_count.filter(|&wanted| wanted > channels) {
            lowered(Lowered::ChCount(wanted, channels));
        }
        let polled = parameters.poll_queues.min(MAX_POLL_QUEUES);
        // CAST: At most `MAX_ANSWERS`.
        let answers = options.answers_from.count() as u32;
        let all = channels.saturating_add(polled);
        if answers > 0 && !sizes.answers_fit(all, limits) {
            return Err(Unfit::Answers(sizes.depth.saturating_mul(all)));
        }
        // Immediate data takes an entry of its own, and the peer of an answer channel does not
        // receive it.
        let immediate = if device.max_send_sge >= 2 && answers == 0 {
            parameters.immediate.min(MAX_IMMEDIATE)
        } else {
            0
        };
        // A command answered on another channel can end long before the target acknowledges its
        // SEND: only an invalidation after the SEND keeps the send queue from filling up.
        let static_read = match answers {
            0 => static_read(parameters.static_read, regions, sizes.depth),
            _ => 0,
        };
        let (descriptors, longest) = (options.cmd_sg_entries, options.max_it_iu_size);
        Ok(Self {
            sizes,
            channels,
            polled,
            answers,
            first_vector: options.comp_vector,
            vectors: machine.vectors,
            regions,
            max_segment_size: device.max_segment_size,
            it_iu_len: it_iu_len(descriptors, immediate, longest),
            message_len: it_iu_len(descriptors, 0, longest).max(IMM_DATA_OFFSET as u32),
            descriptors,
            immediate,
            static_read,
            max_sectors,
            sg_tablesize: sg_tablesize.min(SG_TABLESIZE_MAX as u32),
            cmd_per_lun: options.cmd_per_lun,
        })
    }

    /// Size of each slot's memory for small data, and of the part that the target may write, in
    /// bytes.
    pub fn bounce(&self) -> (usize, usize) {
        let (read, immediate) = (self.static_read as usize, self.immediate as usize);
        if read == 0 {
            return (immediate, 0);
        }
        let page = self.regions.page_size as usize;
        // Both lengths are small, and `page` is not 0.
        let whole = |len: usize| len.checked_next_multiple_of(page).unwrap_or(0);
        (whole(immediate).max(whole(read)), whole(read))
    }

    /// Number of channels to request, including the polled ones.
    pub fn all_channels(&self) -> u16 {
        let all = self.channels.saturating_add(self.polled);
        u16::try_from(all).unwrap_or(u16::MAX)
    }

    /// Number of receive buffers of an answer channel.
    pub fn answer_receives(&self) -> u32 {
        self.sizes.answer_receives(self.all_channels().into())
    }

    /// Whether a channel is polled.
    pub const fn is_polled(&self, channel: u32) -> bool {
        channel >= self.channels
    }

    /// The completion vector of a channel.
    pub const fn vector(&self, channel: u32) -> u32 {
        channels::vector(self.first_vector, channel, self.channels, self.vectors)
    }

    /// Number of regions per command, limited by the descriptors that the target granted on the
    /// channels.
    fn regions_of(&self, granted: &[Granted]) -> u32 {
        let descriptors = granted.iter().map(|g| u32::from(g.descriptors)).min();
        // A target without room for a list still takes one direct descriptor.
        self.sizes.regions.min(descriptors.unwrap_or(0).max(1))
    }

    /// Number of descriptors that later messages must have room for; 0 if one direct descriptor is
    /// enough.
    pub fn needed_descriptors(&self, granted: &[Granted]) -> u32 {
        match self.regions_of(granted) {
            1 => 0,
            n => n,
        }
    }

    /// Limits with this many channels, given what the target granted on the connected ones;
    /// [`None`] if none is connected, if a number is too large, or if a page of memory does not fit
    /// into a command.
    pub fn host_limits(&self, channels: usize, granted: &[Granted]) -> Option<HostLimits> {
        let least = granted.iter().map(|g| g.req_lim).min()?;
        // One credit is reserved for task management.
        let depth = self.sizes.depth.min(least.saturating_sub(1));
        let count = self.regions_of(granted);
        let small = |n: u32| u16::try_from(n).ok();
        let channels = u16::try_from(channels).ok()?;
        let all = depth.saturating_mul(channels.into());
        let gaps = self.regions.gaps;
        let entries = count.saturating_mul(self.regions.pages);
        let max_sectors = self.max_sectors.min(self.regions.max_sectors(count));
        if max_sectors < min_sectors(self.regions) {
            return None;
        }
        Some(HostLimits {
            channels,
            // Channels that the device has no room for are missing at the end.
            polled: channels.saturating_sub(small(self.channels)?),
            queue_depth: small(depth)?,
            cmd_per_lun: small(
                self.cmd_per_lun
                    .unwrap_or(all)
                    .min(all)
                    .min(CMD_PER_LUN_MAX),
            )?,
            sg_tablesize: small(self.sg_tablesize.min(entries))?,
            max_sectors,
            max_segment_size: if gaps { self.max_segment_size } else { 0 },
            virt_boundary_mask: self.regions.virt_boundary_mask(),
        })
    }
}

/// Size of a page of memory in 512-byte sectors. The block layer requires a command to hold a page.
const fn min_sectors(regions: Regions) -> u32 {
    regions.memory_page / 512
}

/// `wanted`, or less if one region does not cover the static memory of all slots.
fn static_read(wanted: u32, regions: Regions, depth: u32) -> u32 {
    let page = regions.page_size;
    if page > MAX_STATIC_READ {
        return 0;
    }
    let pages = regions.pages / depth.max(1);
    wanted.min(MAX_STATIC_READ).min(pages.saturating_mul(page))
}
