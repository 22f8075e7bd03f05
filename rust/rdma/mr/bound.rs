// SPDX-License-Identifier: GPL-2.0

//! The memory regions of a queue pair that is connected.

use super::Regions;

/// What a queue pair has of regions while it is connected, until the end of an RCU read-side section.
///
/// # Invariants
///
/// None of the regions is replaced before that, nor is the [`FixedMr`](super::FixedMr) of the queue pair.
#[derive(Clone, Copy)]
pub(in crate::rdma) struct Bound<'a> {
    pub(in crate::rdma) regions: &'a Regions,
}
