// SPDX-License-Identifier: GPL-2.0

//! How the data of a command reaches the target, and how many memory regions that takes.

/// What the policy looks at. All lengths are in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Most immediate data that was negotiated; 0 for none.
    pub immediate: u32,
    /// Reads up to this size go through the channel's own registered memory; 0 for none.
    pub static_read: u32,
}

/// What is to be transferred.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transfer {
    /// Nothing.
    None,
    /// This many bytes from the device.
    Read(u32),
    /// This many bytes to the device.
    Write(u32),
}

/// The way of the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// There is no data.
    None,
    /// Copied into the message; the target can reach nothing.
    Immediate,
    /// Through the slot's part of the channel's registered memory, copied out at completion.
    Static,
    /// Registered for this command and invalidated after it.
    Dynamic,
}

/// Chooses the way.
pub const fn way(transfer: Transfer, limits: Limits) -> Way {
    match transfer {
        Transfer::None | Transfer::Read(0) | Transfer::Write(0) => Way::None,
        Transfer::Write(len) if len <= limits.immediate => Way::Immediate,
        Transfer::Read(len) if len <= limits.static_read => Way::Static,
        Transfer::Read(_) | Transfer::Write(_) => Way::Dynamic,
    }
}

/// What a device can map with one memory region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Regions {
    /// Size of a page of a region in bytes, a power of two.
    pub page_size: u32,
    /// Pages of a region.
    pub pages: u32,
    /// True if a region may have gaps between its pages (`IB_MR_TYPE_SG_GAPS`).
    pub gaps: bool,
}

/// Most pages that are asked of one region.
pub const MAX_PAGES: u32 = 512;

/// Smallest page of a region in bytes.
pub const MIN_PAGE_SIZE: u32 = 4096;

impl Regions {
    /// From the attributes of a device: smallest supported page size as a bit mask
    /// (`page_size_cap`), longest region in bytes (`max_mr_size`), pages per fast registration
    /// (`max_fast_reg_page_list_len`). `None` if not even two pages can be registered.
    pub const fn new(
        page_size_cap: u64,
        max_mr_size: u64,
        max_page_list: u32,
        gaps: bool,
    ) -> Option<Self> {
        // Pages of the device's own size if they are larger than ours.
        let smallest = page_size_cap.trailing_zeros();
        let page_size = if smallest < u32::BITS - 1 && 1 << smallest > MIN_PAGE_SIZE {
            1 << smallest
        } else {
            MIN_PAGE_SIZE
        };
        let by_size = max_mr_size >> page_size.trailing_zeros();
        let mut pages = MAX_PAGES;
        if by_size < pages as u64 {
            pages = by_size as u32;
        }
        if max_page_list < pages {
            pages = max_page_list;
        }
        if pages < 2 {
            return None;
        }
        Some(Self {
            page_size,
            pages,
            gaps,
        })
    }

    /// Regions that the longest command takes: for lists without gaps by its 512-byte sectors, with
    /// gaps by its scatter-gather entries. If it is more than one, one is added for the table of
    /// descriptors.
    ///
    /// Data that does not start at a page boundary touches one page more than its length has.
    pub const fn per_command(self, max_sectors: u32, sg_tablesize: u32) -> u32 {
        let units = if self.gaps {
            sg_tablesize as u64
        } else {
            div_ceil(max_sectors as u64 * 512, self.page_size) + 1
        };
        let data = match div_ceil(units, self.pages) {
            0 => 1,
            data if data > u32::MAX as u64 - 1 => u32::MAX - 1,
            data => data as u32,
        };
        if data > 1 {
            data + 1
        } else {
            data
        }
    }

    /// Longest data in bytes for which one region is always enough, whatever its offset in the
    /// first page.
    pub const fn bytes(self) -> u64 {
        (self.pages as u64).saturating_sub(1) * self.page_size as u64
    }
}

/// Rounds up; 0 pieces are as good as one.
const fn div_ceil(value: u64, piece: u32) -> u64 {
    if piece == 0 {
        return value;
    }
    let (whole, rest) = (value / piece as u64, value % piece as u64);
    whole.saturating_add((rest != 0) as u64)
}
