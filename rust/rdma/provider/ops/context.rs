// SPDX-License-Identifier: GPL-2.0

//! User contexts and protection domains. They have no state; a `PdName` identifies a domain.

use super::Ops;
use crate::{
    bindings,
    rdma::provider::Provider, //
};
use core::ffi::c_int;

// The top of `ops.rs` says what `ib_core` ensures.
impl<P: Provider> Ops<P> {
    /// # Safety
    ///
    /// `ib_core` calls it.
    pub(super) unsafe extern "C" fn alloc_ucontext(
        _context: *mut bindings::ib_ucontext,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    pub(super) unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// Because this function exists, `ib_core` takes the objects of processes away when the device
    /// is removed, instead of waiting until all processes have closed it. No process has memory of
    /// the device mapped.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it.
    pub(super) unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// # Safety
    ///
    /// `ib_core` calls it.
    pub(super) unsafe extern "C" fn alloc_pd(
        _pd: *mut bindings::ib_pd,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }

    /// # Safety
    ///
    /// `ib_core` calls it.
    pub(super) unsafe extern "C" fn dealloc_pd(
        _pd: *mut bindings::ib_pd,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }
}
