// SPDX-License-Identifier: GPL-2.0

//! Connections by the InfiniBand connection manager.
//!
//! An [`Id`] is one connection attempt: request, reply, confirmation. The private data of the reply
//! is checked before the confirmation, so that an unusable peer is refused rather than left with
//! half a connection.
//!
//! C header: [`include/rdma/ib_cm.h`](srctree/include/rdma/ib_cm.h).
//!
//! # Examples
//!
//! ```
//! use ib_srp::rdma::{
//!     device::Device,
//!     ib_cm::{EventHandler, Id, Request},
//!     lookup::Lookup,
//!     path::PathRec,
//!     qp::{Handler, Qp},
//! };
//! use kernel::{prelude::*, sync::Arc};
//!
//! /// `answered` waits until the handler has the reply, and checks it.
//! fn connect<H: Handler, E: EventHandler>(
//!     qp: &Qp<H>,
//!     (device, port): (&Device, u32),
//!     rec: &PathRec,
//!     handler: Arc<E>,
//!     answered: impl Fn(&E) -> Result,
//! ) -> Result<Arc<Id<E>>> {
//!     let lookup = Lookup::start(device, port, rec, 5_000)?;
//!     let mut path = lookup.wait(5_000)?.ok_or(ETIMEDOUT)??;
//!     let id = Id::new(device, port, rec.pkey, handler)?;
//!     qp.create(id.clone())?;
//!     id.request(
//!         &mut path,
//!         &Request {
//!             service_id: rec.service_id,
//!             private_data: b"login",
//!             responder_resources: 4,
//!             retry_count: 7,
//!             rnr_retry_count: 7,
//!             remote_cm_qpn: None,
//!         },
//!     )?;
//!     answered(id.handler())
//!         .and_then(|()| id.confirm(None))
//!         .inspect_err(|_| id.refuse())?;
//!     Ok(id)
//! }
//! ```

mod event;
pub mod state;

pub use event::{
    Event,
    EventHandler, //
};

use super::{
    cm_id::{
        destroy,
        private_data,
        CmId, //
    },
    device::{
        Device,
        Registered, //
    },
    path::Path,
    pd::Pd,
    timeout, //
};
use crate::{
    bindings,
    errno::ENOTCONN,
    random::random_u64, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    }, //
};
use state::{
    next,
    Report,
    State, //
};

/// Number of retries of a request by the connection manager.
const MAX_CM_RETRIES: u8 = 15;
/// Mask of the 24 bits of a packet sequence number.
const PSN: u32 = 0x00ff_ffff;
/// Subnet timeout of a port if the query fails: n in 4.096 us * 2^n.
const SUBNET_TIMEOUT: u8 = 18;

/// Number of RDMA reads and atomic operations that we may start on the peer's memory.
const READS: u8 = 0;

/// The parameters of a connect request.
pub struct Request<'a> {
    /// The requested service.
    pub service_id: u64,
    /// Passed to the peer; at most 92 bytes.
    pub private_data: &'a [u8],
    /// Maximum number of RDMA reads by the peer that we serve concurrently.
    pub responder_resources: u8,
    /// Number of retries of an unacknowledged packet, 0 to 7.
    pub retry_count: u8,
    /// Number of retries when the peer has no receive posted, 0 to 7; 7 means forever.
    pub rnr_retry_count: u8,
    /// Queue pair number of the peer's connection manager, if not the default.
    pub remote_cm_qpn: Option<u32>,
}

/// The context of the connection manager's callback.
struct Shared<E> {
    /// A [`State`].
    state: Atomic<u32>,
    handler: Arc<E>,
}

impl<E: EventHandler> Shared<E> {
    /// Applies `input` to the state and returns what to report.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `input` is not allowed in this state.
    fn note(&self, input: state::Input) -> Result<Report> {
        let mut now = self.state.load(Acquire);
        loop {
            let state = State::new(now).ok_or(EINVAL)?;
            let (to, report) = next(state, input).ok_or(EINVAL)?;
            match self.state.cmpxchg(now, to as u32, Full) {
                Ok(_) => return Ok(report),
                Err(other) => now = other,
            }
        }
    }

    /// Handles an event of the connection manager.
    ///
    /// # Safety
    ///
    /// `event` must be as the connection manager creates it: with the parameters of its kind, and
    /// private data of the full length for a reply or a reject.
    unsafe fn event(&self, event: &bindings::ib_cm_event) -> Report {
        let what = match event.event {
            bindings::ib_cm_event_type_IB_CM_REP_RECEIVED => state::Input::Rep,
            bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => state::Input::Rej,
            bindings::ib_cm_event_type_IB_CM_REQ_ERROR => state::Input::ReqError,
            bindings::ib_cm_event_type_IB_CM_MRA_RECEIVED => state::Input::Mra,
            bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => state::Input::Dreq,
            bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED
            | bindings::ib_cm_event_type_IB_CM_DREQ_ERROR => state::Input::Drep,
            bindings::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => state::Input::TimewaitExit,
            _ => state::Input::Other,
        };
        // Messages of the peer are allowed in every state.
        let report = self.note(what).unwrap_or(Report::Nothing);
        self.handler.event(match report {
            Report::Nothing => return report,
            Report::Later => {
                // SAFETY: Only an MRA is reported as `Later`.
                let mra = unsafe { event.param.mra_rcvd.as_ref() };
                Event::Later(timeout::service_timeout_ms(mra.service_timeout))
            }
            Report::Answer => {
                let len = bindings::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE;
                // SAFETY: The private data of a reply has this length.
                Event::Replied(unsafe { private_data(event.private_data, len as usize) })
            }
            Report::Refused => {
                // SAFETY: Only a reject is reported as `Refused`.
                let rej = unsafe { event.param.rej_rcvd.as_ref() };
                let most = bindings::ib_cm_data_size_IB_CM_REJ_ARI_LENGTH as usize;
                let len = bindings::ib_cm_data_size_IB_CM_REJ_PRIVATE_DATA_SIZE as usize;
                Event::Rejected {
                    reason: u16::try_from(rej.reason).unwrap_or(u16::MAX),
                    // The peer chooses the length.
                    // SAFETY: `ari` points to `most` bytes of the message.
                    info: unsafe { private_data(rej.ari, usize::from(rej.ari_length).min(most)) },
                    // SAFETY: The private data of a reject has this length.
                    private_data: unsafe { private_data(event.private_data, len) },
                }
            }
            Report::Unreachable => Event::Unreachable,
            Report::Disconnected => Event::Disconnected,
            Report::TimewaitExit => Event::TimewaitExit,
        });
        report
    }
}

/// The raw identifier.
///
/// # Invariants
///
/// `id` is a valid identifier with context `*shared`.
struct Raw<E: EventHandler> {
    id: NonNull<bindings::ib_cm_id>,
    shared: Arc<Shared<E>>,
}

impl<E: EventHandler> Raw<E> {
    fn new(device: &Device, handler: Arc<E>) -> Result<Self> {
        let shared = Arc::new(
            Shared {
                state: Atomic::new(State::Idle as u32),
                handler,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The device is registered, and the owner of `Raw` holds it until after `Raw`. The
        // context stays valid: `Raw` holds it, and its `Drop` waits for the last event.
        let id = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                device.as_raw(),
                Some(Self::event_callback),
                Arc::as_ptr(&shared).cast_mut().cast(),
            )
        })?;
        let id = NonNull::new(id).ok_or(ENOMEM)?;
        // INVARIANT: `id` was just created with this context.
        Ok(Self { id, shared })
    }

    /// # Safety
    ///
    /// Only the connection manager may call this, with an identifier from [`Self::new`] and its
    /// event.
    unsafe extern "C" fn event_callback(
        id: *mut bindings::ib_cm_id,
        event: *const bindings::ib_cm_event,
    ) -> c_int {
        // SAFETY: The identifier is valid.
        let context = unsafe { (*id).context };
        // SAFETY: By the type invariant the context is `Shared`, which lives until
        // `ib_destroy_cm_id()` returns, which waits for this call.
        let shared = unsafe { &*context.cast::<Shared<E>>() };
        // SAFETY: The event is valid for the duration of the call.
        let event = unsafe { &*event };
        if event.event == bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED {
            // SAFETY: The identifier is valid. An error means that its state has moved on.
            let _ = unsafe { bindings::ib_send_cm_drep(id, core::ptr::null(), 0) };
        }
        // SAFETY: `event` comes from the connection manager.
        if unsafe { shared.event(event) } == Report::Answer {
            // A peer that repeats its reply while the owner examines it gets an MRA.
            // SAFETY: The identifier is valid. An error means that its state has moved on.
            let _ = unsafe { bindings::srp_helper_ib_prepare_cm_mra(id) };
        }
        0
    }
}

impl<E: EventHandler> Drop for Raw<E> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the identifier is valid. The call waits for a running
        // event, so the handler may be freed after it; a handler never drops the last reference, as
        // `EventHandler` requires. The call notifies a waiting peer.
        unsafe { bindings::ib_destroy_cm_id(self.id.as_ptr()) };
    }
}

/// The queue pair of an [`Id`].
#[derive(Clone, Copy)]
enum Queue {
    /// Not created yet.
    None,
    /// Created; serves this many RDMA reads of the peer concurrently.
    Made(NonNull<bindings::ib_qp>, u8),
    /// Detached by [`CmId::release_qp`].
    Gone,
}

/// Moves a queue pair to RTR and RTS with the attributes from `agreed`. The attributes have the
/// peer's unchecked values, so RDMA reads are limited to `reads`. `ack_timeout` replaces the agreed
/// timeout. Returns the time in milliseconds after which a command on the queue pair has certainly
/// ended.
///
/// # Errors
///
/// The errors of `agreed` and of the device driver.
///
/// # Safety
///
/// The queue pair must be valid.
unsafe fn establish(
    qp: NonNull<bindings::ib_qp>,
    reads: u8,
    ack_timeout: Option<u8>,
    agreed: impl Fn(&mut bindings::ib_qp_attr, &mut c_int) -> Result,
) -> Result<u32> {
    let mut attr = KBox::new(bindings::ib_qp_attr::default(), GFP_KERNEL)?;
    for state in [
        bindings::ib_qp_state_IB_QPS_RTR,
        bindings::ib_qp_state_IB_QPS_RTS,
    ] {
        attr.qp_state = state;
        let mut mask = 0;
        agreed(&mut attr, &mut mask)?;
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(reads);
        attr.max_rd_atomic = READS;
        attr.timeout =
            ack_timeout.unwrap_or_else(|| timeout::ack_timeout(attr.timeout, attr.retry_cnt));
        // SAFETY: The queue pair is valid; `attr` has the attributes in `mask`.
        to_result(unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut *attr, mask) })?;
    }
    let longest = timeout::request_timeout_ms(attr.timeout, attr.retry_cnt);
    Ok(longest.min(timeout::MAX_REQUEST_TIMEOUT_MS))
}

/// A connection attempt from one port, with its event handler. Dropping the last reference waits
/// for a running handler and sleeps.
///
/// # Invariants
///
/// A queue pair in `queue` is valid while the lock is held.
#[pin_data]
pub struct Id<E: EventHandler> {
    raw: Raw<E>,
    #[pin]
    queue: Mutex<Queue>,
    port: u32,
    pkey: u16,
    // Must be dropped last.
    device: Registered,
}

// SAFETY: An identifier has no thread affinity.
unsafe impl<E: EventHandler> Send for Id<E> {}
// SAFETY: The connection manager does its own locking, and a lock protects the queue pair.
unsafe impl<E: EventHandler> Sync for Id<E> {}

impl<E: EventHandler> Id<E> {
    /// Creates an identifier for a connection from `port` of `device` in partition `pkey`. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is being removed, `ENOMEM`.
    pub fn new(device: &Device, port: u32, pkey: u16, handler: Arc<E>) -> Result<Arc<Self>> {
        let device = device.hold()?;
        let raw = Raw::new(&device, handler)?;
        Arc::pin_init(
            pin_init!(Self {
                raw,
                queue <- new_mutex!(Queue::None, "ib_cm::Id::queue"),
                port,
                pkey,
                device,
            }),
            GFP_KERNEL,
        )
    }

    fn as_raw(&self) -> *mut bindings::ib_cm_id {
        self.raw.id.as_ptr()
    }

    /// The handler.
    pub fn handler(&self) -> &E {
        &self.raw.shared.handler
    }

    /// Sends a request to connect the queue pair of this identifier to the peer at the end of
    /// `path`. May be called once. Completes with an event. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` without a queue pair; `EINVAL` the second time, if the private data is too long,
    /// or if the path belongs to another device; otherwise the error of the connection manager for
    /// the path.
    pub fn request(&self, path: &mut Path, what: &Request<'_>) -> Result {
        let mut queue = self.queue.lock();
        let Queue::Made(qp, _) = *queue else {
            return Err(ENOTCONN);
        };
        // Otherwise the queue pair would use a GID that only the path keeps alive.
        if !path.is_from(&self.device) {
            return Err(EINVAL);
        }
        let private_data_len = u8::try_from(what.private_data.len()).map_err(|_| EINVAL)?;
        let subnet_timeout = self
            .device
            .port_info(self.port)
            .map_or(SUBNET_TIMEOUT, |info| info.subnet_timeout);
        let timeout = timeout::response_timeout(subnet_timeout);
        self.raw.shared.note(state::Input::SendReq)?;
        // INVARIANT: The queue pair is unchanged.
        *queue = Queue::Made(qp, what.responder_resources);
        if let Some(qpn) = what.remote_cm_qpn {
            // SAFETY: The identifier is valid, and nothing else uses it before the request.
            unsafe { (*self.as_raw()).remote_cm_qpn = qpn };
        }
        let mut param = bindings::ib_cm_req_param {
            ppath_sgid_attr: path.sgid_attr(),
            primary_path: path.as_raw(),
            service_id: what.service_id.to_be(),
            // SAFETY: By the type invariant the queue pair is valid.
            qp_num: unsafe { (*qp.as_ptr()).qp_num },
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            // CAST: The low bits are as random as the high ones.
            starting_psn: random_u64() as u32 & PSN,
            private_data: what.private_data.as_ptr().cast(),
            private_data_len,
            responder_resources: what.responder_resources,
            initiator_depth: READS,
            remote_cm_response_timeout: timeout,
            flow_control: 1,
            local_cm_response_timeout: timeout,
            retry_count: what.retry_count,
            rnr_retry_count: what.rnr_retry_count,
            max_cm_retries: MAX_CM_RETRIES,
            ..Default::default()
        };
        // SAFETY: The identifier is valid by the type invariant; the function copies the
        // parameters, the path and the private data, and takes its own reference to the GID.
        let sent = to_result(unsafe { bindings::ib_send_cm_req(self.as_raw(), &mut param) });
        if sent.is_err() {
            self.raw.shared.note(state::Input::Hangup)?;
        }
        sent
    }

    /// Accepts the reply: makes the queue pair usable and tells the peer. `ack_timeout`, as n in
    /// 4.096 us * 2^n, replaces the timeout that the connection managers agreed on. May sleep.
    ///
    /// Returns the time in milliseconds after which a command on the queue pair has certainly
    /// ended, capped at `timeout::MAX_REQUEST_TIMEOUT_MS`, which a long `ack_timeout` can exceed.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if there is no reply or the connection has ended meanwhile, otherwise the error
    /// of the device driver or the connection manager. After an error, [refuse](Self::refuse) the
    /// peer.
    pub fn confirm(&self, ack_timeout: Option<u8>) -> Result<u32> {
        let queue = self.queue.lock();
        let Queue::Made(qp, reads) = *queue else {
            return Err(ENOTCONN);
        };
        // The state changes first, because the peer may disconnect as soon as it has the RTU.
        self.raw
            .shared
            .note(state::Input::SendRtu)
            .map_err(|_| ENOTCONN)?;
        let agreed = |attr: &mut bindings::ib_qp_attr, mask: &mut c_int| self.agreed(attr, mask);
        // SAFETY: By the type invariant the queue pair is valid while the lock is held.
        let allowed = unsafe { establish(qp, reads, ack_timeout, agreed) }?;
        // SAFETY: The identifier is valid by the type invariant.
        to_result(unsafe { bindings::ib_send_cm_rtu(self.as_raw(), core::ptr::null(), 0) })?;
        Ok(allowed)
    }

    /// Fills `attr` with the agreed attributes for the state in it, and `mask` with their bits.
    fn agreed(&self, attr: &mut bindings::ib_qp_attr, mask: &mut c_int) -> Result {
        // SAFETY: The identifier is valid by the type invariant, `attr` and `mask` are valid for
        // writing.
        to_result(unsafe { bindings::ib_cm_init_qp_attr(self.as_raw(), attr, mask) })
    }

    /// Tells the peer that its reply is rejected. No event about the connection follows, except
    /// [`Event::TimewaitExit`].
    pub fn refuse(&self) {
        let _ = self.raw.shared.note(state::Input::Hangup);
        // SAFETY: The identifier is valid by the type invariant. An error means that there is
        // nothing to refuse.
        let _ = unsafe {
            bindings::ib_send_cm_rej(
                self.as_raw(),
                bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED,
                core::ptr::null_mut(),
                0,
                core::ptr::null(),
                0,
            )
        };
    }
}

// SAFETY: `ib_create_qp_kernel()` creates the queue pair as requested. An `Id` uses the queue pair
// only while it is in `queue`, with the lock held.
unsafe impl<E: EventHandler> CmId for Id<E> {
    unsafe fn create_qp(
        &self,
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>> {
        if pd.device().as_raw() != self.device.as_raw() {
            return Err(EINVAL);
        }
        let pkey_index = self.device.pkey_index(self.port, self.pkey)?;
        let mut queue = self.queue.lock();
        if !matches!(*queue, Queue::None) {
            return Err(EBUSY);
        }
        // SAFETY: The domain is valid, and by this function's contract so are the queues; the
        // function copies `attr`.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), attr, super::CALLER.as_char_ptr())
        })?;
        let qp = NonNull::new(qp).ok_or(ENOMEM)?;
        let access = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE
            | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
            | bindings::ib_qp_attr_mask_IB_QP_PORT;
        let init = KBox::new(
            bindings::ib_qp_attr {
                qp_state: bindings::ib_qp_state_IB_QPS_INIT,
                qp_access_flags: access as c_int,
                pkey_index,
                port_num: self.port,
                ..Default::default()
            },
            GFP_KERNEL,
        );
        let ready = init.map_err(Error::from).and_then(|mut init| {
            // SAFETY: The queue pair is valid, and `init` has the attributes in `mask`.
            to_result(unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut *init, mask as c_int) })
        });
        if let Err(e) = ready {
            // SAFETY: The queue pair was just created, and nothing else has a pointer to it.
            unsafe { destroy(&self.device, qp) };
            return Err(e);
        }
        // INVARIANT: The queue pair is valid until `release_qp`, which takes it out, has returned.
        *queue = Queue::Made(qp, 0);
        Ok(qp)
    }

    fn release_qp(&self) {
        let mut queue = self.queue.lock();
        if let Queue::Made(..) = *queue {
            *queue = Queue::Gone;
        }
    }

    fn disconnect(&self) {
        let _ = self.raw.shared.note(state::Input::Hangup);
        let queue = self.queue.lock();
        if let Queue::Made(qp, _) = *queue {
            let attr = KBox::new(
                bindings::ib_qp_attr {
                    qp_state: bindings::ib_qp_state_IB_QPS_ERR,
                    ..Default::default()
                },
                GFP_KERNEL,
            );
            // If the allocation fails, the queue pair keeps its state until it is drained.
            if let Ok(mut attr) = attr {
                let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
                // SAFETY: By the type invariant the queue pair is valid while the lock is held.
                let _ = unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut *attr, mask) };
            }
        }
        // SAFETY: The identifier is valid by the type invariant. The call fails if not connected.
        let _ = unsafe { bindings::ib_send_cm_dreq(self.as_raw(), core::ptr::null(), 0) };
    }
}

#[cfg(SRP_KUNIT)]
pub(crate) mod tests;
