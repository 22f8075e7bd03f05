// SPDX-License-Identifier: GPL-2.0

//! The objects of `ib_core`, each followed by the device's own object.

use super::{
    attr::Address,
    pages::MrHead, //
};
use crate::bindings;
use kernel::sync::Arc;

/// A device; zeroed by `ib_core`, so `provider` is a valid `None`.
#[repr(C)]
pub(super) struct DeviceObject<P> {
    raw: bindings::ib_device,
    pub(super) provider: Option<Arc<P>>,
}

/// A completion queue; zeroed by `ib_core`, so `cq` is a valid `None`.
#[repr(C)]
pub(super) struct CqObject<C> {
    raw: bindings::ib_cq,
    pub(super) cq: Option<Arc<C>>,
}

/// A queue pair; zeroed by `ib_core`, so `qp` is a valid `None`.
#[repr(C)]
pub(super) struct QpObject<Q> {
    raw: bindings::ib_qp,
    pub(super) qp: Option<Arc<Q>>,
}

/// An address handle. `create_ah` sets `address`.
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
/// `device` is the first field of a `DeviceObject<P>`, which lives for `'a`.
pub(super) unsafe fn provider<'a, P>(device: *const bindings::ib_device) -> &'a Arc<P> {
    // SAFETY: `device` is the first field of a `DeviceObject`.
    let object = unsafe { &*device.cast::<DeviceObject<P>>() };
    match &object.provider {
        Some(provider) => provider,
        // `Registration::new` sets `provider` before it registers the device.
        None => unreachable!(),
    }
}

/// # Safety
///
/// `cq` belongs to a device with completion queues `C`, and lives for `'a`.
#[inline]
pub(super) unsafe fn cq<'a, C>(cq: *const bindings::ib_cq) -> Option<&'a Arc<C>> {
    // SAFETY: `cq` is the first field of a `CqObject`.
    let object = unsafe { &*cq.cast::<CqObject<C>>() };
    object.cq.as_ref()
}

/// # Safety
///
/// `qp` belongs to a device with queue pairs `Q`, and lives for `'a`.
#[inline]
pub(super) unsafe fn qp<'a, Q>(qp: *const bindings::ib_qp) -> Option<&'a Arc<Q>> {
    // SAFETY: `qp` is the first field of a `QpObject`.
    let object = unsafe { &*qp.cast::<QpObject<Q>>() };
    object.qp.as_ref()
}

/// # Safety
///
/// `mr` is null, or belongs to a device with regions `M` and lives for `'a`.
pub(super) unsafe fn mr<'a, M>(mr: *const bindings::ib_mr) -> Option<&'a Arc<M>> {
    // SAFETY: `mr` is null or the first field of a `MrObject`.
    let object = unsafe { mr.cast::<MrObject<M>>().as_ref() }?;
    Some(&object.mr)
}

/// # Safety
///
/// `ah` is a valid address handle of a device of this module.
pub(super) unsafe fn address(ah: *const bindings::ib_ah) -> Address {
    // SAFETY: `ah` is the first field of an `AhObject`.
    unsafe { (*ah.cast::<AhObject>()).address }
}
