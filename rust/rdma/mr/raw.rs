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

/// Gives a region another key, and another address in the bits of `iova_mask`, with some bits of `random`, and
/// returns both.
///
/// # Safety
///
/// `mr` is valid, the caller's alone, and not posted.
#[inline(always)]
pub(super) unsafe fn name_anew(
    mr: *mut bindings::ib_mr,
    iova_mask: u64,
    random: u64,
) -> (u32, u64) {
    // SAFETY: By this function's contract. A key's lower byte is its owner's to choose.
    let key = unsafe { ((*mr).rkey & !0xff) | u32::from(random as u8) };
    // SAFETY: As above; this is `ib_update_fast_reg_key()`.
    unsafe { (*mr).rkey = key };
    // SAFETY: As above.
    unsafe { (*mr).lkey = key };
    // SAFETY: As above.
    let iova = unsafe { ((*mr).iova & !iova_mask) | (random & iova_mask) };
    // SAFETY: As above. Drivers take the address from here when the registration is posted or
    // executed.
    unsafe { (*mr).iova = iova };
    (key, iova)
}
