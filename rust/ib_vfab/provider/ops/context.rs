// SPDX-License-Identifier: GPL-2.0

//! User contexts and protection domains. They have no state; a `PdName` identifies a domain.

use super::Ops;
use crate::{
    bindings,
    provider::Provider, //
};
use core::ffi::c_int;

// See the documentation of `ops` for the guarantees of `ib_core`.
impl<P: Provider> Ops<P> {
    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn alloc_ucontext(
        _context: *mut bindings::ib_ucontext,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// Because this function exists, `ib_core` destroys the objects of processes when the device is
    /// removed, and does not wait until all processes have closed the device. No process has memory
    /// of the device mapped.
    ///
    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn alloc_pd(
        _pd: *mut bindings::ib_pd,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }

    /// # Safety
    ///
    /// Only `ib_core` may call this.
    pub(super) unsafe extern "C" fn dealloc_pd(
        _pd: *mut bindings::ib_pd,
        _: *mut bindings::ib_udata,
    ) -> c_int {
        0
    }
}
