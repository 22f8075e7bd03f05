// SPDX-License-Identifier: GPL-2.0

//! The memory regions of a connected queue pair.

use super::Regions;

/// The regions of a connected queue pair, until the end of an RCU read-side section.
///
/// # Invariants
///
/// Until the section ends, no region is deregistered or replaced, nor is the
/// [`FixedMr`](super::FixedMr) of the queue pair.
#[derive(Clone, Copy)]
pub(in crate::rdma) struct Bound<'a> {
    pub(in crate::rdma) regions: &'a Regions,
}
