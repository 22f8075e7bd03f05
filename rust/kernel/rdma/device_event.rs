// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of RDMA devices: ports that come up, tables that change.
//!
//! The core guarantees little about them:
//!
//! - An event can be lost: reporting one needs an atomic allocation, and the core drops it if it
//!   cannot re-read the changed tables of the port.
//! - Events come from a work queue that runs several at a time, so an event may overtake another,
//!   and one handler may run on several CPUs.
//! - Most events report a completed change: the handler sees the new tables.
//!
//! So an event is a reason to query the state, and not the state itself.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! Not supported: the events of queue pairs, completion queues and other objects. Their owners have
//! their own handlers.
//!
//! # Examples
//!
//! ```
//! use ib_srp::rdma::{
//!     device::Device,
//!     device_event::{DeviceEvent, DeviceEventHandler, Registration},
//! };
//! use kernel::{
//!     prelude::*,
//!     sync::{
//!         atomic::{Atomic, Relaxed},
//!         Arc,
//!     },
//! };
//!
//! /// How often a port became active.
//! struct Up(Atomic<i32>);
//!
//! impl DeviceEventHandler for Up {
//!     fn device_event(&self, event: DeviceEvent, _port: Option<u32>) {
//!         if event == DeviceEvent::PortActive {
//!             self.0.add(1, Relaxed);
//!         }
//!     }
//! }
//!
//! fn watch(device: &Device, up: Arc<Up>) -> Result<Pin<KBox<Registration<Up>>>> {
//!     KBox::pin_init(Registration::new(device.hold()?, up), GFP_KERNEL)
//! }
//! ```

use super::device::{
    Device,
    Registered, //
};
use crate::bindings;
use kernel::{
    container_of,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// An asynchronous event of a device or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device has failed permanently.
    Fatal,
    /// A port has become usable.
    PortActive,
    /// A port has become unusable.
    PortError,
    /// The LID of a port has changed; siw reports this when a MAC address changes.
    LidChange,
    /// The table of partition keys of a port has changed.
    PkeyChange,
    /// The subnet manager has changed.
    SmChange,
    /// The subnet manager asks its clients to register again.
    ClientReregister,
    /// An entry of the GID table of a RoCE port was added or removed. The core does not report this
    /// for other ports.
    GidChange,
    /// Another event of the device, an `enum ib_event_type`.
    Other(u32),
}

impl DeviceEvent {
    /// Returns the event for an `enum ib_event_type`, or `None` for an event of another object.
    fn new(event: bindings::ib_event_type) -> Option<Self> {
        Some(match event {
            bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => Self::Fatal,
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE => Self::PortActive,
            bindings::ib_event_type_IB_EVENT_PORT_ERR => Self::PortError,
            bindings::ib_event_type_IB_EVENT_LID_CHANGE => Self::LidChange,
            bindings::ib_event_type_IB_EVENT_PKEY_CHANGE => Self::PkeyChange,
            bindings::ib_event_type_IB_EVENT_SM_CHANGE => Self::SmChange,
            bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER => Self::ClientReregister,
            bindings::ib_event_type_IB_EVENT_GID_CHANGE => Self::GidChange,
            bindings::ib_event_type_IB_EVENT_CQ_ERR
            | bindings::ib_event_type_IB_EVENT_QP_FATAL
            | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
            | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR
            | bindings::ib_event_type_IB_EVENT_COMM_EST
            | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
            | bindings::ib_event_type_IB_EVENT_PATH_MIG
            | bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR
            | bindings::ib_event_type_IB_EVENT_SRQ_ERR
            | bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED
            | bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
            | bindings::ib_event_type_IB_EVENT_WQ_FATAL => return None,
            other => Self::Other(other),
        })
    }

    /// Returns whether the event comes with a port number.
    fn has_port(self) -> bool {
        !matches!(self, Self::Fatal | Self::Other(_))
    }
}

/// Handles the events of a device.
pub trait DeviceEventHandler: Send + Sync + 'static {
    /// Called for an event of the device, or of `port`, if given.
    ///
    /// Runs in process context and may sleep, but holds up all other handlers and the removal of
    /// the device: it should queue work and return. The core calls it
    ///
    /// - from the work queue `ib_wq`, with the device's `event_handler_rwsem` held for reading;
    /// - for [`DeviceEvent::GidChange`] from the code that changes the table, with the mutex of
    ///   that table held too. [`Device::gid`] can be called.
    ///
    /// The handler must not register a handler for the same device or drop a [`Registration`] of
    /// one: both would deadlock.
    fn device_event(&self, event: DeviceEvent, port: Option<u32>);
}

/// A handler for the events of one device.
///
/// Dropping a registration waits for running calls of the handler; none begin afterwards. The core
/// calls handlers with the device's `event_handler_rwsem` held for reading, and the drop removes
/// the handler from the list with that semaphore held for writing. The drop sleeps, and must not
/// happen in a handler of that device, nor with a lock held that a handler takes.
///
/// A registration keeps the device registered, so the `remove` of a
/// [`Client`](super::client::Client) must drop it at the latest.
///
/// # Invariants
///
/// `handler` is in the event handler list of `device`, with [`Registration::callback`] as its
/// function.
#[pin_data(PinnedDrop)]
pub struct Registration<T: DeviceEventHandler> {
    #[pin]
    handler: Opaque<bindings::ib_event_handler>,
    device: Registered,
    context: Arc<T>,
}

// SAFETY: Registration and unregistration are not tied to a thread, and `T` is `Send` and `Sync`.
unsafe impl<T: DeviceEventHandler> Send for Registration<T> {}
// SAFETY: A shared registration gives access to the device only, which is `Sync`.
unsafe impl<T: DeviceEventHandler> Sync for Registration<T> {}

impl<T: DeviceEventHandler> Registration<T> {
    /// Registers `context` for the events of `device`. Sleeps.
    ///
    /// Events can arrive before this returns. Past events are not reported.
    pub fn new(device: Registered, context: Arc<T>) -> impl PinInit<Self> {
        let raw = device.as_raw();
        pin_init!(Self {
            device,
            context,
            // INVARIANT: `handler` is registered here, at its final address. This comes last, as
            // the callback uses the other fields.
            handler <- Opaque::ffi_init(|slot: *mut bindings::ib_event_handler| {
                let handler = bindings::ib_event_handler {
                    device: raw,
                    handler: Some(Self::callback),
                    ..Default::default()
                };
                // SAFETY: `slot` is valid for writing.
                unsafe { slot.write(handler) };
                // SAFETY: The handler is initialised except for its list entry, which this call
                // sets; it is pinned until `drop` has removed it. `device` keeps the device
                // registered.
                unsafe { bindings::ib_register_event_handler(slot) };
            }),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[cfg(SRP_KUNIT)]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_event_handler {
        self.handler.get()
    }

    /// # Safety
    ///
    /// Only the core may call this, with the handler of a registered `Registration<T>`, and an
    /// event of its device.
    unsafe extern "C" fn callback(
        handler: *mut bindings::ib_event_handler,
        event: *mut bindings::ib_event,
    ) {
        let handler: *const Opaque<bindings::ib_event_handler> = Opaque::cast_from(handler);
        // SAFETY: By the safety requirements `handler` is that of a `Registration<T>`.
        let this = unsafe { container_of!(handler.cast_mut(), Self, handler) };
        // SAFETY: `device` is initialised before `handler` is registered, and dropped after its
        // unregistration, which waits for this call.
        let device: &Device = unsafe { &(*this).device };
        // SAFETY: `context` is initialised before `handler` is registered, and dropped after its
        // unregistration, which waits for this call.
        let context = unsafe { &(*this).context };
        // SAFETY: By the safety requirements the event is valid during this call.
        let event = unsafe { &*event };
        let Some(kind) = DeviceEvent::new(event.event) else {
            return;
        };
        let port = kind
            .has_port()
            // SAFETY: The reporter of such an event sets the number of the port.
            .then(|| unsafe { *event.element.port_num.as_ref() })
            .filter(|port| device.ports().contains(port));
        context.device_event(kind, port);
    }
}

#[pinned_drop]
impl<T: DeviceEventHandler> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant `handler` is registered, and `device` keeps its device
        // registered.
        unsafe { bindings::ib_unregister_event_handler(self.handler.get()) };
    }
}
