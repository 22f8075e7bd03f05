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

/// A protection domain. A peer cannot reach regions of one domain through queue pairs of another.
///
/// There is no global remote key; every remote access goes through a registration. The key of a
/// region is valid on each queue pair of the domain. Dropping the last reference may sleep.
///
/// # Invariants
///
/// - `pd` is a protection domain of `device`, which is registered.
/// - `active` counts the queue pairs of the domain, from before their creation until they are
///   drained.
/// - `stale` counts the drained queue pairs with regions that a peer may have a key of. It is
///   raised before `active` is lowered. No queue pair is created for a peer before it is counted in
///   `active` and `stale` is 0.
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
// SAFETY: All fields are constant or atomic.
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
    /// The error of the device driver, usually `ENOMEM`.
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

    /// The health of the device.
    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Counts a queue pair before it is created. [`Self::drained`] undoes this.
    ///
    /// # Errors
    ///
    /// `EBUSY` if stale regions must be replaced first; the queue pair is not counted then.
    pub(super) fn begin(&self) -> Result {
        self.active.fetch_add(1, Full);
        if self.stale.load(Acquire) != 0 {
            self.drained();
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Stops counting a queue pair that is drained or was not created.
    pub(super) fn drained(&self) {
        self.active.fetch_sub(1, Full);
    }

    /// Returns whether no queue pair is left through which a peer could reach a region.
    pub(super) fn is_drained(&self) -> bool {
        self.active.load(Acquire) == 0
    }

    /// Notes that a peer may have a key of the regions of a queue pair that is drained, but still
    /// counted as active.
    pub(super) fn add_stale(&self) {
        self.stale.fetch_add(1, Full);
    }

    /// Undoes [`Self::add_stale`]: the device has none of these keys.
    pub(super) fn remove_stale(&self) {
        self.stale.fetch_sub(1, Full);
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }

    /// The local key of message memory.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant the domain is valid; the field is constant.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the domain is valid. All objects of the domain hold an
        // `Arc` of this one, so none is left.
        unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) };
    }
}
