// SPDX-License-Identifier: GPL-2.0

//! How many channels a session has and which completion vectors they use.

use super::tag::MAX_CHANNELS;

/// Default number of channels per NUMA node.
const PER_NODE: u32 = 4;
/// Maximum number of channels by default: four for each of four nodes. Each costs a queue pair with
/// its memory, on the device and on the target, for every session.
const MAX_UNASKED: u32 = 16;

/// Resources of the machine and the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Number of online NUMA nodes.
    pub nodes: u32,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Number of completion vectors of the device.
    pub vectors: u32,
}

/// Number of channels to request, at least 1: `wanted`, or a default for the machine, at most 16.
/// More channels than CPUs would be unused.
pub fn count(wanted: Option<u32>, machine: Machine) -> u32 {
    let suits = machine.nodes.saturating_mul(PER_NODE).max(machine.vectors);
    wanted
        .unwrap_or(suits.min(MAX_UNASKED))
        .min(machine.cpus)
        .clamp(1, MAX_CHANNELS)
}

/// Completion vector of a channel. `first` is that of channel 0; further channels use the following
/// ones. If it is `None`, the channels are spread over all vectors, as their hardware queues are
/// over the CPUs.
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
