// SPDX-License-Identifier: GPL-2.0

//! Limits of a SCSI host. This file uses no kernel types, because the host tests build it.
//!
//! C header: [`include/scsi/scsi_host.h`](srctree/include/scsi/scsi_host.h).

/// Limits of a host and its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Number of hardware queues, at least 1. Without polled queues the block layer uses at most
    /// one per CPU.
    pub nr_hw_queues: u16,
    /// Number of hardware queues, the last ones, for polled requests: see
    /// [`Driver::poll`](super::Driver::poll).
    pub polled_queues: u16,
    /// Maximum number of commands in each hardware queue, at least 1. The total of all queues,
    /// `can_queue` of the host, is the upper limit for a device.
    pub queue_depth: u16,
    /// Initial number of commands per device, at least 1. Clamped to the total of all hardware
    /// queues.
    pub cmd_per_lun: u16,
    /// Number of targets of the host, at least 1.
    pub max_id: u32,
    /// Number of LUNs of each target, at least 1; `u64::MAX` for any LUN.
    pub max_lun: u64,
    /// Length of the longest CDB in bytes, 12 to 32.
    pub max_cmd_len: u16,
    /// Maximum number of data segments of a command, 1 to
    /// [`SG_MAX_SEGMENTS`](super::SG_MAX_SEGMENTS).
    pub sg_tablesize: u16,
    /// Maximum length of a command's data in sectors of 512 bytes; 0 for the midlayer's default,
    /// 1024.
    pub max_sectors: u32,
    /// Maximum length of a segment in bytes; 0 for the default: 64 KiB, or any length if there is a
    /// `virt_boundary_mask`.
    ///
    /// The midlayer also writes this value to the `dma_parms` of the host's parent device.
    pub max_segment_size: u32,
    /// Every segment except the first begins, and every one except the last ends, at an address
    /// that has none of these bits; 0 for no restriction.
    pub virt_boundary_mask: usize,
    /// No segment crosses a multiple of `dma_boundary + 1`; 0 for the default, 4 GiB.
    ///
    /// The midlayer also writes this value to the `dma_parms` of the host's parent device.
    pub dma_boundary: usize,
}
