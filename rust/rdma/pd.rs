// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::device::{
    Device,
    Health,
    Registered, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

/// A protection domain: regions and queue pairs of different ones cannot be mixed by a peer.
///
/// There is no global remote key; every remote access goes through a registration. The key of a region is good on each
/// queue pair of the domain. The drop of the last reference may sleep.
///
/// # Invariants
///
/// - `pd` is a protection domain of `device`, which is registered.
/// - `active` counts its queue pairs, from before they are made until they are drained.
/// - `stale` counts the regions of queue pairs that are drained (all of one together), if a peer may have a key of them. It
///   is raised before `active` is lowered. There is no queue pair for a peer before it is counted and `stale` is 0.
pub struct Pd {
    pd: NonNull<bindings::ib_pd>,
    active: Atomic<u32>,
    stale: Atomic<u32>,
    health: Arc<Health>,
    // Dropped after the domain itself.
    device: Registered,
}

// SAFETY: A protection domain has no thread affinity.
unsafe impl Send for Pd {}
// SAFETY: Its fields are constant or atomic.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain with a [`Health`] of its own, which no client marks as failed.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    pub fn new(device: Registered) -> Result<Arc<Self>> {
        Self::of(device, Health::new()?)
    }

    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// What the device driver says, `ENOMEM` mostly.
    pub fn of(device: Registered, health: Arc<Health>) -> Result<Arc<Self>> {
        // SAFETY: The device is registered, and the name is a static string.
        let pd = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, super::CALLER.as_char_ptr())
        })?;
        let pd = NonNull::new(pd).ok_or(ENOMEM)?;
        // INVARIANT: `pd` was just allocated from `device`.
        let this = Self {
            pd,
            active: Atomic::new(0),
            stale: Atomic::new(0),
            health,
            device,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What is known of the device.
    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Counts a queue pair that is going to be made, until [`Self::drained`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if regions must be made anew before; then it does not count.
    pub(super) fn begin(&self) -> Result {
        self.active.fetch_add(1, Full);
        if self.stale.load(Acquire) != 0 {
            self.drained();
            return Err(EBUSY);
        }
        Ok(())
    }

    /// A queue pair that counted is drained, or was not made.
    pub(super) fn drained(&self) {
        self.active.fetch_sub(1, Full);
    }

    /// No queue pair is left that a peer could reach a region by.
    pub(super) fn is_drained(&self) -> bool {
        self.active.load(Acquire) == 0
    }

    /// A peer may have a key of the regions of a queue pair that is drained, but still counted as active.
    pub(super) fn add_stale(&self) {
        self.stale.fetch_add(1, Full);
    }

    /// The device has none of these keys any more.
    pub(super) fn remove_stale(&self) {
        self.stale.fetch_sub(1, Full);
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }

    /// The key by which the device reaches message memory.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant the domain is valid; the field is constant.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the domain is valid. Everything made in it holds an `Arc`
        // of this object, so nothing is left in it.
        unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) };
    }
}
