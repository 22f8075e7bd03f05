// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of queue pairs and completion queues, and of a device.

use crate::{
    bindings,
    compat::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
};
use core::ptr::NonNull;
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

/// A kind of event: `enum ib_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub(super) bindings::ib_event_type);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $raw:ident,)*) => {
        impl Kind {
            $($(#[$doc])* pub const $name: Self = Self(bindings::$raw);)*
        }
    };
}

kinds! {
    /// A completion queue has overflowed.
    CQ_ERR = ib_event_type_IB_EVENT_CQ_ERR,
    /// A queue pair has an error that no completion reports.
    QP_FATAL = ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer sent an invalid request.
    QP_REQ_ERR = ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The peer named memory that it must not access.
    QP_ACCESS_ERR = ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first message arrived before the connection was reported as established.
    COMM_EST = ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue is drained.
    SQ_DRAINED = ib_event_type_IB_EVENT_SQ_DRAINED,
    /// The device has stopped working.
    DEVICE_FATAL = ib_event_type_IB_EVENT_DEVICE_FATAL,
    /// A port has become active.
    PORT_ACTIVE = ib_event_type_IB_EVENT_PORT_ACTIVE,
    /// A port is inactive.
    PORT_ERR = ib_event_type_IB_EVENT_PORT_ERR,
    /// The LID of a port has changed.
    LID_CHANGE = ib_event_type_IB_EVENT_LID_CHANGE,
    /// The P_Key table has changed.
    PKEY_CHANGE = ib_event_type_IB_EVENT_PKEY_CHANGE,
    /// The subnet manager has changed.
    SM_CHANGE = ib_event_type_IB_EVENT_SM_CHANGE,
    /// The subnet manager requests all clients to register again.
    CLIENT_REREGISTER = ib_event_type_IB_EVENT_CLIENT_REREGISTER,
    /// The GID table has changed.
    GID_CHANGE = ib_event_type_IB_EVENT_GID_CHANGE,
}

/// An object of `ib_core` that events are reported to, while it exists.
#[pin_data]
pub struct Target<R> {
    #[pin]
    object: Mutex<Option<Object<R>>>,
}

/// # Invariants
///
/// The object is valid until it is taken out of its `Target` or `DeviceTarget`.
struct Object<R>(NonNull<R>);

// SAFETY: The objects of `ib_core` have no thread affinity.
unsafe impl<R> Send for Object<R> {}

/// A queue pair that events are reported to.
pub type QpTarget = Target<bindings::ib_qp>;
/// A completion queue that events are reported to.
pub type CqTarget = Target<bindings::ib_cq>;

impl<R> Target<R> {
    /// A target without an object.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            object <- new_mutex!(None, "vfab::Target"),
        })
    }

    /// # Safety
    ///
    /// `object` is valid until [`Target::forget`].
    pub(super) unsafe fn set(&self, object: NonNull<R>) {
        // INVARIANT: `object` is valid until `forget`.
        *self.object.lock() = Some(Object(object));
    }

    /// Stops reporting. Sleeps until a report in progress has finished.
    pub(super) fn forget(&self) {
        *self.object.lock() = None;
    }
}

impl QpTarget {
    /// Reports an event. Sleeps.
    pub fn tell(&self, kind: Kind) {
        let object = self.object.lock();
        let Some(Object(qp)) = &*object else { return };
        let qp = qp.as_ptr();
        // SAFETY: The queue pair is valid; the field is constant.
        let device = unsafe { (*qp).device };
        let mut event = bindings::ib_event {
            device,
            event: kind.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<*mut bindings::ib_qp>();
        // SAFETY: The union has room for a pointer.
        unsafe { place.write(qp) };
        // SAFETY: The queue pair is valid; the field is constant.
        let handler = unsafe { (*qp).event_handler };
        // SAFETY: The queue pair is valid; the field is constant.
        let context = unsafe { (*qp).qp_context };
        if let Some(handler) = handler {
            // SAFETY: It is the handler of this queue pair, called where it may sleep.
            unsafe { handler(&mut event, context) };
        }
    }
}

impl CqTarget {
    /// Reports that completions were lost. Sleeps.
    pub fn tell(&self) {
        let object = self.object.lock();
        let Some(Object(cq)) = &*object else { return };
        let cq = cq.as_ptr();
        // SAFETY: The queue is valid; the field is constant.
        let device = unsafe { (*cq).device };
        let mut event = bindings::ib_event {
            device,
            event: Kind::CQ_ERR.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<*mut bindings::ib_cq>();
        // SAFETY: The union has room for a pointer.
        unsafe { place.write(cq) };
        // SAFETY: The queue is valid; the field is constant.
        let handler = unsafe { (*cq).event_handler };
        // SAFETY: The queue is valid; the field is constant.
        let context = unsafe { (*cq).cq_context };
        if let Some(handler) = handler {
            // SAFETY: It is the handler of this queue, called where it may sleep.
            unsafe { handler(&mut event, context) };
        }
    }
}

/// The device whose events are reported; none while the device is not registered.
#[pin_data]
pub struct DeviceTarget {
    #[pin]
    device: SpinLockIrq<Option<Object<bindings::ib_device>>>,
}

impl DeviceTarget {
    /// A target without a device.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            device <- new_spinlock_irq!(None, "vfab::DeviceTarget"),
        })
    }

    /// # Safety
    ///
    /// `device` is valid until [`DeviceTarget::forget`].
    pub(super) unsafe fn set(&self, device: NonNull<bindings::ib_device>) {
        // INVARIANT: `device` is valid until `forget`.
        *self.device.lock() = Some(Object(device));
    }

    /// Stops reporting.
    pub(super) fn forget(&self) {
        *self.device.lock() = None;
    }

    /// Reports an event of a port, or of the device, to all listeners. Any context.
    pub fn dispatch(&self, kind: Kind, port: u32) {
        let device = self.device.lock();
        let Some(Object(raw)) = &*device else { return };
        let mut event = bindings::ib_event {
            device: raw.as_ptr(),
            event: kind.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<u32>();
        // SAFETY: The union has room for a `u32`.
        unsafe { place.write(port) };
        // SAFETY: The device is valid; a work item calls the listeners.
        unsafe { bindings::ib_dispatch_event(&event) };
    }
}
