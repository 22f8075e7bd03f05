// SPDX-License-Identifier: GPL-2.0

//! A memory region, as the verbs have it.

use crate::{
    bindings,
    rdma::pd::Pd, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*, //
};

/// Makes a region for `pages` pages.
///
/// # Errors
///
/// Those of the device.
pub(super) fn alloc(
    pd: &Pd,
    kind: bindings::ib_mr_type,
    pages: u32,
) -> Result<*mut bindings::ib_mr> {
    // SAFETY: The protection domain is valid.
    from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })
}

/// Unmakes a region.
///
/// # Safety
///
/// `mr` came from [`alloc`], and no queue pair can use it any more.
pub(super) unsafe fn free(mr: *mut bindings::ib_mr) {
    // SAFETY: By this function's contract.
    unsafe { bindings::ib_dereg_mr_user(mr, core::ptr::null_mut()) };
}

/// `ib_update_fast_reg_key()` with the lowest bits of `random`, which are the owner's part of a key. The address of
/// the region gets the bits of `iova_mask` from there, too. Returns both.
///
/// # Safety
///
/// The region is valid and not posted, and nothing else changes these fields meanwhile. The core may read them, for netlink.
#[inline(always)]
pub(super) unsafe fn update_fast_reg_key(
    mr: *mut bindings::ib_mr,
    iova_mask: u64,
    random: u64,
) -> (u32, u64) {
    let own = u32::from(random as u8);
    // SAFETY: By this function's contract.
    let lkey = (unsafe { (*mr).lkey } & !0xff) | own;
    // SAFETY: As above.
    let rkey = (unsafe { (*mr).rkey } & !0xff) | own;
    // Drivers take the address from here when the registration is posted or executed.
    // SAFETY: As above.
    let iova = (unsafe { (*mr).iova } & !iova_mask) | (random & iova_mask);
    // SAFETY: As above.
    unsafe { (*mr).lkey = lkey };
    // SAFETY: As above.
    unsafe { (*mr).rkey = rkey };
    // SAFETY: As above.
    unsafe { (*mr).iova = iova };
    (rkey, iova)
}
