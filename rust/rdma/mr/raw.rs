// SPDX-License-Identifier: GPL-2.0

//! A memory region, as the verbs have it.

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

/// Gives a region back, if the device takes it: the device then has none of its keys. May sleep.
///
/// # Errors
///
/// What the device driver says; the region stays as it is.
///
/// # Safety
///
/// `mr` came from [`alloc`]. Nothing else uses it meanwhile, and nothing at all after a success.
pub(super) unsafe fn free(mr: *mut bindings::ib_mr) -> Result {
    // SAFETY: By this function's contract.
    to_result(unsafe { bindings::ib_dereg_mr_user(mr, core::ptr::null_mut()) })
}

/// Says that a region stays with a device that does not give it back.
pub(super) fn say_left(pd: &Pd, why: Error) {
    pr_err!(
        "{}: memory region leaked, the device does not deregister it: error {}\n",
        format_args!("{}", pd.device().name()),
        why.to_errno()
    );
}

/// `ib_update_fast_reg_key()` with the lowest bits of `random`, which are the owner's part of a key. The address of
/// the region gets the bits of `iova_mask` from there, too. Returns both.
///
/// # Safety
///
/// The region is valid and not posted, and nothing else changes these fields meanwhile. The core
/// may read them, for netlink.
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
