// SPDX-License-Identifier: GPL-2.0

//! The callbacks of a queue pair and its completion queue.

use super::{
    reach::Receive,
    Failure,
    Handler,
    Qp,
    QpEvent,
    RECEIVE_BATCH, //
};
use crate::{
    bindings,
    rdma::{
        wc::{
            Flags,
            Status, //
        },
        wr::cookie, //
    },
};
use core::mem::offset_of;
use kernel::sync::atomic::Acquire;

impl<H: Handler> Qp<H> {
    /// # Safety
    ///
    /// `cq` must be the completion queue of a live `Qp<H>`.
    #[inline]
    unsafe fn of<'a>(cq: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: The caller's promise.
        let context = unsafe { (*cq).cq_context };
        // SAFETY: By the type invariant the context is this object, which goes after its completion queue; and
        // that waits for the callbacks.
        unsafe { &*context.cast() }
    }

    /// A flushed request may be all that is heard of a queue pair that failed: rxe, when it cannot
    /// send a packet, says nothing else.
    fn failed(&self, what: &'static str, status: Status) {
        if !status.is_flush() || !self.ending.load(Acquire) {
            H::failed(self, Failure::Request(what, status));
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a receive.
    pub(super) unsafe extern "C" fn receive_done(
        cq: *mut bindings::ib_cq,
        wc: *mut bindings::ib_wc,
    ) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let wc = unsafe { &*wc };
        let status = Status(wc.status);
        if !status.is_success() {
            this.failed("receive", status);
            return;
        }
        // SAFETY: The completion was made from a request of `post_receives`, whose cookie is the
        // `cqe` of a `Receive`.
        let receive = unsafe {
            cookie(wc)
                .byte_sub(offset_of!(Receive, cqe))
                .cast::<Receive>()
        };
        // SAFETY: It is an element of `receives`, which lives as long as `this`.
        let chunk = unsafe { &(*receive).chunk };
        let len = wc.byte_len as usize;
        H::received(this, chunk.received(len), Flags(wc.wc_flags));
        chunk.sync_for_device(len);
        // SAFETY: By the type invariant the callbacks run one at a time, and nothing else uses it.
        let returned = unsafe { &mut *this.returned.get() };
        if let Some(place) = returned.list.get_mut(returned.count) {
            *place = receive;
            returned.count += 1;
        }
        if returned.count == RECEIVE_BATCH {
            returned.count = 0;
            if let Err(e) = this.post_receives(&returned.list) {
                H::failed(this, Failure::Post(e));
            }
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for the last invalidation of a handle.
    pub(super) unsafe extern "C" fn invalidate_done(
        cq: *mut bindings::ib_cq,
        wc: *mut bindings::ib_wc,
    ) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let wc = unsafe { &*wc };
        let status = Status(wc.status);
        if !status.is_success() {
            this.failed("invalidation", status);
            return;
        }
        let base = this.reach.invalidate_cqes.as_ptr();
        // SAFETY: The completion was made from a request of `Live::invalidate`, whose cookie is an
        // element of `invalidate_cqes`.
        let handle = unsafe { cookie(wc).offset_from(base) } as usize;
        this.reach.regions.invalidated(handle);
        H::invalidated(this, handle);
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a request that nobody waits for.
    pub(super) unsafe extern "C" fn send_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The completion is valid for the call.
        let status = Status(unsafe { (*wc).status });
        if !status.is_success() {
            // SAFETY: By this function's contract.
            unsafe { Self::of(cq) }.failed("send", status);
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a request of `SendWr::post_control`.
    pub(super) unsafe extern "C" fn control_done(
        cq: *mut bindings::ib_cq,
        wc: *mut bindings::ib_wc,
    ) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let status = Status(unsafe { (*wc).status });
        if status.is_success() {
            H::control_sent(this);
        } else {
            this.failed("control send", status);
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a request of `SendWr::post_last`.
    pub(super) unsafe extern "C" fn last_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let status = Status(unsafe { (*wc).status });
        if status.is_success() {
            H::last_sent(this);
        } else {
            this.failed("last send", status);
        }
    }

    /// # Safety
    ///
    /// Called by the device driver with the context of a queue pair of a `Qp<H>`.
    pub(super) unsafe extern "C" fn event(
        event: *mut bindings::ib_event,
        context: *mut core::ffi::c_void,
    ) {
        // SAFETY: The event is valid for the call.
        let kind = unsafe { (*event).event };
        // SAFETY: The context was set in `connect`, and the queue pair is destroyed before it goes.
        let this = unsafe { &*context.cast::<Self>() };
        match kind {
            // The first matters to the passive side of a connection only.
            bindings::ib_event_type_IB_EVENT_COMM_EST
            | bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
            | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
            | bindings::ib_event_type_IB_EVENT_PATH_MIG => {}
            _ => H::failed(this, Failure::Event(QpEvent(kind))),
        }
    }
}
