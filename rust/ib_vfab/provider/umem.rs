// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that a device may access: pinned, and mapped for the device.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)

use super::pages::List;
use crate::bindings;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    alloc::KVVec,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Memory of a process. Dropping it unmaps and unpins the memory, and may sleep.
///
/// # Invariants
///
/// `list` has the pages of `_pinned`.
pub struct Umem {
    list: List,
    _pinned: Pinned,
}

/// # Invariants
///
/// The pointer came from `srp_vfab_umem_get()`, and was not released.
struct Pinned(NonNull<bindings::ib_umem>);

// SAFETY: The memory is not bound to the thread or process that pinned it.
unsafe impl Send for Pinned {}
// SAFETY: A `Pinned` is never modified.
unsafe impl Sync for Pinned {}

impl Umem {
    /// Pins `len` bytes at `start` of the current process, as the memory that begins at `iova`. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the process may not access the memory as `access` requires, `EINVAL` if `len` is
    /// 0 or `start` and `iova` differ in their offset within a page, `ENOMEM`, or an error from
    /// mapping the memory for the device.
    ///
    /// # Safety
    ///
    /// The device stays registered until after this is dropped.
    pub(super) unsafe fn new(
        device: *mut bindings::ib_device,
        start: u64,
        len: u64,
        iova: u64,
        access: u32,
    ) -> Result<Self> {
        let within = PAGE_SIZE as u64 - 1;
        if start & within != iova & within {
            return Err(EINVAL);
        }
        let (at, size) = (usize::try_from(start)?, usize::try_from(len)?);
        // CAST: A set of bits.
        let access = access as i32;
        // SAFETY: The device is registered.
        let raw = from_err_ptr(unsafe { bindings::srp_vfab_umem_get(device, at, size, access) })?;
        // INVARIANT: `raw` was just created.
        let pinned = Pinned(NonNull::new(raw).ok_or(ENOMEM)?);
        // SAFETY: `raw` is valid.
        let count = unsafe { bindings::srp_vfab_umem_pages(raw, null_mut(), 0) };
        let mut pages = KVVec::from_elem(0u64, count, GFP_KERNEL)?;
        // SAFETY: `raw` is valid, and there is room for `count` pages.
        unsafe { bindings::srp_vfab_umem_pages(raw, pages.as_mut_ptr(), count) };
        // INVARIANT: The list was filled with its pages.
        Ok(Self {
            list: List::of(pages, iova, len),
            _pinned: pinned,
        })
    }

    /// The pages of the memory.
    #[inline]
    pub fn list(&self) -> &List {
        &self.list
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: The pointer is valid; nothing uses it after this.
        unsafe { bindings::srp_vfab_umem_release(self.0.as_ptr()) };
    }
}
