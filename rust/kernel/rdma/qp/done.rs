// SPDX-License-Identifier: GPL-2.0

//! The handling of a queue pair's completions and events.

use super::{
    cqe::{
        Completion,
        Cqe, //
    },
    Failure,
    Handler,
    Qp,
    QpEvent,
    RECEIVE_BATCH, //
};
use crate::{
    bindings,
    rdma::{
        dma::Chunk,
        wc::{
            Flags,
            Status, //
        },
    },
};
use kernel::sync::atomic::Acquire;

/// A receive, with the memory that it receives into.
pub(super) struct Receive(pub(super) Chunk);

/// The last LOCAL_INV of a handle; contains the number of the handle.
pub(super) struct Invalidate(pub(super) usize);

/// A registration, an invalidation that is not the last one, or
/// [`SendWr::post`](super::SendWr::post). Its success is ignored.
pub(super) struct Sent;

/// A message of [`SendWr::post_control`](super::SendWr::post_control).
pub(super) struct ControlSent;

/// A message of [`SendWr::post_last`](super::SendWr::post_last).
pub(super) struct LastSent;

impl<H: Handler> Completion<H> for Receive {
    const KIND: &'static str = "receive";

    fn done(cqe: &Cqe<Self>, qp: &Qp<H>, wc: &bindings::ib_wc) {
        let Self(chunk) = &cqe.owner;
        let len = wc.byte_len as usize;
        H::received(qp, chunk.received(len), Flags(wc.wc_flags));
        chunk.sync_for_device(len);
        // SAFETY: By the invariant of `Qp` callbacks run one at a time. `connect` uses `returned`
        // only while none runs.
        let returned = unsafe { &mut *qp.returned.get() };
        if let Some(place) = returned.list.get_mut(returned.count) {
            *place = cqe;
            returned.count += 1;
        }
        if returned.count == RECEIVE_BATCH {
            returned.count = 0;
            if let Err(e) = qp.post_receives(&returned.list) {
                H::failed(qp, Failure::Post(e));
            }
        }
    }
}

impl<H: Handler> Completion<H> for Invalidate {
    const KIND: &'static str = "invalidation";

    fn done(cqe: &Cqe<Self>, qp: &Qp<H>, _: &bindings::ib_wc) {
        let Self(handle) = cqe.owner;
        qp.memory.regions.invalidated(handle);
        H::invalidated(qp, handle);
    }
}

impl<H: Handler> Completion<H> for Sent {
    const KIND: &'static str = "send";

    fn done(_: &Cqe<Self>, _: &Qp<H>, _: &bindings::ib_wc) {}
}

impl<H: Handler> Completion<H> for ControlSent {
    const KIND: &'static str = "control send";

    fn done(_: &Cqe<Self>, qp: &Qp<H>, _: &bindings::ib_wc) {
        H::control_sent(qp);
    }
}

impl<H: Handler> Completion<H> for LastSent {
    const KIND: &'static str = "last send";

    fn done(_: &Cqe<Self>, qp: &Qp<H>, _: &bindings::ib_wc) {
        H::last_sent(qp);
    }
}

impl<H: Handler> Qp<H> {
    /// Reports a failed request, except a flush while this side ends the connection. A flushed
    /// request may be the only sign that a queue pair has failed: rxe reports nothing else when it
    /// cannot send a packet.
    pub(super) fn failed(&self, kind: &'static str, status: Status) {
        if !status.is_flush() || !self.ending.load(Acquire) {
            H::failed(self, Failure::Request(kind, status));
        }
    }

    /// # Safety
    ///
    /// Only the device driver may call this, with the context of a queue pair of a `Qp<H>`.
    pub(super) unsafe extern "C" fn event(
        event: *mut bindings::ib_event,
        context: *mut core::ffi::c_void,
    ) {
        // SAFETY: The event is valid for the call.
        let kind = unsafe { (*event).event };
        // SAFETY: `connect` has set the context to the `Qp`, which outlives the queue pair.
        let this = unsafe { &*context.cast::<Self>() };
        match kind {
            // `COMM_EST` matters only to the passive side of a connection.
            bindings::ib_event_type_IB_EVENT_COMM_EST
            | bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
            | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
            | bindings::ib_event_type_IB_EVENT_PATH_MIG => {}
            _ => H::failed(this, Failure::Event(QpEvent(kind))),
        }
    }
}
