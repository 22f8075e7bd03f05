// SPDX-License-Identifier: GPL-2.0

//! Raw memory regions of the verbs.

use crate::{
    bindings,
    rdma::pd::Pd, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

/// Allocates a region of at most `pages` pages.
///
/// # Errors
///
/// The error of the device driver.
pub(super) fn alloc(
    pd: &Pd,
    kind: bindings::ib_mr_type,
    pages: u32,
) -> Result<*mut bindings::ib_mr> {
    // SAFETY: The protection domain is valid.
    from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })
}

/// Deregisters a region. After a success the device has none of its keys. May sleep.
///
/// # Errors
///
/// The error of the device driver; the region is unchanged.
///
/// # Safety
///
/// `mr` is from [`alloc`]. Nothing else uses it during the call, nor anything after a success.
pub(super) unsafe fn free(mr: *mut bindings::ib_mr) -> Result {
    // SAFETY: The caller guarantees that `mr` is from `alloc` and unused.
    to_result(unsafe { bindings::ib_dereg_mr_user(mr, core::ptr::null_mut()) })
}

/// Logs that a region is leaked because the device does not deregister it.
pub(super) fn say_left(pd: &Pd, why: Error) {
    pr_err!(
        "{}: memory region leaked: the device does not deregister it (error {})\n",
        format_args!("{}", pd.device().name()),
        why.to_errno()
    );
}

/// Like `ib_update_fast_reg_key()`, sets the consumer's part of the keys to the lowest bits of
/// `random`. Also sets the bits of `iova_mask` in the address. Returns the remote key and the
/// address.
///
/// # Safety
///
/// The region is valid and not posted, and nothing else changes its keys and address meanwhile. The
/// core may read them, for netlink.
#[inline(always)]
pub(super) unsafe fn update_fast_reg_key(
    mr: *mut bindings::ib_mr,
    iova_mask: u64,
    random: u64,
) -> (u32, u64) {
    let own = u32::from(random as u8);
    // SAFETY: The caller guarantees that the region is valid and unchanged meanwhile.
    let lkey = (unsafe { (*mr).lkey } & !0xff) | own;
    // SAFETY: The caller guarantees that the region is valid and unchanged meanwhile.
    let rkey = (unsafe { (*mr).rkey } & !0xff) | own;
    // Drivers take the address from here when the registration is posted or executed.
    // SAFETY: The caller guarantees that the region is valid and unchanged meanwhile.
    let iova = (unsafe { (*mr).iova } & !iova_mask) | (random & iova_mask);
    // SAFETY: The region is valid and not posted, and nothing else changes it.
    unsafe { (*mr).lkey = lkey };
    // SAFETY: The region is valid and not posted, and nothing else changes it.
    unsafe { (*mr).rkey = rkey };
    // SAFETY: The region is valid and not posted, and nothing else changes it.
    unsafe { (*mr).iova = iova };
    (rkey, iova)
}
