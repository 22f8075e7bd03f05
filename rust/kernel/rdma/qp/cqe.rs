// SPDX-License-Identifier: GPL-2.0

//! Completion entries, by which a completion finds its request.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_cqe`.

use super::{
    Handler,
    Qp, //
};
use crate::{
    bindings,
    rdma::{
        wc::Status,
        wr::cookie, //
    },
};

/// The owner of a completion entry.
pub(super) trait Completion<H: Handler>: Sized {
    /// The kind of the request, for error reports.
    const KIND: &'static str;

    /// Called when a request of this entry has succeeded, in the context of [`Handler`].
    fn done(cqe: &Cqe<Self>, qp: &Qp<H>, wc: &bindings::ib_wc);

    /// Called when a request of this entry has failed, in the context of [`Handler`].
    #[inline(always)]
    fn failed(_: &Cqe<Self>, qp: &Qp<H>, wc: &bindings::ib_wc) {
        qp.failed(Self::KIND, Status(wc.status));
    }
}

/// A completion entry with its owner. Requests that name it complete by [`Completion::done`] or
/// [`Completion::failed`].
///
/// # Invariants
///
/// Only requests of the `Qp<H>` that has this entry in its `memory` name it. `cqe.done` is
/// [`done::<H, O>`](done).
#[repr(C)]
pub(super) struct Cqe<O> {
    cqe: bindings::ib_cqe,
    pub(super) owner: O,
}

impl<O> Cqe<O> {
    /// Creates an entry for requests of a `Qp<H>`.
    pub(super) fn new<H: Handler>(owner: O) -> Self
    where
        O: Completion<H>,
    {
        Self {
            cqe: bindings::ib_cqe {
                done: Some(done::<H, O>),
            },
            owner,
        }
    }

    /// The pointer for a work request.
    #[inline(always)]
    pub(super) fn as_raw(&self) -> *const bindings::ib_cqe {
        core::ptr::from_ref(self).cast()
    }
}

/// # Safety
///
/// Only the completion queue of a `Qp<H>` may call this, for a request that names a `Cqe<O>`.
unsafe extern "C" fn done<H: Handler, O: Completion<H>>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: The queue is valid for the call.
    let context = unsafe { (*cq).cq_context };
    // SAFETY: By the invariant of `Qp` the context is the `Qp`, which is dropped after its
    // completion queue; and that waits for the callbacks.
    let qp: &Qp<H> = unsafe { &*context.cast() };
    // SAFETY: The completion is valid for the call.
    let wc = unsafe { &*wc };
    // SAFETY: The request names a `Cqe<O>`, which is in the `memory` of `qp` and so is valid.
    let cqe = unsafe { &*cookie(wc).cast::<Cqe<O>>() };
    if Status(wc.status).is_success() {
        O::done(cqe, qp, wc);
    } else {
        O::failed(cqe, qp, wc);
    }
}
