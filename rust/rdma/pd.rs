// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::device::{
    Device,
    Registered, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

/// A protection domain: regions and queue pairs of different ones cannot be mixed by a peer.
///
/// There is no global remote key; every remote access goes through a registration.
///
/// # Invariants
///
/// `pd` is a protection domain of `device`, which is registered.
pub struct Pd {
    pd: NonNull<bindings::ib_pd>,
    // Dropped after the domain itself.
    device: Registered,
}

// SAFETY: A protection domain has no thread affinity.
unsafe impl Send for Pd {}
// SAFETY: Its fields are constant.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// What the device driver says, `ENOMEM` mostly.
    pub fn new(device: Registered) -> Result<Arc<Self>> {
        // SAFETY: The device is registered, and the name is a static string.
        let pd = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, super::CALLER.as_char_ptr())
        })?;
        let pd = NonNull::new(pd).ok_or(ENOMEM)?;
        // INVARIANT: `pd` was just allocated from `device`.
        Ok(Arc::new(Self { pd, device }, GFP_KERNEL)?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
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
