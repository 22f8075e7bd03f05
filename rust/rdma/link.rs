// SPDX-License-Identifier: GPL-2.0

//! What a queue pair is connected by: an identifier of one of the connection managers.

use super::pd::Pd;
use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// An identifier that a queue pair can be made on.
///
/// # Safety
///
/// What [`Link::create_qp`] returns is a queue pair of the domain and with the queues that it was
/// given, which is valid until [`Link::destroy_qp`].
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
    /// The queues in `attr` are valid, of the device of `pd`, and outlive the queue pair.
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>>;

    /// Destroys the queue pair. May sleep.
    ///
    /// # Safety
    ///
    /// `qp` came from [`Link::create_qp`] of this identifier, was not destroyed before, and nobody
    /// uses it any more.
    unsafe fn destroy_qp(&self, qp: NonNull<bindings::ib_qp>);

    /// Tells the peer that the connection ends.
    ///
    /// An identifier that is not connected is left as it is. May sleep.
    fn disconnect(&self);
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
