// SPDX-License-Identifier: GPL-2.0

//! The number of a handle's regions that a peer may reach, and the state of their registration.

use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Release, //
};

/// Flag: the registration is posted.
const POSTED: u32 = 1 << 8;
/// Flag: the poster of the registration must post the invalidation.
const WANTED: u32 = 1 << 9;
/// Mask of the number of regions.
const COUNT: u32 = POSTED - 1;

/// The state of one handle.
///
/// ```text
/// 0 --set--> Made --posted--> Posted --invalidate: posts--------+
///              |                                                |
///          invalidate                                           |
///              v                                                |
///            Wanted --posted: posts the invalidation------------+--ended--> 0
/// ```
///
/// An invalidation only affects registered regions, so it must not overtake the registration. The
/// callback that handles the response cannot wait for the poster of the registration, which may be
/// the task that its softirq has interrupted. So the later of the two posts the invalidation.
pub(super) struct Exposure(Atomic<u32>);

impl Exposure {
    /// Creates the state in which the peer can reach nothing.
    pub(super) fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns whether no region is reachable by the peer.
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.0.load(Acquire) == 0
    }

    /// The number of regions that the peer may reach, from the first on.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.0.load(Acquire) & COUNT
    }

    /// Notes that a registration of `count` regions, at most 255, will be posted. A reader that
    /// sees the count also sees all writes before this call.
    #[inline(always)]
    pub(super) fn set(&self, count: u32) {
        self.0.store(count, Release);
    }

    /// Notes that the registration is posted; called once. Returns whether the caller must post the
    /// invalidation.
    #[inline(always)]
    pub(super) fn posted(&self) -> bool {
        self.0.fetch_add(POSTED, Full) & WANTED != 0
    }

    /// Requests the invalidation, once per registration. Returns whether the caller must post it;
    /// if not, the poster of the registration does.
    #[inline(always)]
    pub(super) fn invalidate(&self) -> bool {
        self.0.load(Acquire) & POSTED != 0 || self.0.fetch_add(WANTED, Full) & POSTED != 0
    }

    /// Notes that the invalidation has completed, or that the regions were replaced.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.0.store(0, Release);
    }
}
