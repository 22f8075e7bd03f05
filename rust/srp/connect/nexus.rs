// SPDX-License-Identifier: GPL-2.0

//! What all logins of a session go by.

use super::{
    Destination,
    Plan, //
};
use crate::srp::{
    status::Status,
    throttle::Throttle,
    waiting::Waiting, //
};
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

/// One of our ports and the target port that it logs in at: an I_T nexus in the words of SAM. A session has the
/// same for life, and connects there once and again.
pub struct Nexus {
    /// Who logs in where.
    pub plan: Plan,
    /// The session's.
    pub status: Arc<Status>,
    /// Shared with those who log in at the same place.
    pub throttle: Arc<Throttle>,
    /// The thread that connects.
    pub waiting: Arc<Waiting>,
    /// See [`Self::need_descriptors`].
    descriptors: Atomic<u32>,
    /// See [`Self::time_allowed`].
    time_allowed: Atomic<u32>,
}

impl Nexus {
    /// One where nobody has logged in yet.
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

    /// From now on a command of the midlayer may take so many descriptors, which a target must grant.
    pub fn need_descriptors(&self, descriptors: u32) {
        self.descriptors.store(descriptors, Relaxed);
    }

    pub(super) fn needed_descriptors(&self) -> u32 {
        self.descriptors.load(Relaxed)
    }

    /// A channel may take so many milliseconds to end a command.
    pub(super) fn allow_time(&self, msecs: Msecs) {
        // Logins of one session come one after the other.
        if msecs > self.time_allowed() {
            self.time_allowed.store(msecs, Relaxed);
        }
    }

    /// Milliseconds after which the transport has certainly ended a command; 0 if that is not known.
    pub fn time_allowed(&self) -> Msecs {
        self.time_allowed.load(Relaxed)
    }

    /// The target redirects in Topspin's way.
    pub fn is_topspin(&self) -> bool {
        matches!(&self.plan.destination, Destination::Ib(service) if service.topspin)
    }
}
