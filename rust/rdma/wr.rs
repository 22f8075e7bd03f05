// SPDX-License-Identifier: GPL-2.0

//! Work requests, and how a completion leads to its request.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use crate::bindings;
use core::ptr::NonNull;
use kernel::error::{
    Error,
    Result, //
};

/// A send work request that completes by `cqe`.
#[inline]
pub(super) fn request(
    opcode: bindings::ib_wr_opcode,
    flags: i32,
    cqe: *const bindings::ib_cqe,
) -> bindings::ib_send_wr {
    let mut wr = bindings::ib_send_wr {
        opcode,
        send_flags: flags,
        ..Default::default()
    };
    let cookie = (&raw mut wr.__bindgen_anon_1).cast::<*const bindings::ib_cqe>();
    // SAFETY: The union holds a number or this pointer.
    unsafe { cookie.write(cqe) };
    wr
}

/// A request to invalidate the region with this key.
#[inline]
pub(super) fn invalidation(key: u32, cqe: *const bindings::ib_cqe) -> bindings::ib_send_wr {
    let mut wr = request(bindings::ib_wr_opcode_IB_WR_LOCAL_INV, 0, cqe);
    let place = (&raw mut wr.ex).cast::<u32>();
    // SAFETY: The union holds big-endian data or this number, the key.
    unsafe { place.write(key) };
    wr
}

/// The result of posting requests.
#[inline]
pub(super) fn posted(error: i32) -> Result {
    match error {
        0 => Ok(()),
        _ => Err(Error::from_errno(error)),
    }
}

/// The `cqe` that a completion names.
#[inline]
pub(super) fn cookie(wc: &bindings::ib_wc) -> *const bindings::ib_cqe {
    // SAFETY: The union holds a number or this pointer, and we only post requests with a pointer.
    let cqe = unsafe { *(&raw const wc.__bindgen_anon_1).cast::<NonNull<bindings::ib_cqe>>() };
    cqe.as_ptr()
}

/// Makes the completion of a receive request lead to `cqe`.
#[inline]
pub(super) fn set_receive_cookie(wr: &mut bindings::ib_recv_wr, cqe: *const bindings::ib_cqe) {
    let cookie = (&raw mut wr.__bindgen_anon_1).cast::<*const bindings::ib_cqe>();
    // SAFETY: The union holds a number or this pointer.
    unsafe { cookie.write(cqe) };
}
