// SPDX-License-Identifier: GPL-2.0

//! Sizes of the queues of a channel.

use crate::rdma::limits::Limits;

/// Number of work requests per command beside those of its regions: the SEND.
const SENDS_PER_COMMAND: u32 = 1;
/// Number of work requests per region of a command: REG_MR and LOCAL_INV.
const PER_REGION: u32 = 2;
/// Maximum number of responses to requests of the target in flight. The target may send its next
/// request when it has a response, which can be before the send completion arrives here.
pub const REPLIES: u32 = 4;
/// Number of sends beside commands: task management, responses to the target, a logout, and the
/// registration of the static memory. A probe later uses the last entry.
const EXTRA_SENDS: u32 = 1 + REPLIES + 1 + 1;
/// Among the sends that no later completion of the same command recycles, one in this many is
/// signaled.
pub const SIGNAL_EVERY: u32 = 16;
/// Maximum number of sends that wait to be recycled: those since the last signaled one, and those
/// until its completion is handled.
const UNSIGNALED: u32 = 2 * SIGNAL_EVERY;
/// Number of entries that draining a queue pair takes in each of its queues.
const DRAIN: u32 = 1;
/// Number of messages from the target beside responses to commands: the response to a task
/// management request, an event report, a credit change, a logout. A probe uses a credit of the
/// commands or of task management.
const EXTRA_RECEIVES: u32 = 4;
/// Number of receives that are posted again in one batch.
pub const RECEIVE_BATCH: u32 = 8;
/// Number of messages on an answer channel beside responses: a logout.
const EXTRA_ANSWERS: u32 = 1;
/// Maximum number of receives of an answer channel (8 MiB).
const MAX_ANSWER_RECEIVES: u32 = 16_384;

/// Size of a receive buffer, in bytes. The longest message from a target is 292 bytes: an SRP_RSP
/// with 4 bytes of response data and 252 of sense data.
pub const RECEIVE_SIZE: usize = 512;

/// The slots of a channel, which determine the sizes of its queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slots {
    /// Number of slots: commands at a time.
    pub depth: u32,
    /// Number of memory regions per slot.
    pub regions: u32,
}

impl Slots {
    /// Number of entries of the send queue.
    pub const fn send_queue(self) -> u32 {
        self.regions
            .saturating_mul(PER_REGION)
            .saturating_add(SENDS_PER_COMMAND)
            .saturating_mul(self.depth)
            .saturating_add(EXTRA_SENDS + UNSIGNALED + DRAIN)
    }

    /// Number of entries of the receive queue: the receive buffers, and one for draining.
    pub const fn receive_queue(self) -> u32 {
        self.receives().saturating_add(DRAIN)
    }

    /// Number of receive buffers.
    pub const fn receives(self) -> u32 {
        self.depth.saturating_add(EXTRA_RECEIVES + RECEIVE_BATCH)
    }

    /// Number of entries of the shared completion queue.
    pub const fn completion_queue(self) -> u32 {
        self.send_queue().saturating_add(self.receive_queue())
    }

    /// Number of receive buffers of an answer channel for all commands of this many channels.
    pub const fn answer_receives(self, channels: u32) -> u32 {
        self.depth
            .saturating_mul(channels)
            .saturating_add(EXTRA_ANSWERS + RECEIVE_BATCH)
    }

    /// Whether an answer channel for this many channels fits the device and the driver's limit.
    pub const fn answer_channel_fits(self, channels: u32, limits: &Limits) -> bool {
        let receives = self.answer_receives(channels);
        let queue = receives.saturating_add(DRAIN);
        let sends = Self { depth: 0, ..self }.send_queue();
        receives <= MAX_ANSWER_RECEIVES
            && queue <= limits.max_qp_wr
            && queue.saturating_add(sends) <= limits.max_cqe
    }

    const fn fits(self, limits: &Limits) -> bool {
        self.send_queue() <= limits.max_qp_wr
            && self.receive_queue() <= limits.max_qp_wr
            && self.completion_queue() <= limits.max_cqe
    }

    /// The maximum number of slots, up to this depth, that the device allows; `None` if not even
    /// one command fits.
    pub const fn fit(self, limits: &Limits) -> Option<Self> {
        // Halve the range between a depth that fits and one that does not.
        let (mut good, mut bad) = (0u32, self.depth.saturating_add(1));
        while bad.saturating_sub(good) > 1 {
            let depth = good / 2 + bad / 2 + (good & bad & 1);
            if (Self { depth, ..self }).fits(limits) {
                good = depth;
            } else {
                bad = depth;
            }
        }
        match good {
            0 => None,
            depth => Some(Self { depth, ..self }),
        }
    }
}
