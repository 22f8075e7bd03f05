// SPDX-License-Identifier: GPL-2.0

//! The connection identifier of a queue pair, from one of the connection managers.

use super::{
    device::Device,
    kept::{
        insist,
        QUEUE_PAIR, //
    },
    pd::Pd, //
};
use crate::bindings;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// An identifier that a queue pair can be created on.
///
/// # Safety
///
/// [`CmId::create_qp`] returns a queue pair of the given domain with the given queues, which the
/// caller must destroy. The identifier uses the queue pair only until [`CmId::release_qp`] returns.
pub unsafe trait CmId: Send + Sync + 'static {
    /// Creates the queue pair, ready for receives to be posted. Succeeds at most once per
    /// identifier.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the identifier has or had a queue pair, `EINVAL` if it is on another device than
    /// the domain, otherwise the error of the device driver.
    ///
    /// # Safety
    ///
    /// The queues in `attr` are valid, of the device of `pd`, and outlive the queue pair, which is
    /// not destroyed before [`CmId::release_qp`] has returned.
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>>;

    /// Detaches the queue pair, if there is one, and waits until the identifier does not use it.
    /// Connection events may still arrive. Sleeps.
    fn release_qp(&self);

    /// Tells the peer that the connection ends.
    ///
    /// Does nothing if the identifier is not connected. May sleep.
    fn disconnect(&self);
}

/// Destroys a queue pair. After a success the queue pair accesses no memory and causes no
/// completions or events. Sleeps.
///
/// # Errors
///
/// The error of the device driver; the queue pair is unchanged.
///
/// # Safety
///
/// The queue pair is valid. Nothing else uses it during the call, nor anything after a success.
pub(super) unsafe fn try_destroy(qp: NonNull<bindings::ib_qp>) -> Result {
    // SAFETY: The caller guarantees that the queue pair is valid and unused.
    to_result(unsafe { bindings::ib_destroy_qp_user(qp.as_ptr(), null_mut()) })
}

/// Destroys a queue pair of `device`, and retries until this succeeds. Sleeps.
///
/// # Safety
///
/// The queue pair is valid, and nothing else uses it, during the call or after it.
pub(super) unsafe fn destroy(device: &Device, qp: NonNull<bindings::ib_qp>) {
    insist(device, QUEUE_PAIR, || {
        // SAFETY: The caller guarantees that the queue pair is valid and unused. It stays valid if
        // the call fails.
        unsafe { try_destroy(qp) }
    });
}

/// The private data of a connection manager's message; empty if `data` is null.
///
/// # Safety
///
/// `data` is null or points to `len` bytes that live for `'a`.
pub(super) unsafe fn private_data<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: The caller guarantees that `data` points to `len` bytes that live for `'a`.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}
