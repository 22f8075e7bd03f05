// SPDX-License-Identifier: GPL-2.0

//! The objects of `ib_core`, each with what the device has made for it behind it.

use super::{
    attr::Address,
    pages::MrHead, //
};
use crate::bindings;
use kernel::sync::Arc;

/// `ib_core` allocates it with zeroes, which are `None`.
#[repr(C)]
pub(super) struct DeviceObject<P> {
    raw: bindings::ib_device,
    pub(super) provider: Option<Arc<P>>,
}

/// As above.
#[repr(C)]
pub(super) struct CqObject<C> {
    raw: bindings::ib_cq,
    pub(super) cq: Option<Arc<C>>,
}

/// As above.
#[repr(C)]
pub(super) struct QpObject<Q> {
    raw: bindings::ib_qp,
    pub(super) qp: Option<Arc<Q>>,
}

/// As above.
#[repr(C)]
pub(super) struct AhObject {
    raw: bindings::ib_ah,
    pub(super) address: Address,
}

/// A region, which the device allocates.
///
/// # Invariants
///
/// The pages in `head` are those of `mr`, or of nothing.
#[repr(C)]
pub(super) struct MrObject<M> {
    pub(super) head: MrHead,
    pub(super) mr: Arc<M>,
}

/// # Safety
///
/// It is a device of this kind, which lives for `'a`.
pub(super) unsafe fn provider<'a, P>(device: *const bindings::ib_device) -> &'a Arc<P> {
    // SAFETY: By this function's contract it is the beginning of this.
    let object = unsafe { &*device.cast::<DeviceObject<P>>() };
    match &object.provider {
        Some(provider) => provider,
        // It is set before the device is registered.
        None => unreachable!(),
    }
}

/// # Safety
///
/// It is a completion queue of a device with such ones, which lives for `'a`.
#[inline]
pub(super) unsafe fn cq<'a, C>(cq: *const bindings::ib_cq) -> Option<&'a Arc<C>> {
    // SAFETY: By this function's contract it is the beginning of this.
    let object = unsafe { &*cq.cast::<CqObject<C>>() };
    object.cq.as_ref()
}

/// # Safety
///
/// It is a queue pair of a device with such ones, which lives for `'a`.
#[inline]
pub(super) unsafe fn qp<'a, Q>(qp: *const bindings::ib_qp) -> Option<&'a Arc<Q>> {
    // SAFETY: By this function's contract it is the beginning of this.
    let object = unsafe { &*qp.cast::<QpObject<Q>>() };
    object.qp.as_ref()
}

/// # Safety
///
/// It is null, or a region of a device with such ones, which lives for `'a`.
pub(super) unsafe fn mr<'a, M>(mr: *const bindings::ib_mr) -> Option<&'a Arc<M>> {
    // SAFETY: By this function's contract it is the beginning of this.
    let object = unsafe { mr.cast::<MrObject<M>>().as_ref() }?;
    Some(&object.mr)
}

/// # Safety
///
/// It is an address handle of such a device, which is valid now.
pub(super) unsafe fn address(ah: *const bindings::ib_ah) -> Address {
    // SAFETY: By this function's contract it is the beginning of this.
    unsafe { (*ah.cast::<AhObject>()).address }
}
