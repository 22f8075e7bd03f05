// SPDX-License-Identifier: GPL-2.0

//! Connections by the RDMA connection manager.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h).
//!
//! # Examples
//!
//! ```
//! use ib_srp::{
//!     net::{Namespace, SocketAddr},
//!     rdma::{
//!         cm::{ConnectParam, EventHandler, EventKind, Id},
//!         qp::{Handler, Qp},
//!     },
//! };
//! use kernel::{prelude::*, sync::Arc};
//!
//! /// `wait` waits for the handler's next event, and fails if it has another kind.
//! fn connect<H: Handler, E: EventHandler>(
//!     qp: &Qp<H>,
//!     dst: &SocketAddr,
//!     handler: Arc<E>,
//!     wait: impl Fn(&E, EventKind) -> Result,
//! ) -> Result<Arc<Id<E>>> {
//!     let net = Namespace::current().ok_or(ESRCH)?;
//!     let id = Id::new(&net, handler)?;
//!     id.resolve_addr(None, dst, 5_000)?;
//!     wait(id.handler(), EventKind::AddrResolved)?;
//!     id.resolve_route(5_000)?;
//!     wait(id.handler(), EventKind::RouteResolved)?;
//!     qp.create(id.clone())?;
//!     id.connect(&ConnectParam {
//!         private_data: b"login",
//!         responder_resources: 4,
//!         retry_count: 7,
//!         rnr_retry_count: 7,
//!     })?;
//!     wait(id.handler(), EventKind::Established)?;
//!     Ok(id)
//! }
//! ```

use super::{
    cm_id::{
        private_data,
        CmId, //
    },
    device::Device,
    pd::Pd,
    users::{
        User,
        USERS, //
    }, //
};
use crate::{
    bindings,
    net::{
        Namespace,
        SocketAddr, //
    }, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CStrExt,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The address was resolved to a device.
    AddrResolved,
    /// The address could not be resolved.
    AddrError,
    /// The route was resolved.
    RouteResolved,
    /// There is no route.
    RouteError,
    /// The connection could not be established.
    ConnectError,
    /// The peer did not answer.
    Unreachable,
    /// The peer rejected the request; [`Event::status`] says why.
    Rejected,
    /// The connection is up; the peer's private data comes with it.
    Established,
    /// The connection is down.
    Disconnected,
    /// The device is being removed.
    DeviceRemoval,
    /// The local address moved to another device.
    AddrChange,
    /// The queue pair number may be used again.
    TimewaitExit,
    /// Any other event, by its number in `enum rdma_cm_event_type`.
    Other(u32),
}

/// Uses the names of `rdma_event_msg()`, for the events that end a connection.
impl core::fmt::Display for EventKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::AddrError => "address error",
            Self::RouteError => "route error",
            Self::ConnectError => "connect error",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
            Self::Disconnected => "disconnected",
            Self::DeviceRemoval => "device removal",
            Self::AddrChange => "address change",
            Self::AddrResolved
            | Self::RouteResolved
            | Self::Established
            | Self::TimewaitExit
            | Self::Other(_) => "unknown",
        })
    }
}

/// One event of an [`Id`].
pub struct Event<'a> {
    event: &'a bindings::rdma_cm_event,
}

impl Event<'_> {
    /// The kind of the event.
    pub fn kind(&self) -> EventKind {
        match self.event.event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddrResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => EventKind::AddrError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => EventKind::RouteError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => EventKind::ConnectError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => EventKind::Unreachable,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => EventKind::Rejected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoval,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => EventKind::AddrChange,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => EventKind::TimewaitExit,
            other => EventKind::Other(other),
        }
    }

    /// The status: 0, a negative errno, or the reason of a reject.
    pub fn status(&self) -> i32 {
        self.event.status
    }

    /// The peer's private data, with its received length.
    pub fn private_data(&self) -> &[u8] {
        match self.kind() {
            EventKind::Established | EventKind::Rejected => {
                // SAFETY: Connection events carry `conn`.
                let conn = unsafe { self.event.param.conn.as_ref() };
                // SAFETY: `private_data` is null or points to `private_data_len` bytes that stay
                // valid while the event's handler runs.
                unsafe { private_data(conn.private_data, conn.private_data_len.into()) }
            }
            _ => &[],
        }
    }
}

/// Handles the events of an [`Id`].
pub trait EventHandler: Send + Sync + 'static {
    /// Handles an event.
    ///
    /// Called from a work queue of the connection manager, one event of an id at a time. May sleep,
    /// but must not call its own id, which would deadlock, nor drop the last reference to it.
    fn event(&self, event: Event<'_>);
}

/// The parameters of a connect request.
pub struct ConnectParam<'a> {
    /// Passed to the peer; at most 56 bytes on InfiniBand.
    pub private_data: &'a [u8],
    /// Maximum number of RDMA reads by the peer that we serve concurrently.
    pub responder_resources: u8,
    /// Number of retries of an unacknowledged packet, 0 to 7.
    pub retry_count: u8,
    /// Number of retries when the peer has no receive posted, 0 to 7; 7 means forever.
    pub rnr_retry_count: u8,
}

/// A connection identifier with its event handler. Dropping the last reference waits for a running
/// handler and sleeps.
///
/// # Invariants
///
/// The context of the identifier in `calls` is `*handler`.
#[pin_data(PinnedDrop)]
pub struct Id<E: EventHandler> {
    /// The identifier. Taken before the connection manager's `handler_mutex`, which its functions
    /// take and its callbacks hold.
    #[pin]
    calls: Mutex<RawId>,
    handler: Arc<E>,
    _user: User<'static>,
}

/// The C identifier of an [`Id`], accessible only under the lock: the caller of the connection
/// manager must serialise its functions for one identifier.
///
/// # Invariants
///
/// The identifier is valid.
struct RawId {
    id: NonNull<bindings::rdma_cm_id>,
    /// A queue pair exists or existed.
    has_qp: bool,
}

// SAFETY: An identifier has no thread affinity.
unsafe impl Send for RawId {}

impl RawId {
    fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.id.as_ptr()
    }
}

/// Blocks the events of an [`Id`]. Meanwhile no thread of the connection manager changes the
/// identifier.
///
/// # Invariants
///
/// This holds the `handler_mutex` of the identifier.
struct NoEvents<'a>(&'a RawId);

impl<'a> NoEvents<'a> {
    fn new(id: &'a RawId) -> Self {
        // SAFETY: The identifier is valid by the type invariant.
        unsafe { bindings::rdma_lock_handler(id.as_raw()) };
        // INVARIANT: `handler_mutex` was just locked.
        Self(id)
    }
}

impl Drop for NoEvents<'_> {
    fn drop(&mut self) {
        // SAFETY: The identifier is valid, and by the type invariant its `handler_mutex` is held.
        unsafe { bindings::rdma_unlock_handler(self.0.as_raw()) };
    }
}

impl<E: EventHandler> Id<E> {
    /// Creates an identifier for a reliable connection in network namespace `net`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(net: &Namespace, handler: Arc<E>) -> Result<Arc<Self>> {
        // SAFETY: The namespace is held by the caller and then by the identifier. The context stays
        // valid: `Id` holds `handler`, and its `Drop` waits for the last event.
        let id = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(Self::event_callback),
                Arc::as_ptr(&handler).cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                super::CALLER.as_char_ptr(),
            )
        })?;
        let id = NonNull::new(id).ok_or(ENOMEM)?;
        let this = Arc::pin_init(
            // INVARIANT: `id` was just created with this handler as its context.
            pin_init!(Self {
                calls <- new_mutex!(RawId { id, has_qp: false }, "cm::Id::calls"),
                handler: handler.clone(),
                _user: USERS.one(),
            }),
            GFP_KERNEL,
        );
        if this.is_err() {
            // SAFETY: The identifier was just created, and has no event yet.
            unsafe { bindings::rdma_destroy_id(id.as_ptr()) };
        }
        this
    }

    /// # Safety
    ///
    /// Only the connection manager may call this, with an identifier from [`Self::new`] and its
    /// event.
    unsafe extern "C" fn event_callback(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> i32 {
        // SAFETY: The identifier is valid.
        let context = unsafe { (*id).context };
        // SAFETY: By the type invariant the context is the handler, which lives until
        // `rdma_destroy_id()` returns, which waits for this call.
        let handler = unsafe { &*context.cast::<E>() };
        // SAFETY: The event is valid for the duration of the call.
        let event = unsafe { &*event };
        handler.event(Event { event });
        0
    }

    /// The handler.
    pub fn handler(&self) -> &E {
        &self.handler
    }

    /// Sets the type of service of the connection; call before the address is resolved. May sleep.
    pub fn set_service_type(&self, tos: u8) {
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant.
        unsafe { bindings::rdma_set_service_type(id.as_raw(), tos.into()) };
    }

    /// Sets the ACK timeout of the queue pair, as n in 4.096 us * 2^n (0: forever); call before the
    /// route is resolved. On RoCE the connection manager derives the packet life time from the
    /// timeout; the peer uses this life time too. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a service other than a reliable connection.
    pub fn set_ack_timeout(&self, timeout: u8) -> Result {
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant.
        to_result(unsafe { bindings::rdma_set_ack_timeout(id.as_raw(), timeout) })
    }

    /// Starts to resolve `dst`, from `src` if given. Completes with an event. May sleep.
    ///
    /// # Errors
    ///
    /// The error of the address or routing code, such as `ENETUNREACH` or `EADDRNOTAVAIL`.
    pub fn resolve_addr(
        &self,
        src: Option<&SocketAddr>,
        dst: &SocketAddr,
        timeout_ms: u32,
    ) -> Result {
        let mut src = src.map(|src| src.to_raw());
        let mut dst = dst.to_raw();
        let src = src
            .as_mut()
            .map_or(null_mut(), |src| (&raw mut *src).cast());
        let dst = (&raw mut dst).cast();
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant; the function copies the addresses.
        to_result(unsafe {
            bindings::rdma_resolve_addr(id.as_raw(), src, dst, timeout_ms as usize)
        })
    }

    /// Starts to resolve the route to the resolved address. Completes with an event. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` before the address is resolved, `ENODEV` if the device is gone.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant.
        to_result(unsafe { bindings::rdma_resolve_route(id.as_raw(), timeout_ms as usize) })
    }

    /// Whether the address was resolved to `port` of `device`. May sleep.
    pub fn is_on(&self, device: &Device, port: u32) -> bool {
        let id = self.calls.lock();
        let _no_events = NoEvents::new(&id);
        // SAFETY: The identifier is valid, and `_no_events` keeps it unchanged.
        let have = unsafe { (*id.as_raw()).device };
        // SAFETY: The identifier is valid, and `_no_events` keeps it unchanged.
        let number = unsafe { (*id.as_raw()).port_num };
        have == device.as_raw() && number == port
    }

    /// The local address and port, once the address is resolved. May sleep.
    pub fn src_addr(&self) -> Option<SocketAddr> {
        let id = self.calls.lock();
        let _no_events = NoEvents::new(&id);
        // SAFETY: The identifier is valid, and `_no_events` keeps it unchanged.
        let raw = unsafe { &(*id.as_raw()).route.addr.src_addr };
        SocketAddr::from_raw(raw)
    }

    /// Starts to connect the queue pair of this identifier. Completes with an event. Sleeps; on
    /// iWARP until the peer has answered, or the task is [interrupted](crate::sync::Interrupt).
    /// Other calls for the identifier wait meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` in the wrong state or if the private data is too long.
    pub fn connect(&self, param: &ConnectParam<'_>) -> Result {
        let mut raw = bindings::rdma_conn_param {
            private_data: param.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(param.private_data.len()).map_err(|_| EINVAL)?,
            responder_resources: param.responder_resources,
            initiator_depth: 0,
            flow_control: 1,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            ..Default::default()
        };
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant; the function copies the parameters
        // and the private data.
        to_result(unsafe { bindings::rdma_connect(id.as_raw(), &mut raw) })
    }
}

// SAFETY: `rdma_create_qp()` creates the queue pair as requested. The connection manager uses it
// only while it is in the field `qp`: in `rdma_connect()` and for events with the handler's lock
// held, in `rdma_disconnect()` with `calls` locked.
unsafe impl<E: EventHandler> CmId for Id<E> {
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>> {
        let mut id = self.calls.lock();
        if core::mem::replace(&mut id.has_qp, true) {
            return Err(EBUSY);
        }
        // SAFETY: The identifier and the domain are valid, and by this function's contract so are
        // the queues; the function copies `attr`.
        to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), attr) })?;
        // SAFETY: The identifier is valid and now has a queue pair.
        NonNull::new(unsafe { (*id.as_raw()).qp }).ok_or(ENOMEM)
    }

    fn release_qp(&self) {
        let id = self.calls.lock();
        // `rdma_destroy_qp()` does the same, but does not return whether the device destroyed the
        // queue pair.
        let _no_events = NoEvents::new(&id);
        // SAFETY: The identifier is valid by the type invariant, and `_no_events` keeps other users
        // from the field.
        unsafe { (*id.as_raw()).qp = null_mut() };
    }

    fn disconnect(&self) {
        let id = self.calls.lock();
        // SAFETY: The identifier is valid by the type invariant. The call fails if not connected.
        let _ = unsafe { bindings::rdma_disconnect(id.as_raw()) };
    }
}

#[pinned_drop]
impl<E: EventHandler> PinnedDrop for Id<E> {
    fn drop(self: Pin<&mut Self>) {
        let id = self.calls.lock().id;
        // SAFETY: By the type invariant the identifier is valid. The call waits for a running
        // event, so the handler may be freed after it; a handler never drops the last reference, as
        // `EventHandler` requires.
        unsafe { bindings::rdma_destroy_id(id.as_ptr()) };
    }
}

#[cfg(SRP_KUNIT)]
pub(crate) mod tests;
