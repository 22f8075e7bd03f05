// SPDX-License-Identifier: GPL-2.0

//! Work requests, and the `cqe` that links a completion to its request.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use crate::bindings;
use core::ptr::NonNull;
use kernel::error::{
    Error,
    Result, //
};

/// Creates a send work request with `cqe` for its completion.
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
    // SAFETY: The union has room for a number or this pointer.
    unsafe { cookie.write(cqe) };
    wr
}

/// Creates a request to invalidate the region with `key`.
#[inline]
pub(super) fn invalidation(key: u32, cqe: *const bindings::ib_cqe) -> bindings::ib_send_wr {
    let mut wr = request(bindings::ib_wr_opcode_IB_WR_LOCAL_INV, 0, cqe);
    let place = (&raw mut wr.ex).cast::<u32>();
    // SAFETY: The union has room for immediate data or the key.
    unsafe { place.write(key) };
    wr
}

/// Converts the return value of a post.
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
    // SAFETY: The union holds a number or this pointer; all our requests set the pointer.
    let cqe = unsafe { *(&raw const wc.__bindgen_anon_1).cast::<NonNull<bindings::ib_cqe>>() };
    cqe.as_ptr()
}

/// Sets the `cqe` of a receive request.
#[inline]
pub(super) fn set_receive_cookie(wr: &mut bindings::ib_recv_wr, cqe: *const bindings::ib_cqe) {
    let cookie = (&raw mut wr.__bindgen_anon_1).cast::<*const bindings::ib_cqe>();
    // SAFETY: The union has room for a number or this pointer.
    unsafe { cookie.write(cqe) };
}
