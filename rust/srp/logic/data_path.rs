// SPDX-License-Identifier: GPL-2.0

//! How the data of a command reaches the target, and how many memory regions that takes.

use super::super::proto::cmd::Direction;

/// Inputs of the policy. All lengths are in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thresholds {
    /// Negotiated limit of immediate data; 0 for none.
    pub immediate: u32,
    /// Maximum size of a read through the channel's own registered memory; 0 for none.
    pub static_read: u32,
}

/// How the data is transferred. Writes have odd numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DataPath {
    /// There is no data.
    None = 0,
    /// Copied into the message; the target can access no memory.
    Immediate = 1,
    /// Through the slot's part of the channel's registered memory, copied out at completion.
    Static = 2,
    /// Registered for this write and invalidated after it.
    DynamicWrite = 3,
    /// Registered for this read and invalidated after it.
    DynamicRead = 4,
}

impl DataPath {
    /// Number of variants.
    pub const COUNT: usize = 5;

    /// Chooses how to transfer `len` bytes in this direction.
    pub const fn choose(direction: Direction, len: u32, thresholds: Thresholds) -> Self {
        match direction {
            _ if len == 0 => Self::None,
            Direction::None => Self::None,
            Direction::ToDevice if len <= thresholds.immediate => Self::Immediate,
            Direction::FromDevice if len <= thresholds.static_read => Self::Static,
            Direction::ToDevice => Self::DynamicWrite,
            Direction::FromDevice => Self::DynamicRead,
        }
    }

    /// Whether the data is registered for the command.
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Self::DynamicWrite | Self::DynamicRead)
    }

    /// Whether the command transfers data to the device.
    pub const fn is_write(self) -> bool {
        self as u8 & 1 != 0
    }
}

/// What a device can map with one memory region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Regions {
    /// Size of a page of a region in bytes, a power of two.
    pub page_size: u32,
    /// Number of pages per region.
    pub pages: u32,
    /// True if a region may have gaps between its pages (`IB_MR_TYPE_SG_GAPS`).
    pub gaps: bool,
    /// True if the device accesses a bounce copy, with segments at other offsets in their pages.
    pub bounced: bool,
    /// Page size of the machine in bytes, a power of two. No device has larger pages if memory is
    /// bounced.
    pub memory_page: u32,
}

/// Number of extra regions of a command with bounced memory. Its first and its last segment may be
/// parts of pages. The copy of the first does not end with its page, and the copy of the last does
/// not begin with one: there are gaps after the first and before the last. See
/// [`Regions::virt_boundary_mask`] for the other segments.
const SPARE: u32 = 2;

impl Regions {
    /// Number of regions that the longest command takes, at least 1. Without gaps, it depends on
    /// the sectors of the command; with gaps, on its scatter-gather entries, or if their number is
    /// not given (0), on the pages that the sectors touch.
    ///
    /// Without gaps, one page of each region does not count: data that does not start at a page
    /// boundary touches one page more than its length has, and a region that ends within an entry
    /// does not use its last page, see `ib_sg_to_pages()`. A descriptor table needs no region, as
    /// the message holds all of it.
    pub const fn per_command(self, max_sectors: u32, sg_tablesize: u32) -> u32 {
        self.least(max_sectors, sg_tablesize)
            .saturating_add(self.spare())
    }

    /// Number of extra regions per command, for the gaps made by bouncing.
    pub const fn spare(self) -> u32 {
        if self.bounced && !self.gaps {
            SPARE
        } else {
            0
        }
    }

    /// Alignment of segment boundaries inside the data, minus 1; 0 for none.
    ///
    /// The copy of a segment that is not a whole page of memory begins anywhere in a page of a
    /// region: swiotlb keeps the alignment of a copy of a page or more.
    pub const fn virt_boundary_mask(self) -> u32 {
        if self.gaps {
            return 0;
        }
        let boundary = match self.bounced && self.memory_page > self.page_size {
            true => self.memory_page,
            false => self.page_size,
        };
        boundary.saturating_sub(1)
    }

    /// [`Self::per_command`] for memory that is not bounced.
    const fn least(self, max_sectors: u32, sg_tablesize: u32) -> u32 {
        if self.pages < 2 || self.page_size == 0 {
            return u32::MAX;
        }
        let pages = (max_sectors as u64 * 512).div_ceil(self.page_size as u64);
        let count = match (self.gaps, sg_tablesize) {
            (true, 0) => (pages + 1).div_ceil(self.pages as u64),
            (true, entries) => (entries as u64).div_ceil(self.pages as u64),
            (false, _) => pages.div_ceil(self.pages as u64 - 1),
        };
        match count {
            0 => 1,
            count if count > u32::MAX as u64 => u32::MAX,
            count => count as u32,
        }
    }

    /// Maximum number of scatter-gather entries of a command with `count` regions.
    pub const fn sg_tablesize(self, count: u32) -> u32 {
        if self.spare() > 0 && count <= self.spare() {
            count
        } else {
            count.saturating_mul(self.pages)
        }
    }

    /// Maximum number of 512-byte sectors that `count` regions hold, wherever the data starts in
    /// its first page.
    pub const fn max_sectors(self, count: u32) -> u32 {
        if self.gaps {
            return u32::MAX;
        }
        let count = if count > self.spare() {
            count - self.spare()
        } else if count > 0 {
            // No spare regions: each segment has a region of its own, see `sg_tablesize()`.
            1
        } else {
            0
        };
        let pages = (self.pages as u64).saturating_sub(1) * count as u64;
        let sectors = pages.saturating_mul(self.page_size as u64) / 512;
        if sectors > u32::MAX as u64 {
            u32::MAX
        } else {
            sectors as u32
        }
    }
}
