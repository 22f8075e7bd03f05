// SPDX-License-Identifier: GPL-2.0

//! What a queue pair is connected by: an identifier of one of the connection managers.

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

/// An identifier that a queue pair can be made on.
///
/// # Safety
///
/// What [`Link::create_qp`] returns is a queue pair of the domain and with the queues that it was
/// given, which the caller has to destroy. The identifier uses it until [`Link::release_qp`]
/// returns, and no longer.
pub unsafe trait Link: Send + Sync + 'static {
    /// Creates the queue pair, ready to receive requests to post. Once in the life of the identifier.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the identifier has or had a queue pair, `EINVAL` if it is on another device than
    /// the domain, otherwise what the device driver says.
    ///
    /// # Safety
    ///
    /// The queues in `attr` are valid, of the device of `pd`, and outlive the queue pair. That is
    /// not destroyed before [`Link::release_qp`] has returned.
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>>;

    /// Takes the queue pair away from the identifier, if it has one, and waits until nothing uses
    /// it there. Events of the connection may still come. Sleeps.
    fn release_qp(&self);

    /// Tells the peer that the connection ends.
    ///
    /// An identifier that is not connected is left as it is. May sleep.
    fn disconnect(&self);
}

/// Destroys a queue pair, if the device does. Then nothing reaches memory by it, and nothing comes
/// of it from now on. Sleeps.
///
/// # Errors
///
/// What the device driver says; the queue pair stays as it is.
///
/// # Safety
///
/// The queue pair is valid. Nothing else uses it meanwhile, and nothing at all after a success.
pub(super) unsafe fn try_destroy(qp: NonNull<bindings::ib_qp>) -> Result {
    // SAFETY: By this function's contract.
    to_result(unsafe { bindings::ib_destroy_qp_user(qp.as_ptr(), null_mut()) })
}

/// Destroys a queue pair of `device`, however often the device refuses. Sleeps.
///
/// # Safety
///
/// The queue pair is valid, and nothing else uses it, nor does it after this.
pub(super) unsafe fn destroy(device: &Device, qp: NonNull<bindings::ib_qp>) {
    insist(device, QUEUE_PAIR, || {
        // SAFETY: By this function's contract; it is valid as long as that fails.
        unsafe { try_destroy(qp) }
    });
}

/// What a connection manager says that a peer has sent beside its message.
///
/// # Safety
///
/// `data` is null or points at `len` bytes that live for `'a`.
pub(super) unsafe fn private_data<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: By this function's contract.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}
