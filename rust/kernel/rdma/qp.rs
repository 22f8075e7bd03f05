// SPDX-License-Identifier: GPL-2.0

//! Queue pairs with completion callbacks.
//!
//! A [`Qp`] has one completion queue. The queue is polled on the CPU of its interrupt, or by its
//! pollers, one at a time, so callbacks never run concurrently.
//!
//! Requests are posted with a [`LiveQp`], which is the queue pair within an RCU read-side section.
//! They use memory and regions of the [`Qp`], and belong to one connection. Completions identify
//! handles by number.
//!
//! A [`Qp`] serves one connection after the other: [`Qp::create`], [`Qp::shutdown`],
//! [`Qp::destroy`]. Each has a new `struct ib_qp` on a new identifier, the same memory and regions,
//! and the same completion queue unless the last connection was not drained.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).
//!
//! # Examples
//!
//! ```
//! use ib_srp::{
//!     dma::{DataDirection, ScatterList},
//!     rdma::{
//!         dma::{Chunk, Pool},
//!         mr::{Handle, Regions},
//!         pd::Pd,
//!         qp::{Failure, Handler, Memory, PollContext, Qp, Sizes},
//!         wc::Flags,
//!     },
//! };
//! use kernel::{
//!     prelude::*,
//!     sync::{
//!         atomic::{Atomic, Relaxed},
//!         Arc,
//!     },
//! };
//!
//! struct Received(Atomic<i32>);
//!
//! impl Handler for Received {
//!     fn received(qp: &Qp<Self>, _message: &[u8], _: Flags) {
//!         qp.0.add(1, Relaxed);
//!     }
//!
//!     fn invalidated(_: &Qp<Self>, _handle: usize) {
//!         // Returns the memory of the handle to its owner.
//!     }
//!
//!     fn control_sent(_: &Qp<Self>) {}
//!
//!     fn last_sent(_: &Qp<Self>) {}
//!
//!     fn failed(_: &Qp<Self>, _: Failure) {
//!         // Queues a work item that ends the connection.
//!     }
//! }
//!
//! /// A queue pair, its messages, and handles for memory that its peer may access.
//! type Endpoint<T> = (Arc<Qp<Received>>, KVVec<Chunk>, KVVec<Handle<T>>);
//!
//! fn endpoint<T: ScatterList>(pd: &Arc<Pd>) -> Result<Endpoint<T>> {
//!     let (_, receives) = Pool::new(pd, 16, 256, DataDirection::FromDevice)?;
//!     let (messages, chunks) = Pool::new(pd, 16, 256, DataDirection::ToDevice)?;
//!     let (regions, handles) = Regions::new(pd, 16, 1)?;
//!     let sizes = Sizes {
//!         // Per message: send, registration, invalidation. One more to drain.
//!         send: 3 * 16 + 1,
//!         send_sge: 1,
//!         receive: 16,
//!         vector: 0,
//!         context: PollContext::Interrupt,
//!         handles: 16,
//!     };
//!     let memory = Memory {
//!         receives,
//!         messages,
//!         data: None,
//!         regions,
//!         fixed: None,
//!     };
//!     let qp = Qp::new(pd, sizes, memory, Received(Atomic::new(0)))?;
//!     Ok((qp, chunks, handles))
//! }
//! ```

mod cqe;
mod done;
mod end;
mod event;
mod handler;
mod poll;
mod post;
mod posted_memory;
mod sizes;

pub use event::QpEvent;
pub use handler::{
    Failure,
    Handler, //
};
pub use post::{
    Invalidation,
    LiveQp,
    SendWr, //
};
pub use sizes::{
    Memory,
    Sizes, //
};

pub use super::cq::PollContext;

use super::{
    cm_id::{
        destroy,
        CmId, //
    },
    cq::Cq,
    dma::Chunk,
    pd::Pd, //
};
use crate::{
    bindings,
    dma::DataDirection,
    errno::ESHUTDOWN,
    sync::{
        GracePeriod,
        WaitQueue, //
    }, //
};
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use cqe::Cqe;
use done::{
    ControlSent,
    Invalidate,
    LastSent,
    Receive,
    Sent, //
};
use end::Flushes;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};
use poll::PolledCq;
use posted_memory::PostedMemory;

/// Number of receives that are reposted in one chain.
pub const RECEIVE_BATCH: usize = 8;

/// Receives to repost in one chain, on separate cache lines: the command path only reads the other
/// fields.
#[repr(align(64))]
struct Returned {
    list: [*const Cqe<Receive>; RECEIVE_BATCH],
    count: usize,
}

/// A queue pair and the identifier that it was created on.
struct Connected {
    /// `None` once the queue pair is destroyed.
    qp: Option<NonNull<bindings::ib_qp>>,
    cm_id: Arc<dyn CmId>,
    /// The grace period that began when `Qp::qp` was cleared.
    retired: Option<GracePeriod>,
}

/// A queue pair, created or not. Dropping the last reference [finishes](Self::finish) it, which
/// sleeps and must not happen in a callback of the queue pair.
///
/// # Invariants
///
/// - The context of `cq` is this object, which is pinned.
/// - `qp` is null or the queue pair of `connected`, with `cq` for both directions. It is read under
///   RCU; the queue pair is destroyed a grace period after `qp` is cleared. Regions are
///   deregistered or replaced only after that.
/// - Callbacks run one at a time, as those of `cq` do. If `cq` is polled, they run with `polled`
///   locked, which contains `cq` or null.
/// - While `drained` is set, nothing accesses what `memory` holds, and no callback runs. Only a
///   `forsaken` queue pair may access its messages and `fixed` until the device is removed: they
///   are kept until then, and there is no other connection. If completions may be left, `cq` is
///   stopped and the next [`Self::create`] replaces it, so later completions are of the new
///   connection.
/// - Posted requests use only completion entries, pools and regions of `memory`.
#[pin_data(PinnedDrop)]
pub struct Qp<H: Handler> {
    qp: Atomic<*mut bindings::ib_qp>,
    /// Locked inside `connected`.
    #[pin]
    cq: Mutex<Pin<KBox<Cq>>>,
    /// There is no queue pair, or nothing more completes on it.
    drained: Atomic<bool>,
    /// This side is ending the connection: flushed requests are not failures.
    ending: Atomic<bool>,
    #[pin]
    connected: Mutex<Option<Connected>>,
    /// Woken when a drain request completes.
    #[pin]
    flushed: WaitQueue,
    sizes: Sizes,
    /// The completion queue, if it is a polled one.
    #[pin]
    polled: PolledCq,
    /// Set by `finish`: the queue pair is never created again.
    finished: Atomic<bool>,
    /// The device may still have a destroyed queue pair, and access `memory`.
    forsaken: Atomic<bool>,
    /// Used by receive callbacks, which run one at a time, and by `create` while none runs.
    returned: UnsafeCell<Returned>,
    handler: H,
    // Dropped after `cq`, which runs no callback by then.
    memory: PostedMemory,
    pd: Arc<Pd>,
}

// SAFETY: The verbs do their own locking; `returned` is used by one callback at a time, and `H` is
// `Send` and `Sync`.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: All data that a shared queue pair changes is atomic, under a lock, or `returned`, which
// one callback at a time uses.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    /// Makes the completion queue and takes the memory of a queue pair to create. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the memory is of another domain or does not match the sizes, or a size is too
    /// large, otherwise the error of the device driver.
    pub fn new(pd: &Arc<Pd>, sizes: Sizes, memory: Memory, handler: H) -> Result<Arc<Self>> {
        let Memory {
            receives,
            messages,
            data,
            regions,
            fixed,
        } = memory;
        let foreign = |chunk: &Chunk| !chunk.pool().is_for(pd, DataDirection::FromDevice);
        if receives.iter().any(foreign)
            || !messages.is_for(pd, DataDirection::ToDevice)
            || !regions.is_of(pd)
            || data
                .as_ref()
                .is_some_and(|pool| !pool.is_for(pd, DataDirection::ToDevice))
            || fixed.as_ref().is_some_and(|mr| !mr.is_of(pd))
            || receives.len() != sizes.receive as usize
            || sizes.send_sge < 1 + u32::from(data.is_some())
        {
            return Err(EINVAL);
        }
        let mut list = KVVec::with_capacity(receives.len(), GFP_KERNEL)?;
        for chunk in receives {
            list.push(Cqe::new::<H>(Receive(chunk)), GFP_KERNEL)?;
        }
        let mut invalidates = KVVec::with_capacity(sizes.handles, GFP_KERNEL)?;
        for handle in 0..sizes.handles {
            invalidates.push(Cqe::new::<H>(Invalidate(handle)), GFP_KERNEL)?;
        }
        let memory = PostedMemory {
            sent: Cqe::new::<H>(Sent),
            control_sent: Cqe::new::<H>(ControlSent),
            last_sent: Cqe::new::<H>(LastSent),
            flushes: core::array::from_fn(|_| Flushes::new::<H>()),
            invalidates,
            receives: list,
            messages,
            data,
            regions,
            fixed,
            lkey: pd.local_dma_lkey(),
        };
        Arc::pin_init(
            // INVARIANT: `qp` is null, and the context of `cq` is the address of this object.
            try_pin_init!(&this in Self {
                qp: Atomic::new(null_mut()),
                cq <- new_mutex!(new_cq(pd, this.as_ptr().cast(), &sizes)?, "Qp::cq"),
                drained: Atomic::new(true),
                ending: Atomic::new(true),
                connected <- new_mutex!(None, "Qp::connected"),
                flushed <- WaitQueue::new(),
                sizes,
                polled <- PolledCq::new(),
                finished: Atomic::new(false),
                forsaken: Atomic::new(false),
                returned: UnsafeCell::new(Returned {
                    list: [core::ptr::null(); RECEIVE_BATCH],
                    count: 0,
                }),
                handler,
                memory,
                pd: pd.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Replaces the regions if the peer may still have keys of them from the last connection. Until
    /// then no other queue pair of the domain can connect, as a key is valid on each of them. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a queue pair or such a region is mapped, otherwise the error of the
    /// device driver.
    pub fn renew_regions(&self) -> Result {
        let connected = self.connected.lock();
        if connected.is_some() {
            return Err(EBUSY);
        }
        self.memory.regions.bind()?;
        self.memory.regions.unbind();
        Ok(())
    }

    /// Creates a queue pair on `cm_id`, which has a resolved route, and posts all receives.
    ///
    /// Replaces regions that the last connection left in an unknown state, and a stopped completion
    /// queue. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one already, if the regions serve another queue pair, if one of them is
    /// still mapped, or if another queue pair of the domain must [renew](Self::renew_regions) its
    /// own first; `ESHUTDOWN` if it is [finished](Self::finish),
    /// `ENODEV` if the device may still have the last queue pair, otherwise the errors of
    /// [`CmId::create_qp`] and of the device driver. On error the queue pair does not change.
    pub fn create(&self, cm_id: Arc<dyn CmId>) -> Result {
        let mut connected = self.connected.lock();
        if self.finished.load(Acquire) {
            return Err(ESHUTDOWN);
        }
        if connected.is_some() {
            return Err(EBUSY);
        }
        if self.forsaken.load(Acquire) {
            return Err(ENODEV);
        }
        if let Some(mr) = &self.memory.fixed {
            mr.renew()?;
        }
        let cq = self.ready_cq()?;
        self.memory.regions.bind()?;
        if let Err(e) = self.pd.begin() {
            self.memory.regions.unbind();
            return Err(e);
        }
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(Self::event),
            qp_context: core::ptr::from_ref(self).cast_mut().cast(),
            send_cq: cq,
            recv_cq: cq,
            cap: bindings::ib_qp_cap {
                // One more receive for the drain request; `send` includes that of the send queue.
                max_send_wr: self.sizes.send,
                max_recv_wr: self.sizes.receive + 1,
                max_send_sge: self.sizes.send_sge,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: `cq` is of the device of `pd`. It is freed after the queue pair, which
        // `destroy` and `give_up` destroy after `release_qp`.
        let qp = match unsafe { cm_id.create_qp(&self.pd, &mut attr) } {
            Ok(qp) => qp,
            Err(e) => {
                self.pd.drained();
                self.memory.regions.unbind();
                return Err(e);
            }
        };
        // SAFETY: The last queue pair is drained, so by the type invariant no callback of it runs,
        // and the new one has nothing posted.
        unsafe { (*self.returned.get()).count = 0 };
        self.ending.store(false, Release);
        // INVARIANT: `qp` becomes the queue pair of `connected`, which uses `cq`.
        self.qp.store(qp.as_ptr(), Release);
        *connected = Some(Connected {
            qp: Some(qp),
            cm_id,
            retired: None,
        });
        self.drained.store(false, Release);
        for batch in self.memory.receives.chunks(RECEIVE_BATCH) {
            let mut chain = [core::ptr::null(); RECEIVE_BATCH];
            for (entry, receive) in chain.iter_mut().zip(batch) {
                let Receive(chunk) = &receive.owner;
                chunk.sync_for_device(chunk.size());
                *entry = receive;
            }
            if let Err(e) = self.post_receives(chain.get(..batch.len()).unwrap_or_default()) {
                drop(connected);
                self.destroy();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Tells the peer that the connection ends, if there is one. May sleep.
    pub fn hang_up(&self) {
        self.ending.store(true, Release);
        // Disconnect without the lock, as the identifier may call its handler.
        let cm_id = self.connected.lock().as_ref().map(|c| c.cm_id.clone());
        if let Some(cm_id) = cm_id {
            cm_id.disconnect();
        }
    }

    /// Drains the queue pair, if not yet done, and makes [`Self::live`] fail. The grace period that
    /// [`Self::destroy`] waits for begins here, so that queue pairs share it. May sleep.
    pub fn retire(&self) {
        if let Some(connected) = &mut *self.connected.lock() {
            self.drain(connected);
            let _ = self.hide(connected);
        }
    }

    /// [Retires](Self::retire) the queue pair, if not yet done, destroys it, and drops its
    /// identifier. May sleep, for an RCU grace period among others.
    pub fn destroy(&self) {
        self.retire();
        // The lock makes a second call wait for the end of the first.
        let mut connected = self.connected.lock();
        // Another CPU may have destroyed the queue pair and created it again.
        let retired = |c: &mut Connected| c.retired.is_some();
        if let Some(Connected { qp, cm_id, retired }) = connected.take_if(retired) {
            if let Some(grace_period) = retired {
                grace_period.wait();
            }
            cm_id.release_qp();
            if let Some(qp) = qp {
                // SAFETY: `qp` was just taken from `connected`, and its identifier has released it.
                // By the type invariant it is unused a grace period after `Qp::qp` was cleared.
                unsafe { destroy(self.pd.device(), qp) };
            }
            self.memory.regions.unbind();
            // Drop the identifier without the lock, as the drop waits for its event handler.
            drop(connected);
            drop(cm_id);
        }
    }

    /// Moves the queue pair to its error state and waits until every posted request has completed.
    /// If the device keeps refusing, destroys the queue pair and deregisters its regions instead,
    /// provided that this guarantees the end of access; outstanding requests then get no callback.
    /// A device whose [`Health`](crate::rdma::device::Health) has failed gets fewer attempts.
    ///
    /// After this, nothing reaches the regions; requests posted later are flushed or refused. May
    /// sleep, without a deadline if the device does neither. Does nothing if the queue pair is not
    /// connected or is shut down.
    pub fn shutdown(&self) {
        // The lock prevents the destruction of the queue pair meanwhile.
        if let Some(connected) = &mut *self.connected.lock() {
            self.drain(connected);
        }
    }
}

/// Creates a completion queue of these sizes, with `context` for its callbacks. May sleep.
fn new_cq(pd: &Arc<Pd>, context: *mut c_void, sizes: &Sizes) -> Result<Pin<KBox<Cq>>> {
    // One more for the drain request of the receive queue; `send` includes that of the send queue.
    let entries = sizes
        .send
        .checked_add(sizes.receive)
        .and_then(|n| n.checked_add(1))
        .and_then(|n| i32::try_from(n).ok())
        .ok_or(EINVAL)?;
    KBox::pin_init(
        Cq::new(pd, context, entries, sizes.vector, sizes.context),
        GFP_KERNEL,
    )
}

impl<H: Handler> Qp<H> {
    /// Returns a completion queue without completions of another connection. Called with
    /// `connected` locked.
    fn ready_cq(&self) -> Result<*mut bindings::ib_cq> {
        let mut cq = self.cq.lock();
        if cq.is_stopped() {
            *cq = new_cq(
                &self.pd,
                core::ptr::from_ref(self).cast_mut().cast(),
                &self.sizes,
            )?;
        }
        if self.is_polled() {
            // INVARIANT: `polled` becomes the locked `cq`.
            self.polled.set(cq.as_raw());
        }
        Ok(cq.as_raw())
    }

    /// Stops the callbacks: running ones have ended when this returns, and no more begin. The
    /// softirq or work item has ended after the returned grace period. Called with `connected`
    /// locked. Sleeps.
    fn stop_cq(&self) -> GracePeriod {
        if self.is_polled() {
            // INVARIANT: `polled` becomes null.
            self.polled.set(null_mut());
        }
        self.cq.lock().stop()
    }
}

impl<H: Handler> Qp<H> {
    /// [Destroys](Self::destroy) it and permanently stops completions. The grace period that the
    /// drop waits for begins here, so that several queue pairs share one. May sleep.
    pub fn finish(&self) -> GracePeriod {
        self.destroy();
        // Locked against a concurrent `create`.
        let _connected = self.connected.lock();
        self.finished.store(true, Release);
        self.stop_cq()
    }
}

/// A queue pair dereferences to its handler.
impl<H: Handler> Deref for Qp<H> {
    type Target = H;

    #[inline(always)]
    fn deref(&self) -> &H {
        &self.handler
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for Qp<H> {
    fn drop(self: Pin<&mut Self>) {
        let _ = self.finish();
        self.wait_going();
    }
}
