// SPDX-License-Identifier: GPL-2.0

//! State shared by all logins of a session.

use super::{
    Destination,
    Plan,
    Throttle,
    Waiting, //
};
use crate::srp::status::Status;
use kernel::{
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Msecs, //
};

/// One of our ports and the target port that it logs in at: an I_T nexus in SAM's terms. All logins
/// of a session are for the same nexus.
pub struct Nexus {
    /// Where to log in, and as which initiator.
    pub plan: Plan,
    /// Status of the session.
    pub status: Arc<Status>,
    /// Throttle of all logins to the same destination.
    pub throttle: Arc<Throttle>,
    /// Interrupts the thread that connects.
    pub waiting: Arc<Waiting>,
    /// See [`Self::need_descriptors`].
    descriptors: Atomic<u32>,
    /// See [`Self::time_allowed`].
    time_allowed: Atomic<u32>,
}

impl Nexus {
    /// Returns a nexus without a login.
    pub fn new(
        plan: Plan,
        status: Arc<Status>,
        throttle: Arc<Throttle>,
        waiting: Arc<Waiting>,
    ) -> Self {
        Self {
            plan,
            status,
            throttle,
            waiting,
            descriptors: Atomic::new(0),
            time_allowed: Atomic::new(0),
        }
    }

    /// Sets the number of descriptors that a midlayer command may take. Later logins need as many.
    pub fn need_descriptors(&self, descriptors: u32) {
        self.descriptors.store(descriptors, Relaxed);
    }

    pub(super) fn needed_descriptors(&self) -> u32 {
        self.descriptors.load(Relaxed)
    }

    /// Records that a channel may take this many milliseconds to end a command.
    pub(super) fn allow_time(&self, msecs: Msecs) {
        // Logins of one session are serialized.
        if msecs > self.time_allowed() {
            self.time_allowed.store(msecs, Relaxed);
        }
    }

    /// Milliseconds after which the transport has certainly ended a command; 0 if unknown.
    pub fn time_allowed(&self) -> Msecs {
        self.time_allowed.load(Relaxed)
    }

    /// Whether the target redirects as Topspin targets do.
    pub fn is_topspin(&self) -> bool {
        matches!(&self.plan.destination, Destination::Ib(service) if service.topspin)
    }
}
