// SPDX-License-Identifier: GPL-2.0

//! How many channels a session has and which completion vectors they use.

use super::tag::MAX_CHANNELS;

/// Channels per NUMA node when nobody said how many.
const PER_NODE: u32 = 4;

/// What the machine and the device have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Online NUMA nodes.
    pub nodes: u32,
    /// Online CPUs.
    pub cpus: u32,
    /// Completion vectors of the device.
    pub vectors: u32,
}

/// Number of channels to ask for, at least 1: `wanted`, or a value that suits the machine. More
/// channels than CPUs are of no use.
pub fn count(wanted: Option<u32>, machine: Machine) -> u32 {
    wanted
        .unwrap_or(machine.nodes.saturating_mul(PER_NODE).max(machine.vectors))
        .min(machine.cpus)
        .clamp(1, MAX_CHANNELS)
}

/// Completion vector of a channel; `first` is that of channel 0.
pub const fn vector(first: u32, channel: u32, vectors: u32) -> u32 {
    match first.wrapping_add(channel).checked_rem(vectors) {
        Some(vector) => vector,
        None => 0,
    }
}
