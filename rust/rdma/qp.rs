// SPDX-License-Identifier: GPL-2.0

//! Queue pairs whose completions are callbacks.
//!
//! A queue pair has one completion queue, polled in softirq context on the CPU of its interrupt, so
//! its callbacks never run at the same time as each other. Requests name messages and memory
//! regions of pools that the queue pair holds; completions name what they complete by number.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

mod handler;
mod sizes;

pub use handler::{
    Failure,
    Handler, //
};
pub use sizes::{
    Memory,
    Sizes, //
};

use super::{
    cm,
    dma::{
        Chunk,
        Direction,
        Message,
        Pool, //
    },
    mr::{
        Regions,
        Register,
        MAX_PER_HANDLE, //
    },
    pd::Pd,
    wc::{
        Event,
        Flags,
        Status, //
    },
    wr::{
        cookie,
        invalidate_key,
        request,
        set_receive_cookie,
        Done, //
    }, //
};
use crate::bindings;
use core::{
    cell::UnsafeCell,
    mem::{
        offset_of,
        MaybeUninit, //
    },
    ptr::null_mut,
};
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
            Full,
            Release, //
        },
        Arc,
        UniqueArc, //
    },
};

/// Receives are given back to the device in chains of this many.
pub const RECEIVE_BATCH: usize = 8;

/// A posted receive.
#[repr(C)]
struct Receive {
    cqe: bindings::ib_cqe,
    chunk: Chunk,
}

/// Receives that wait to be given back in one chain.
struct Returned {
    list: [*const Receive; RECEIVE_BATCH],
    count: usize,
}

const LIVE: u32 = 0;
const DRAINING: u32 = 1;
const DRAINED: u32 = 2;

/// A queue pair on a connection identifier.
///
/// # Invariants
///
/// - `cq` is null or a completion queue whose context is this object, which does not move.
/// - `qp` is null or the queue pair of `id`, with `cq` for both directions.
/// - Every posted request names a `cqe` of this object, and memory of `messages`, `receives` or
///   `regions`.
pub struct Qp<H: Handler> {
    qp: *mut bindings::ib_qp,
    cq: *mut bindings::ib_cq,
    state: Atomic<u32>,
    /// For requests whose success nobody waits for.
    send_cqe: bindings::ib_cqe,
    control_cqe: bindings::ib_cqe,
    /// One for each handle, by number.
    invalidate_cqes: KVec<bindings::ib_cqe>,
    receives: KVec<Receive>,
    /// Only used by the callback of a receive, which runs once at a time.
    returned: UnsafeCell<Returned>,
    lkey: u32,
    handler: H,
    // Dropped last: what a posted request can reach.
    messages: Arc<Pool>,
    regions: Arc<Regions>,
    id: Arc<cm::Id<H::Events>>,
    _pd: Arc<Pd>,
}

// SAFETY: The verbs lock for themselves; `returned` is used by one callback at a time, and `H` is
// `Send` and `Sync`.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: As above.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    /// Creates the queue pair of `id`, whose route is resolved, and posts all receives.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the regions serve another queue pair or `id` has or had one, `EINVAL` if `id` is on
    /// another device, the memory is of another domain or a size is beyond the device, otherwise what the device driver says.
    pub fn new(
        pd: &Arc<Pd>,
        id: &Arc<cm::Id<H::Events>>,
        sizes: Sizes,
        memory: Memory,
        handler: H,
    ) -> Result<Arc<Self>> {
        let Memory {
            receives,
            messages,
            regions,
        } = memory;
        let foreign = |chunk: &Chunk| !chunk.pool().is_for(pd, Direction::FromDevice);
        if receives.iter().any(foreign)
            || !messages.is_for(pd, Direction::ToDevice)
            || !regions.is_of(pd)
        {
            return Err(EINVAL);
        }
        let mut list = KVec::with_capacity(receives.len(), GFP_KERNEL)?;
        for chunk in receives {
            let cqe = bindings::ib_cqe {
                done: Some(Self::receive_done),
            };
            list.push(Receive { cqe, chunk }, GFP_KERNEL)?;
        }
        let mut invalidate_cqes = KVec::with_capacity(sizes.handles, GFP_KERNEL)?;
        for _ in 0..sizes.handles {
            let done = Some(Self::invalidate_done as Done);
            invalidate_cqes.push(bindings::ib_cqe { done }, GFP_KERNEL)?;
        }
        id.claim_qp()?;
        regions.bind()?;
        // From here on dropping `this` unbinds the regions.
        let mut this = match UniqueArc::new(
            Self {
                qp: null_mut(),
                cq: null_mut(),
                state: Atomic::new(LIVE),
                send_cqe: bindings::ib_cqe {
                    done: Some(Self::send_done),
                },
                control_cqe: bindings::ib_cqe {
                    done: Some(Self::control_done),
                },
                invalidate_cqes,
                receives: list,
                returned: UnsafeCell::new(Returned {
                    list: [core::ptr::null(); RECEIVE_BATCH],
                    count: 0,
                }),
                lkey: pd.local_dma_lkey(),
                handler,
                messages,
                regions,
                id: id.clone(),
                _pd: pd.clone(),
            },
            GFP_KERNEL,
        ) {
            Ok(this) => this,
            Err(e) => return Err(e.into()),
        };

        let entries = sizes
            .send
            .checked_add(sizes.receive)
            .and_then(|n| n.checked_add(1))
            .and_then(|n| i32::try_from(n).ok())
            .ok_or(EINVAL)?;
        let context: *mut Self = &mut *this;
        // SAFETY: The device is registered. The context stays valid until `ib_free_cq()` in `drop`:
        // the object is on the heap and does not move.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                pd.device().as_raw(),
                context.cast(),
                entries,
                sizes.vector as i32,
                bindings::ib_poll_context_IB_POLL_SOFTIRQ,
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The context of `cq` is this object.
        this.cq = cq;

        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(Self::event),
            qp_context: context.cast(),
            send_cq: cq,
            recv_cq: cq,
            cap: bindings::ib_qp_cap {
                // One more to drain with.
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive + 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The identifier, the domain and the queue are valid; the function copies `attr`.
        to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
        // SAFETY: The identifier is valid, and it has a queue pair now.
        // INVARIANT: `qp` is the queue pair of `id`, with this completion queue.
        this.qp = unsafe { (*id.as_raw()).qp };

        let this: Arc<Self> = this.into();
        for batch in this.receives.chunks(RECEIVE_BATCH) {
            let mut chain = [core::ptr::null(); RECEIVE_BATCH];
            for (entry, receive) in chain.iter_mut().zip(batch) {
                receive.chunk.give(receive.chunk.size());
                *entry = receive;
            }
            this.post_receives(chain.get(..batch.len()).unwrap_or_default())?;
        }
        Ok(this)
    }

    /// The handler.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The connection.
    pub fn id(&self) -> &cm::Id<H::Events> {
        &self.id
    }

    /// Posts `message`, after the registration that it refers to, with one doorbell.
    ///
    /// Does not sleep. Without `signaled` a success is not reported and the place in the send queue
    /// is only recycled by a later completion.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the message or the registration is of another queue pair, otherwise what the
    /// device driver says; a registration may have been posted then, and counts as reachable.
    #[inline]
    pub fn post_send(
        &self,
        register: Option<Register>,
        message: Message,
        signaled: bool,
    ) -> Result {
        self.post(register, message, signaled, &self.send_cqe)
    }

    /// Posts `message` and reports by [`Handler::control_sent`] that its memory is free again.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_send`].
    pub fn post_control(&self, message: Message) -> Result {
        self.post(None, message, true, &self.control_cqe)
    }

    #[inline]
    fn post(
        &self,
        register: Option<Register>,
        message: Message,
        signaled: bool,
        cqe: &bindings::ib_cqe,
    ) -> Result {
        if message.pool != self.messages.id() {
            return Err(EINVAL);
        }
        let mut sge = bindings::ib_sge {
            addr: message.addr,
            length: message.len,
            lkey: self.lkey,
        };
        let flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        let mut send = request(bindings::ib_wr_opcode_IB_WR_SEND, flags, cqe);
        send.sg_list = &mut sge;
        send.num_sge = 1;

        let mut chain = [const { MaybeUninit::<bindings::ib_reg_wr>::uninit() }; MAX_PER_HANDLE];
        let mut first: *const bindings::ib_send_wr = &send;
        if let Some(register) = register {
            // Built from the last to the first, each pointing at the one before it in the loop. The
            // order of registrations does not matter; the message comes last.
            for (place, mr) in chain.iter_mut().zip(self.regions.of_register(&register)?) {
                let opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
                let mut wr = request(opcode, 0, &self.send_cqe);
                wr.next = first.cast_mut();
                // SAFETY: The region is valid while `self.regions` holds it.
                let key = unsafe { (*mr.as_ptr()).rkey };
                let wr = place.write(bindings::ib_reg_wr {
                    wr,
                    mr: mr.as_ptr(),
                    key,
                    access: register.access,
                });
                first = &wr.wr;
            }
        }
        let mut bad = core::ptr::null();
        // SAFETY: By the type invariant the queue pair is valid. The chain ends with `send`; its
        // completions, memory and regions live as long as this object, which drains before it goes.
        to_result(unsafe { bindings::srp_helper_ib_post_send(self.qp, first, &mut bad) })
    }

    /// Posts the invalidation of all regions of `handle` that the peer may reach; the last one
    /// reports by [`Handler::invalidated`]. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// What the device driver says.
    #[inline]
    pub fn post_invalidate(&self, handle: usize) -> Result<bool> {
        let cqe = self.invalidate_cqes.get(handle).ok_or(EINVAL)?;
        let mut chain = [const { MaybeUninit::<bindings::ib_send_wr>::uninit() }; MAX_PER_HANDLE];
        let mut first: *mut bindings::ib_send_wr = null_mut();
        for (place, key) in chain.iter_mut().zip(self.regions.keys(handle)) {
            let opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
            // Built from the last, which is signaled, to the first.
            let mut wr = if first.is_null() {
                request(opcode, bindings::ib_send_flags_IB_SEND_SIGNALED, cqe)
            } else {
                request(opcode, 0, &self.send_cqe)
            };
            wr.next = first;
            *invalidate_key(&mut wr) = key;
            first = place.write(wr);
        }
        if first.is_null() {
            return Ok(false);
        }
        let mut bad = core::ptr::null();
        // SAFETY: By the type invariant the queue pair is valid, and the completions live as long
        // as this object, which drains before it goes.
        to_result(unsafe { bindings::srp_helper_ib_post_send(self.qp, first, &mut bad) })?;
        Ok(true)
    }

    /// Moves the queue pair to its error state and waits until every posted request has completed.
    ///
    /// After that nothing reaches the regions; requests posted later are flushed. May sleep. Only
    /// the first call does the work.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another call is at it.
    pub fn shutdown(&self) -> Result {
        match self.state.cmpxchg(LIVE, DRAINING, Full) {
            Ok(_) => {
                // SAFETY: By the type invariant the queue pair is valid; both queues have one more
                // entry than we use, and so has the completion queue.
                unsafe { bindings::ib_drain_qp(self.qp) };
                self.regions.set_dead();
                self.state.store(DRAINED, Release);
                Ok(())
            }
            Err(DRAINED) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }

    /// [`Self::shutdown`] has done its work.
    pub fn is_shut_down(&self) -> bool {
        self.state.load(Acquire) == DRAINED
    }

    /// Posts up to [`RECEIVE_BATCH`] receives with one doorbell.
    fn post_receives(&self, list: &[*const Receive]) -> Result {
        let mut sges = [const { MaybeUninit::<bindings::ib_sge>::uninit() }; RECEIVE_BATCH];
        let mut chain = [const { MaybeUninit::<bindings::ib_recv_wr>::uninit() }; RECEIVE_BATCH];
        let mut first: *mut bindings::ib_recv_wr = null_mut();
        for ((receive, sge), place) in list.iter().zip(&mut sges).zip(&mut chain).rev() {
            // SAFETY: The list names elements of `self.receives`, which does not change.
            let receive = unsafe { &**receive };
            let sge = sge.write(bindings::ib_sge {
                addr: receive.chunk.addr(),
                length: receive.chunk.size() as u32,
                lkey: self.lkey,
            });
            let mut wr = bindings::ib_recv_wr {
                next: first,
                sg_list: sge,
                num_sge: 1,
                ..Default::default()
            };
            set_receive_cookie(&mut wr, &receive.cqe);
            first = place.write(wr);
        }
        if first.is_null() {
            return Ok(());
        }
        let mut bad = core::ptr::null();
        // SAFETY: By the type invariant the queue pair is valid; the receives and their memory live
        // as long as this object, which drains before it goes.
        to_result(unsafe { bindings::srp_helper_ib_post_recv(self.qp, first, &mut bad) })
    }

    /// # Safety
    ///
    /// `cq` must be the completion queue of a live `Qp<H>`.
    #[inline]
    unsafe fn of<'a>(cq: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: The caller's promise.
        let context = unsafe { (*cq).cq_context };
        // SAFETY: By the type invariant the context is this object; it is not freed before
        // `ib_free_cq()` has returned, which waits for the callbacks.
        unsafe { &*context.cast() }
    }

    fn failed(&self, what: &'static str, status: Status) {
        if !status.is_flush() {
            self.handler.failed(Failure::Request(what, status));
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a receive.
    unsafe extern "C" fn receive_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
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
        this.handler
            .received(this, chunk.take(len), Flags(wc.wc_flags));
        chunk.give(len.min(chunk.size()));
        // SAFETY: Callbacks of one completion queue run one at a time, and nothing else uses it.
        let returned = unsafe { &mut *this.returned.get() };
        if let Some(place) = returned.list.get_mut(returned.count) {
            *place = receive;
            returned.count += 1;
        }
        if returned.count == RECEIVE_BATCH {
            returned.count = 0;
            if let Err(e) = this.post_receives(&returned.list) {
                this.handler.failed(Failure::Post(e));
            }
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for the last invalidation of a handle.
    unsafe extern "C" fn invalidate_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let wc = unsafe { &*wc };
        let status = Status(wc.status);
        if !status.is_success() {
            this.failed("invalidation", status);
            return;
        }
        let base = this.invalidate_cqes.as_ptr();
        // SAFETY: The completion was made from a request of `post_invalidate`, whose cookie is an
        // element of `invalidate_cqes`.
        let handle = unsafe { cookie(wc).offset_from(base) } as usize;
        this.regions.invalidated(handle);
        this.handler.invalidated(this, handle);
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a request that nobody waits for.
    unsafe extern "C" fn send_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The completion is valid for the call.
        let status = Status(unsafe { (*wc).status });
        if !status.is_success() {
            // SAFETY: By this function's contract.
            unsafe { Self::of(cq) }.failed("send", status);
        }
    }

    /// # Safety
    ///
    /// Called by the completion queue of a `Qp<H>` for a request of `post_control`.
    unsafe extern "C" fn control_done(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        // SAFETY: The completion is valid for the call.
        let status = Status(unsafe { (*wc).status });
        if status.is_success() {
            this.handler.control_sent(this);
        } else {
            this.failed("control send", status);
        }
    }

    /// # Safety
    ///
    /// Called by the device driver with the context of a queue pair of a `Qp<H>`.
    unsafe extern "C" fn event(event: *mut bindings::ib_event, context: *mut core::ffi::c_void) {
        // SAFETY: The event is valid for the call.
        let kind = unsafe { (*event).event };
        // SAFETY: The context was set in `new`, and the queue pair is destroyed before it goes.
        let this = unsafe { &*context.cast::<Self>() };
        match kind {
            bindings::ib_event_type_IB_EVENT_COMM_EST => {
                // SAFETY: `id` is valid while `this` holds it. The peer's traffic came before its
                // confirmation; this stands for the confirmation.
                unsafe { bindings::rdma_notify(this.id.as_raw(), kind) };
            }
            bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
            | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
            | bindings::ib_event_type_IB_EVENT_PATH_MIG => {}
            _ => this.handler.failed(Failure::Event(Event(kind))),
        }
    }
}

impl<H: Handler> Drop for Qp<H> {
    fn drop(&mut self) {
        if !self.qp.is_null() {
            // Nobody else has a reference, so nobody is at it.
            let _ = self.shutdown();
            // SAFETY: By the type invariant the identifier has a queue pair, which is drained.
            unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
        }
        if !self.cq.is_null() {
            // SAFETY: By the type invariant the queue is valid, and no queue pair uses it any more.
            unsafe { bindings::ib_free_cq(self.cq) };
        }
        self.regions.unbind();
    }
}
