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
/// Nobody else has the region, and it is not posted.
#[inline(always)]
pub(super) fn update_fast_reg_key(
    mr: &mut bindings::ib_mr,
    iova_mask: u64,
    random: u64,
) -> (u32, u64) {
    let own = u32::from(random as u8);
    mr.lkey = (mr.lkey & !0xff) | own;
    mr.rkey = (mr.rkey & !0xff) | own;
    // Drivers take the address from here when the registration is posted or executed.
    mr.iova = (mr.iova & !iova_mask) | (random & iova_mask);
    (mr.rkey, mr.iova)
}
