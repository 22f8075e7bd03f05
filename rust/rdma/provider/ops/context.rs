// SPDX-License-Identifier: GPL-2.0

//! Processes that have the device open, and protection domains, of which nothing is kept but their names.

use super::Ops;
use crate::{
    bindings,
    rdma::provider::Provider, //
};
use core::ffi::c_int;

// What `ib_core` grants for each function is at the top of `ops.rs`.
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

    /// That there is this function has `ib_core` take the objects of processes away when the device goes, instead of waiting
    /// until all have closed it. No process has memory of the device mapped.
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
