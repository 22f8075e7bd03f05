// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of queue pairs and completion queues, and of a device.

use crate::{
    bindings,
    new_spinlock_irq,
    sync::irq_lock::SpinLockIrq, //
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
    /// Too many completions for a queue.
    CQ_ERR = ib_event_type_IB_EVENT_CQ_ERR,
    /// A queue pair has an error that no completion tells.
    QP_FATAL = ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer sent what does not fit.
    QP_REQ_ERR = ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The peer named memory that it must not access.
    QP_ACCESS_ERR = ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first message came before the connection was told to be there.
    COMM_EST = ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue has stopped.
    SQ_DRAINED = ib_event_type_IB_EVENT_SQ_DRAINED,
    /// The device does nothing any more.
    DEVICE_FATAL = ib_event_type_IB_EVENT_DEVICE_FATAL,
    /// A port has become active.
    PORT_ACTIVE = ib_event_type_IB_EVENT_PORT_ACTIVE,
    /// A port is not active any more.
    PORT_ERR = ib_event_type_IB_EVENT_PORT_ERR,
    /// A port has another LID.
    LID_CHANGE = ib_event_type_IB_EVENT_LID_CHANGE,
    /// The table of partitions has changed.
    PKEY_CHANGE = ib_event_type_IB_EVENT_PKEY_CHANGE,
    /// The subnet manager is another one.
    SM_CHANGE = ib_event_type_IB_EVENT_SM_CHANGE,
    /// The subnet manager wants all to register again.
    CLIENT_REREGISTER = ib_event_type_IB_EVENT_CLIENT_REREGISTER,
    /// The table of GIDs has changed.
    GID_CHANGE = ib_event_type_IB_EVENT_GID_CHANGE,
}

/// An object of `ib_core` that events are told to, as long as it is there.
#[pin_data]
pub struct Target<R> {
    #[pin]
    object: Mutex<Option<Object<R>>>,
}

/// # Invariants
///
/// It is valid until it is taken out of its `Target`.
struct Object<R>(NonNull<R>);

// SAFETY: The objects of `ib_core` have no thread affinity.
unsafe impl<R> Send for Object<R> {}

/// A queue pair that events are told to.
pub type QpTarget = Target<bindings::ib_qp>;
/// A completion queue that events are told to.
pub type CqTarget = Target<bindings::ib_cq>;

impl<R> Target<R> {
    /// Nobody yet.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            object <- new_mutex!(None, "vfab::Target"),
        })
    }

    /// # Safety
    ///
    /// `object` is valid until [`Target::forget`].
    pub(super) unsafe fn set(&self, object: NonNull<R>) {
        // INVARIANT: By this function's contract.
        *self.object.lock() = Some(Object(object));
    }

    /// Tells nothing more. Sleeps until what is being told was told.
    pub(super) fn forget(&self) {
        *self.object.lock() = None;
    }
}

impl QpTarget {
    /// Tells an event. Sleeps.
    pub fn tell(&self, kind: Kind) {
        let object = self.object.lock();
        let Some(Object(qp)) = &*object else { return };
        let qp = qp.as_ptr();
        // SAFETY: By the type invariant it is valid; the field is constant.
        let device = unsafe { (*qp).device };
        let mut event = bindings::ib_event {
            device,
            event: kind.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<*mut bindings::ib_qp>();
        // SAFETY: The union has room for it.
        unsafe { place.write(qp) };
        // SAFETY: As above.
        let handler = unsafe { (*qp).event_handler };
        // SAFETY: As above.
        let context = unsafe { (*qp).qp_context };
        if let Some(handler) = handler {
            // SAFETY: It is the handler of this queue pair, in a context in which it may sleep.
            unsafe { handler(&mut event, context) };
        }
    }
}

impl CqTarget {
    /// Tells that completions were lost. Sleeps.
    pub fn tell(&self) {
        let object = self.object.lock();
        let Some(Object(cq)) = &*object else { return };
        let cq = cq.as_ptr();
        // SAFETY: By the type invariant it is valid; the field is constant.
        let device = unsafe { (*cq).device };
        let mut event = bindings::ib_event {
            device,
            event: Kind::CQ_ERR.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<*mut bindings::ib_cq>();
        // SAFETY: The union has room for it.
        unsafe { place.write(cq) };
        // SAFETY: As above.
        let handler = unsafe { (*cq).event_handler };
        // SAFETY: As above.
        let context = unsafe { (*cq).cq_context };
        if let Some(handler) = handler {
            // SAFETY: It is the handler of this queue, in a context in which it may sleep.
            unsafe { handler(&mut event, context) };
        }
    }
}

/// A device that events are told of, as long as it is registered.
#[pin_data]
pub struct DeviceTarget {
    #[pin]
    device: SpinLockIrq<Option<Object<bindings::ib_device>>>,
}

impl DeviceTarget {
    /// None yet.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            device <- new_spinlock_irq!(None, "vfab::DeviceTarget"),
        })
    }

    /// # Safety
    ///
    /// It is valid until [`DeviceTarget::forget`].
    pub(super) unsafe fn set(&self, device: NonNull<bindings::ib_device>) {
        // INVARIANT: By this function's contract.
        *self.device.lock() = Some(Object(device));
    }

    /// Tells nothing more.
    pub(super) fn forget(&self) {
        *self.device.lock() = None;
    }

    /// Tells an event of a port, or of the device, to all that listen. Any context.
    pub fn dispatch(&self, kind: Kind, port: u32) {
        let device = self.device.lock();
        let Some(Object(raw)) = &*device else { return };
        let mut event = bindings::ib_event {
            device: raw.as_ptr(),
            event: kind.0,
            ..Default::default()
        };
        let place = (&raw mut event.element).cast::<u32>();
        // SAFETY: The union has room for it.
        unsafe { place.write(port) };
        // SAFETY: By the type invariant it is valid; the listeners are told by a work item.
        unsafe { bindings::ib_dispatch_event(&event) };
    }
}
