// SPDX-License-Identifier: GPL-2.0

//! How many channels a session has and which completion vectors they use.

use super::tag::MAX_CHANNELS;

/// Default channels per NUMA node.
const PER_NODE: u32 = 4;
/// Most channels by default: four for each of four nodes. Each costs a queue pair with its memory,
/// at the device and at the target, for every session.
const MAX_UNASKED: u32 = 16;

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

/// Number of channels to request, at least 1: `wanted`, or a default for the machine, at most 16.
/// More channels than CPUs would be unused.
pub fn count(wanted: Option<u32>, machine: Machine) -> u32 {
    let suits = machine.nodes.saturating_mul(PER_NODE).max(machine.vectors);
    wanted
        .unwrap_or(suits.min(MAX_UNASKED))
        .min(machine.cpus)
        .clamp(1, MAX_CHANNELS)
}

/// Completion vector of a channel. `first` is the one of channel 0, and further channels follow. If
/// `None`, the channels are spread over all vectors, as their hardware queues are over the CPUs.
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
