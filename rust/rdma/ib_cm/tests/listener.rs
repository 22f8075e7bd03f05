// SPDX-License-Identifier: GPL-2.0

//! The passive side: it listens, and answers the first request as it was told to.

use super::PATTERN;
use crate::{
    bindings,
    rdma::device::Device,
    sys::random_u64, //
};
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

/// What the listener does with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Accepts it, with a queue pair that does not exist.
    Accept,
    /// Rejects it for a reason, with so many bytes of additional information.
    Reject(u16, u8),
    /// Says nothing.
    Silence,
}

/// What the callbacks use.
struct Inner {
    answer: Answer,
    service_id: u64,
    /// The address of the identifier of the first request, or 0.
    accepted: Atomic<usize>,
    asked: Atomic<bool>,
    asked_well: Atomic<bool>,
    established: Atomic<bool>,
    rejected: Atomic<bool>,
    disconnected: Atomic<bool>,
}

/// A listener.
///
/// # Invariants
///
/// `id` is a listening identifier whose context is `inner`; `inner.accepted` is 0 or an identifier
/// with the same context.
pub(super) struct Listener {
    id: NonNull<bindings::ib_cm_id>,
    inner: Arc<Inner>,
}

impl Listener {
    /// Begins to listen, for a service of its own.
    pub(super) fn new(device: &Device, answer: Answer) -> Result<Self> {
        let off = || Atomic::new(false);
        let inner = Arc::new(
            Inner {
                answer,
                // Not in the ranges that are given out, and not rdma_cm's.
                service_id: random_u64() >> 8 | 1 << 62,
                accepted: Atomic::new(0),
                asked: off(),
                asked_well: off(),
                established: off(),
                rejected: off(),
                disconnected: off(),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The device is registered; the context stays until the identifiers are destroyed.
        let id = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                device.as_raw(),
                Some(Self::callback),
                Arc::as_ptr(&inner).cast_mut().cast(),
            )
        })?;
        // INVARIANT: The identifier was just made with this context.
        let this = Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            inner,
        };
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::ib_cm_listen(id, this.service_id().to_be()) })?;
        Ok(this)
    }

    /// What it listens for.
    pub(super) fn service_id(&self) -> u64 {
        self.inner.service_id
    }

    /// # Safety
    ///
    /// Called by the connection manager with an identifier of a listener and its event.
    unsafe extern "C" fn callback(
        id: *mut bindings::ib_cm_id,
        event: *const bindings::ib_cm_event,
    ) -> c_int {
        // SAFETY: The context is `Inner`, which lives longer than the identifiers.
        let inner = unsafe { &*(*id).context.cast::<Inner>() };
        // SAFETY: The event is valid for the call.
        let event = unsafe { &*event };
        match event.event {
            bindings::ib_cm_event_type_IB_CM_REQ_RECEIVED => {
                // SAFETY: It is a request.
                let request = unsafe { event.param.req_rcvd.as_ref() };
                // Not `rnr_retry_count` and `srq`: bindgen lets them follow the other bit fields, where C
                // begins a new unit.
                // SAFETY: The private data of a request has 92 bytes.
                let data =
                    unsafe { core::slice::from_raw_parts(event.private_data.cast::<u8>(), 92) };
                let (head, tail) = data.split_at(64);
                let well = head.iter().all(|byte| *byte == PATTERN)
                    && tail.iter().all(|byte| *byte == 0)
                    && request.retry_count() == 5
                    && request.initiator_depth == 3
                    && request.responder_resources == 0
                    && request.flow_control() == 1
                    // Without a subnet manager: 16 and 2.
                    && request.local_cm_response_timeout() == 18
                    && request.remote_cm_response_timeout() == 18
                    && request.qp_type == bindings::ib_qp_type_IB_QPT_RC
                    && request.starting_psn <= 0x00ff_ffff;
                inner.asked_well.store(well, Relaxed);
                inner.asked.store(true, Release);
                if inner.accepted.load(Relaxed) != 0 {
                    // Only one; the connection manager destroys this one.
                    return -1;
                }
                inner.accepted.store(id.expose_provenance(), Release);
                // SAFETY: The identifier is valid, and has a request to be answered.
                if unsafe { inner.answer(id) }.is_err() {
                    pr_err!("the listener cannot answer\n");
                }
            }
            bindings::ib_cm_event_type_IB_CM_RTU_RECEIVED => inner.established.store(true, Release),
            bindings::ib_cm_event_type_IB_CM_REJ_RECEIVED => inner.rejected.store(true, Release),
            bindings::ib_cm_event_type_IB_CM_DREQ_RECEIVED => {
                // SAFETY: The identifier is valid.
                let _ = unsafe { bindings::ib_send_cm_drep(id, core::ptr::null(), 0) };
                inner.disconnected.store(true, Release);
            }
            bindings::ib_cm_event_type_IB_CM_DREP_RECEIVED => {
                inner.disconnected.store(true, Release)
            }
            _ => {}
        }
        0
    }

    /// Ends the connection.
    pub(super) fn disconnect(&self) {
        let id = core::ptr::with_exposed_provenance_mut(self.inner.accepted.load(Acquire));
        // SAFETY: By the type invariant; the caller has seen it established.
        let _ = unsafe { bindings::ib_send_cm_dreq(id, core::ptr::null(), 0) };
    }

    /// A request has come.
    pub(super) fn was_asked(&self) -> bool {
        self.inner.asked.load(Acquire)
    }

    /// The request was what the tests ask.
    pub(super) fn was_asked_well(&self) -> bool {
        self.was_asked() && self.inner.asked_well.load(Relaxed)
    }

    /// The answer was confirmed.
    pub(super) fn established(&self) -> bool {
        self.inner.established.load(Acquire)
    }

    /// The other side has refused or given up.
    pub(super) fn was_rejected(&self) -> bool {
        self.inner.rejected.load(Acquire)
    }

    /// The connection has ended.
    pub(super) fn disconnected(&self) -> bool {
        self.inner.disconnected.load(Acquire)
    }
}

impl Inner {
    /// # Safety
    ///
    /// `id` must have a request to be answered.
    unsafe fn answer(&self, id: *mut bindings::ib_cm_id) -> Result {
        let data = [PATTERN; 148];
        match self.answer {
            Answer::Accept => {
                let mut param = bindings::ib_cm_rep_param {
                    qp_num: 0x1234,
                    starting_psn: 0x4321,
                    private_data: data.as_ptr().cast(),
                    private_data_len: 64,
                    initiator_depth: 3,
                    rnr_retry_count: 7,
                    ..Default::default()
                };
                // SAFETY: By this function's contract.
                to_result(unsafe { bindings::ib_send_cm_rep(id, &mut param) })
            }
            Answer::Reject(reason, info) => {
                // SAFETY: As above; the arrays are longer than what is taken of them.
                to_result(unsafe {
                    bindings::ib_send_cm_rej(
                        id,
                        reason.into(),
                        data.as_ptr().cast_mut().cast(),
                        info,
                        data.as_ptr().cast(),
                        148,
                    )
                })
            }
            Answer::Silence => Ok(()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; no new request comes after this, as it waits for the last.
        unsafe { bindings::ib_destroy_cm_id(self.id.as_ptr()) };
        let accepted = self.inner.accepted.load(Acquire);
        if accepted != 0 {
            // SAFETY: By the type invariant it is an identifier, which nobody else destroys.
            unsafe { bindings::ib_destroy_cm_id(core::ptr::with_exposed_provenance_mut(accepted)) };
        }
    }
}
