// SPDX-License-Identifier: GPL-2.0

//! Limits of an RDMA device, and the amount of data that a command can map with its memory regions.
//!
//! This file uses no kernel types, because the host tests build it.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

/// Number of extra regions of a command with bounced memory. Its first and its last segment may be
/// parts of pages. The copy of the first does not end with its page, and the copy of the last does
/// not begin with one: there are gaps after the first and before the last. See
/// [`Limits::virt_boundary_mask`] for the other segments.
const SPARE_MRS: u32 = 2;

/// Limits of a device, in the units of `struct ib_device_attr`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Maximum number of work requests per queue of a queue pair.
    pub max_qp_wr: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cqe: u32,
    /// Maximum number of SGEs per send request.
    pub max_send_sge: u32,
    /// Maximum number of RDMA reads that a queue pair serves concurrently.
    pub max_qp_rd_atom: u8,
    /// Page size of memory regions, in bytes; a power of two, at least 4096.
    pub mr_page_size: u32,
    /// Maximum number of pages per fast registration; 0 if the device has no fast registration.
    pub max_pages_per_mr: u32,
    /// Whether a region may have gaps between its segments (`IB_MR_TYPE_SG_GAPS`).
    pub sg_gaps: bool,
    /// Whether DMA may use bounce buffers (swiotlb), which change the offset of a segment in its
    /// page.
    pub bounces: bool,
    /// Page size of the machine in bytes, a power of two. A device that bounces has no larger
    /// pages.
    pub memory_page: u32,
    /// The bits of a region's address that may differ from the DMA address of its memory.
    pub iova_mask: u64,
    /// Maximum length of a DMA segment, in bytes.
    pub max_segment_size: u32,
    /// Number of completion vectors, at least 1.
    pub num_comp_vectors: u32,
}

impl Limits {
    /// Number of extra regions per command, for the gaps made by bouncing.
    pub const fn spare_mrs(&self) -> u32 {
        match self.bounces && !self.sg_gaps {
            true => SPARE_MRS,
            false => 0,
        }
    }

    /// Number of regions that the longest command takes, at least 1. Without gaps, the number
    /// depends on the 512-byte sectors of the command; with gaps, on its scatter-gather entries, or
    /// if their number is not given (0), on the pages that the sectors touch.
    ///
    /// Without gaps, one page of each region does not count: data that does not start at a page
    /// boundary touches one page more than its length requires, and a region that ends within an
    /// entry does not use its last page, see `ib_sg_to_pages()`.
    pub const fn mrs_per_command(&self, max_sectors: u32, sg_tablesize: u32) -> u32 {
        if self.max_pages_per_mr < 2 || self.mr_page_size == 0 {
            return u32::MAX;
        }
        let mr_pages = self.max_pages_per_mr as u64;
        let pages = (max_sectors as u64 * 512).div_ceil(self.mr_page_size as u64);
        let count = match (self.sg_gaps, sg_tablesize) {
            (true, 0) => (pages + 1).div_ceil(mr_pages),
            (true, entries) => (entries as u64).div_ceil(mr_pages),
            (false, _) => pages.div_ceil(mr_pages - 1),
        };
        match saturate(count) {
            0 => 1u32.saturating_add(self.spare_mrs()),
            count => count.saturating_add(self.spare_mrs()),
        }
    }

    /// Maximum number of scatter-gather entries of a command with `mrs` regions.
    pub const fn sg_tablesize(&self, mrs: u32) -> u32 {
        match mrs <= self.spare_mrs() {
            true => mrs,
            false => mrs.saturating_mul(self.max_pages_per_mr),
        }
    }

    /// Maximum number of 512-byte sectors that `mrs` regions hold, for any start of the data in its
    /// first page.
    pub const fn max_sectors(&self, mrs: u32) -> u32 {
        if self.sg_gaps {
            return u32::MAX;
        }
        let full = match mrs.saturating_sub(self.spare_mrs()) {
            // No spare regions: each segment has a region of its own, see `sg_tablesize()`.
            0 if mrs > 0 => 1,
            full => full,
        };
        let pages = (self.max_pages_per_mr as u64).saturating_sub(1) * full as u64;
        saturate(pages.saturating_mul(self.mr_page_size as u64) / 512)
    }

    /// Alignment of segment boundaries inside the data, minus 1; 0 for none.
    ///
    /// The copy of a segment that is not a whole page of memory begins anywhere in a page of a
    /// region: swiotlb keeps the alignment of a copy of a page or more.
    pub const fn virt_boundary_mask(&self) -> u32 {
        if self.sg_gaps {
            return 0;
        }
        let boundary = match self.bounces && self.memory_page > self.mr_page_size {
            true => self.memory_page,
            false => self.mr_page_size,
        };
        boundary.saturating_sub(1)
    }
}

const fn saturate(n: u64) -> u32 {
    match n > u32::MAX as u64 {
        true => u32::MAX,
        // CAST: At most `u32::MAX`.
        false => n as u32,
    }
}
