// SPDX-License-Identifier: GPL-2.0

//! The objects of `ib_core`, each followed by the device's own object.

use super::{
    attr::Address,
    pages::MrHead, //
};
use crate::bindings;
use kernel::sync::Arc;

/// `ib_core` allocates it zeroed, which is `None`.
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

/// A region, allocated by the device.
///
/// # Invariants
///
/// The pages in `head`, if any, are those of `mr`.
#[repr(C)]
pub(super) struct MrObject<M> {
    pub(super) head: MrHead,
    pub(super) mr: Arc<M>,
}

/// # Safety
///
/// `device` is of this kind and lives for `'a`.
pub(super) unsafe fn provider<'a, P>(device: *const bindings::ib_device) -> &'a Arc<P> {
    // SAFETY: By this function's contract it is its first field.
    let object = unsafe { &*device.cast::<DeviceObject<P>>() };
    match &object.provider {
        Some(provider) => provider,
        // It is set before the device is registered.
        None => unreachable!(),
    }
}

/// # Safety
///
/// `cq` belongs to a device with completion queues `C`, and lives for `'a`.
#[inline]
pub(super) unsafe fn cq<'a, C>(cq: *const bindings::ib_cq) -> Option<&'a Arc<C>> {
    // SAFETY: By this function's contract it is its first field.
    let object = unsafe { &*cq.cast::<CqObject<C>>() };
    object.cq.as_ref()
}

/// # Safety
///
/// `qp` belongs to a device with queue pairs `Q`, and lives for `'a`.
#[inline]
pub(super) unsafe fn qp<'a, Q>(qp: *const bindings::ib_qp) -> Option<&'a Arc<Q>> {
    // SAFETY: By this function's contract it is its first field.
    let object = unsafe { &*qp.cast::<QpObject<Q>>() };
    object.qp.as_ref()
}

/// # Safety
///
/// `mr` is null, or belongs to a device with regions `M` and lives for `'a`.
pub(super) unsafe fn mr<'a, M>(mr: *const bindings::ib_mr) -> Option<&'a Arc<M>> {
    // SAFETY: By this function's contract it is its first field.
    let object = unsafe { mr.cast::<MrObject<M>>().as_ref() }?;
    Some(&object.mr)
}

/// # Safety
///
/// `ah` is a valid address handle of such a device.
pub(super) unsafe fn address(ah: *const bindings::ib_ah) -> Address {
    // SAFETY: By this function's contract it is its first field.
    unsafe { (*ah.cast::<AhObject>()).address }
}
