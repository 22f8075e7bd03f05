// SPDX-License-Identifier: GPL-2.0

//! Sizes of a session, from the login options, the parameters, the machine and the device.

use super::{
    super::proto::{
        cmd::IMM_DATA_OFFSET,
        login_iu::{
            it_iu_len,
            Granted, //
        },
        options::{
            Options,
            Target,
            SG_TABLESIZE_MAX, //
        },
        texts::texts, //
    },
    send_queue::Slots,
    tag::MAX_CHANNELS, //
};
use crate::{
    rdma::limits::Limits,
    scsi::limits as scsi, //
};

/// Default number of channels per NUMA node.
const PER_NODE: u32 = 4;
/// Maximum number of channels by default: four for each of four nodes. Each channel of a session
/// costs a queue pair with its memory, on the device and on the target.
const MAX_UNASKED: u32 = 16;
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

/// The machine, and parameters of the module; any value is possible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Environment {
    /// Number of online NUMA nodes.
    pub nodes: u32,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Maximum number of regions per command.
    pub mrs_per_command: u32,
    /// Maximum length of immediate data, in bytes; 0 for none.
    pub immediate: u32,
    /// Maximum length of a read through static memory, in bytes; 0 for none.
    pub static_read: u32,
    /// Number of polled channels.
    pub poll_queues: u32,
}

texts! {
    /// A size that had to be lowered: first the requested value, then the actual one.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Lowered {
        /// 512-byte sectors per command; the third value is the number of regions that limits them.
        MaxSect(wanted: u32, sectors: u32, regions: u32) =>
            "max_sect {wanted} lowered to {sectors}: {regions} memory regions per command";

        /// Commands per channel, limited by the device.
        QueueSize(wanted: u32, depth: u32) =>
            "queue_size {wanted} lowered to {depth}, the limit of the device";

        /// Number of channels, limited by the number of CPUs.
        ChCount(wanted: u32, channels: u32) =>
            "ch_count {wanted} lowered to {channels}, the number of CPUs";
    }
}

/// The reason why no sizes can be chosen.
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
    AnswerChannel(u32),
    /// `src` has a port, which `rdma_cm` gives to one channel only, not to this many.
    LocalPort(u32),
}

/// The sizes of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// The limits of the device.
    pub device: Limits,
    /// Number of commands and regions of each channel.
    pub slots: Slots,
    /// Number of channels to request, without the polled ones.
    pub channels: u32,
    /// Number of polled channels to request, which come after the others.
    pub polled: u32,
    /// Number of answer channels to request.
    pub answer_channels: u32,
    /// Completion vector of channel 0, if given.
    first_vector: Option<u32>,
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

impl Geometry {
    /// Chooses all sizes before the login. Calls `lowered` for each size that had to be lowered.
    pub fn new(
        options: &Options<'_>,
        environment: &Environment,
        device: Limits,
        mut lowered: impl FnMut(Lowered),
    ) -> Result<Self, Unfit> {
        if device.max_pages_per_mr < 2 {
            return Err(Unfit::NoRegistration);
        }
        let descriptors = options.cmd_sg_entries;
        let most = environment.mrs_per_command.min(descriptors.into());
        let unasked = device.max_sectors(most.min(DEFAULT_REGIONS + device.spare_mrs()));
        let wanted = options.max_sect.unwrap_or(unasked.min(DEFAULT_SECTORS));
        let least = min_sectors(&device);
        if wanted < least && options.max_sect.is_some() {
            return Err(Unfit::MaxSect(wanted, least));
        }
        let max_sectors = wanted.min(device.max_sectors(most));
        if max_sectors < least {
            return Err(Unfit::NoCommand);
        }
        if max_sectors < wanted {
            lowered(Lowered::MaxSect(wanted, max_sectors, most));
        }
        let regions = device.mrs_per_command(max_sectors, options.sg_tablesize);
        let regions = regions.min(most);
        let entries = device.sg_tablesize(regions).min(SG_TABLESIZE_MAX as u32);
        let sg_tablesize = match options.sg_tablesize {
            // Without the option, as many as the regions hold.
            0 => entries,
            n => n.min(entries),
        };
        let depth = options.queue_size;
        let slots = Slots { depth, regions };
        let slots = slots.fit(&device).ok_or(Unfit::NoCommand)?;
        if slots.depth < depth {
            lowered(Lowered::QueueSize(depth, slots.depth));
        }
        let channels = channel_count(options.ch_count, environment, device.num_comp_vectors);
        if let Some(wanted) = options.ch_count.filter(|&wanted| wanted > channels) {
            lowered(Lowered::ChCount(wanted, channels));
        }
        let polled = environment.poll_queues.min(MAX_POLL_QUEUES);
        // CAST: At most `MAX_ANSWERS`.
        let answer_channels = options.answers_from.iter().flatten().count() as u32;
        let all = channels.saturating_add(polled);
        let bound = matches!(options.target, Target::Rdma { src: Some(a), .. } if a.port > Some(0));
        if bound && all > 1 {
            return Err(Unfit::LocalPort(all));
        }
        if answer_channels > 0 && !slots.answer_channel_fits(all, &device) {
            return Err(Unfit::AnswerChannel(slots.depth.saturating_mul(all)));
        }
        // Immediate data takes a scatter-gather entry of its own, and the peer of an answer channel
        // does not receive it.
        let immediate = if device.max_send_sge >= 2 && answer_channels == 0 {
            environment.immediate.min(MAX_IMMEDIATE)
        } else {
            0
        };
        // A command with its response on another channel can end long before the target
        // acknowledges its SEND: only an invalidation after the SEND keeps the send queue from
        // filling up.
        let static_read = match answer_channels {
            0 => static_read(environment.static_read, &device, slots.depth),
            _ => 0,
        };
        let longest = options.max_it_iu_size;
        Ok(Self {
            device,
            slots,
            channels,
            polled,
            answer_channels,
            first_vector: options.comp_vector,
            it_iu_len: it_iu_len(descriptors, immediate, longest),
            message_len: it_iu_len(descriptors, 0, longest).max(IMM_DATA_OFFSET as u32),
            descriptors,
            immediate,
            static_read,
            max_sectors,
            sg_tablesize,
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
        let page = self.device.mr_page_size as usize;
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
        self.slots.answer_receives(self.all_channels().into())
    }

    /// Whether a channel is polled.
    pub const fn is_polled(&self, channel: u32) -> bool {
        channel >= self.channels
    }

    /// The completion vector of a channel.
    pub const fn vector(&self, channel: u32) -> u32 {
        let vectors = self.device.num_comp_vectors;
        vector(self.first_vector, channel, self.channels, vectors)
    }

    /// Number of regions per command, limited by the descriptors that the target granted on the
    /// channels.
    fn regions_of(&self, granted: &[Granted]) -> u32 {
        let descriptors = granted.iter().map(|g| u32::from(g.descriptors)).min();
        // A target without room for a list still takes one direct descriptor.
        self.slots.regions.min(descriptors.unwrap_or(0).max(1))
    }

    /// Number of descriptors that later messages must have room for; 0 if one direct descriptor is
    /// enough.
    pub fn needed_descriptors(&self, granted: &[Granted]) -> u32 {
        match self.regions_of(granted) {
            1 => 0,
            n => n,
        }
    }

    /// Limits with this many channels and the grants on the connected channels; [`None`] if no
    /// channel is connected, if a number is too large, or if a page of memory does not fit into a
    /// command.
    pub fn host_limits(&self, channels: usize, granted: &[Granted]) -> Option<scsi::Limits> {
        let least = granted.iter().map(|g| g.req_lim).min()?;
        // One credit is reserved for task management.
        let depth = self.slots.depth.min(least.saturating_sub(1));
        let count = self.regions_of(granted);
        let small = |n: u32| u16::try_from(n).ok();
        let channels = u16::try_from(channels).ok()?;
        let all = depth.saturating_mul(channels.into());
        let cmd_per_lun = self.cmd_per_lun.unwrap_or(all).min(all);
        let entries = count.saturating_mul(self.device.max_pages_per_mr);
        let max_sectors = self.max_sectors.min(self.device.max_sectors(count));
        if max_sectors < min_sectors(&self.device) {
            return None;
        }
        Some(scsi::Limits {
            nr_hw_queues: channels,
            // Channels that the device has no room for are missing at the end.
            polled_queues: channels.saturating_sub(small(self.channels)?),
            queue_depth: small(depth)?,
            cmd_per_lun: small(cmd_per_lun.min(CMD_PER_LUN_MAX))?,
            max_id: 1,
            max_lun: u64::MAX,
            max_cmd_len: 16,
            sg_tablesize: small(self.sg_tablesize.min(entries))?,
            max_sectors,
            max_segment_size: match self.device.sg_gaps {
                true => self.device.max_segment_size,
                false => 0,
            },
            virt_boundary_mask: self.device.virt_boundary_mask() as usize,
            dma_boundary: 0,
        })
    }
}

/// Size of a page of memory in 512-byte sectors. The block layer requires a command to hold a page.
const fn min_sectors(device: &Limits) -> u32 {
    device.memory_page / 512
}

/// `wanted`, or less if one region does not cover the static memory of all slots.
fn static_read(wanted: u32, device: &Limits, depth: u32) -> u32 {
    let page = device.mr_page_size;
    if page > MAX_STATIC_READ {
        return 0;
    }
    let pages = device.max_pages_per_mr / depth.max(1);
    wanted.min(MAX_STATIC_READ).min(pages.saturating_mul(page))
}

/// Number of channels to request, at least 1: `wanted`, or a default for the machine, at most 16.
/// More channels than CPUs would be unused.
pub fn channel_count(wanted: Option<u32>, environment: &Environment, vectors: u32) -> u32 {
    let suits = environment.nodes.saturating_mul(PER_NODE).max(vectors);
    wanted
        .unwrap_or(suits.min(MAX_UNASKED))
        .min(environment.cpus)
        .clamp(1, MAX_CHANNELS)
}

/// Completion vector of a channel. `first` is that of channel 0; further channels use the following
/// ones. With `None`, the channels are spread over all vectors, as their hardware queues are over
/// the CPUs.
pub const fn vector(first: Option<u32>, channel: u32, channels: u32, vectors: u32) -> u32 {
    let vector = match first {
        Some(first) => first.wrapping_add(channel),
        None if channel < channels && channels < vectors => {
            // CAST: Less than `vectors`, as `channel` is less than `channels`.
            (channel as u64 * vectors as u64 / channels as u64) as u32
        }
        None => channel,
    };
    match vector.checked_rem(vectors) {
        Some(vector) => vector,
        None => 0,
    }
}
