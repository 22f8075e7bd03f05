// SPDX-License-Identifier: GPL-2.0

//! Queue pairs whose completions are callbacks.
//!
//! A [`Qp`] has one completion queue, polled in softirq context on the CPU of its interrupt, or by those
//! who wait, one after the other; so its callbacks never run at the same time as each other.
//!
//! Requests are made with a [`Live`], the queue pair in an RCU read-side section: from memory and regions that the [`Qp`]
//! holds, for this connection only. Completions name what they complete by number.
//!
//! It is connected, shut down, disconnected, and may be connected again: each time with a new
//! `struct ib_qp` on a new identifier, but with the same completion queue, memory and regions.
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
//!         qp::{Failure, Handler, Memory, Qp, Sizes},
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
//!         // Memory of the handle goes back to its owner.
//!     }
//!
//!     fn control_sent(_: &Qp<Self>) {}
//!
//!     fn last_sent(_: &Qp<Self>) {}
//!
//!     fn failed(_: &Qp<Self>, _: Failure) {
//!         // Queues a work item, which ends the connection.
//!     }
//! }
//!
//! /// A queue pair, messages for it, and handles for memory that its peer shall reach.
//! type Endpoint<T> = (Arc<Qp<Received>>, KVVec<Chunk>, KVVec<Handle<T>>);
//!
//! fn endpoint<T: ScatterList>(pd: &Arc<Pd>) -> Result<Endpoint<T>> {
//!     let (_, receives) = Pool::new(pd, 16, 256, DataDirection::FromDevice)?;
//!     let (messages, chunks) = Pool::new(pd, 16, 256, DataDirection::ToDevice)?;
//!     let (regions, handles) = Regions::new(pd, 16, 1)?;
//!     let sizes = Sizes {
//!         // A message, its registration and its invalidation, and one to drain with.
//!         send: 3 * 16 + 1,
//!         send_sge: 1,
//!         receive: 16,
//!         vector: 0,
//!         polled: false,
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
mod event;
mod handler;
mod poll;
mod post;
mod reach;
mod sizes;

pub use event::QpEvent;
pub use handler::{
    Failure,
    Handler, //
};
pub use post::{
    Invalidation,
    Live,
    SendWr, //
};
pub use sizes::{
    Memory,
    Sizes, //
};

use super::{
    cq::Cq,
    dma::Chunk,
    link::Link,
    pd::Pd, //
};
use crate::{
    bindings,
    dma::DataDirection,
    errno::ESHUTDOWN,
    sync::GracePeriod, //
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
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use poll::PollLock;
use reach::Reach;

/// Receives are given back to the device in chains of this many.
pub const RECEIVE_BATCH: usize = 8;

/// The pause before a device is told once more to stop a queue pair.
const STOP_AGAIN: Delta = Delta::from_millis(500);

/// Receives that wait to be given back in one chain. On cache lines of its own, as the rest of a queue pair is
/// only read by commands.
#[repr(align(64))]
struct Returned {
    list: [*const Cqe<Receive>; RECEIVE_BATCH],
    count: usize,
}

/// A queue pair and what it is made on.
struct Connected {
    qp: NonNull<bindings::ib_qp>,
    link: Arc<dyn Link>,
    /// Since then nobody finds it.
    retired: Option<GracePeriod>,
}

/// A queue pair, whether it is connected or not. The drop of the last reference [finishes](Self::finish) it; it sleeps, and
/// must not happen in a callback of the queue pair.
///
/// # Invariants
///
/// - The context of `cq` is this object, which is pinned.
/// - `qp` is null or that of `connected`, with `cq` for both directions. It is read under RCU, and
///   destroyed a grace period after it was cleared, drained. Only then regions are replaced.
/// - The callbacks run in the softirq of `cq`, one after the other, or if it is polled with `poll_lock`
///   held.
/// - Every posted request names a `cqe`, memory and regions of `reach`.
#[pin_data(PinnedDrop)]
pub struct Qp<H: Handler> {
    qp: Atomic<*mut bindings::ib_qp>,
    #[pin]
    cq: Cq,
    /// There is no queue pair, or nothing completes on it any more.
    drained: Atomic<bool>,
    /// This side is ending the connection: that requests are flushed means nothing.
    ending: Atomic<bool>,
    #[pin]
    connected: Mutex<Option<Connected>>,
    sizes: Sizes,
    /// For a polled completion queue.
    poll_lock: PollLock,
    /// Only used by the callback of a receive, which runs once at a time.
    returned: UnsafeCell<Returned>,
    handler: H,
    // Goes after `cq`, which has no callback any more then.
    reach: Reach,
    pd: Arc<Pd>,
}

// SAFETY: The verbs lock for themselves; `returned` is used by one callback at a time, and `H` is
// `Send` and `Sync`.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: See `Send`: what a shared queue pair changes of itself is atomic, under a lock, or `returned`.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    /// Makes the completion queue and takes the memory; not connected yet. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the memory is of another domain or a size is beyond the device, otherwise what the
    /// device driver says.
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
        let entries = sizes
            .send
            .checked_add(sizes.receive)
            .and_then(|n| n.checked_add(1))
            .and_then(|n| i32::try_from(n).ok())
            .ok_or(EINVAL)?;
        let reach = Reach {
            sent: Cqe::new::<H>(Sent),
            control_sent: Cqe::new::<H>(ControlSent),
            last_sent: Cqe::new::<H>(LastSent),
            invalidates,
            receives: list,
            messages,
            data,
            regions,
            fixed,
            lkey: pd.local_dma_lkey(),
        };
        Arc::pin_init(
            // INVARIANT: There is no queue pair, and the queue's context is the object's place.
            try_pin_init!(&this in Self {
                qp: Atomic::new(null_mut()),
                cq <- Cq::new(pd, this.as_ptr().cast(), entries, sizes.vector, sizes.polled),
                drained: Atomic::new(true),
                ending: Atomic::new(true),
                connected <- new_mutex!(None, "Qp::connected"),
                sizes,
                poll_lock: PollLock::new(),
                returned: UnsafeCell::new(Returned {
                    list: [core::ptr::null(); RECEIVE_BATCH],
                    count: 0,
                }),
                handler,
                reach,
                pd: pd.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Makes the regions anew whose keys the peer may have from the last connection. Before that no other queue pair
    /// of the domain can be connected, as a key is good on each. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is connected or a region is still mapped, otherwise what the device driver says.
    pub fn renew_regions(&self) -> Result {
        let connected = self.connected.lock();
        if connected.is_some() {
            return Err(EBUSY);
        }
        self.reach.regions.bind()?;
        self.reach.regions.unbind();
        Ok(())
    }

    /// Creates a queue pair on `link`, whose route is resolved, and posts all receives.
    ///
    /// Regions that the last connection left in an unknown state are made anew. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is connected, if the regions serve another queue pair, or one of them is still
    /// mapped, or if another queue pair of the domain must [renew](Self::renew_regions) its own before; `ESHUTDOWN` if it is
    /// [finished](Self::finish), otherwise those of [`Link::create_qp`] and of the device driver. It is as it was then.
    pub fn connect(&self, link: Arc<dyn Link>) -> Result {
        let mut connected = self.connected.lock();
        if self.cq.is_stopped() {
            return Err(ESHUTDOWN);
        }
        if connected.is_some() {
            return Err(EBUSY);
        }
        if let Some(mr) = &self.reach.fixed {
            mr.renew()?;
        }
        self.reach.regions.bind()?;
        if let Err(e) = self.pd.begin() {
            self.reach.regions.unbind();
            return Err(e);
        }
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(Self::event),
            qp_context: core::ptr::from_ref(self).cast_mut().cast(),
            send_cq: self.cq.as_raw(),
            recv_cq: self.cq.as_raw(),
            cap: bindings::ib_qp_cap {
                // One more to drain with.
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
        // SAFETY: The queue is one of the domain's device, and is freed after the queue pair.
        let qp = match unsafe { link.create_qp(&self.pd, &mut attr) } {
            Ok(qp) => qp,
            Err(e) => {
                self.pd.drained();
                self.reach.regions.unbind();
                return Err(e);
            }
        };
        // SAFETY: The last queue pair is drained, which its callbacks came before, and the new one
        // has nothing posted.
        unsafe { (*self.returned.get()).count = 0 };
        self.empty();
        self.ending.store(false, Release);
        // INVARIANT: It is that of `connected`, with this completion queue.
        self.qp.store(qp.as_ptr(), Release);
        *connected = Some(Connected {
            qp,
            link,
            retired: None,
        });
        self.drained.store(false, Release);
        for batch in self.reach.receives.chunks(RECEIVE_BATCH) {
            let mut chain = [core::ptr::null(); RECEIVE_BATCH];
            for (entry, receive) in chain.iter_mut().zip(batch) {
                let Receive(chunk) = &receive.owner;
                chunk.sync_for_device(chunk.size());
                *entry = receive;
            }
            if let Err(e) = self.post_receives(chain.get(..batch.len()).unwrap_or_default()) {
                drop(connected);
                self.disconnect();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Tells the peer that the connection ends, if there is one. May sleep.
    pub fn hang_up(&self) {
        self.ending.store(true, Release);
        // Not under the lock, as the identifier may call its handler.
        let link = self.connected.lock().as_ref().map(|c| c.link.clone());
        if let Some(link) = link {
            link.disconnect();
        }
    }

    /// Drains the queue pair if that has not been done, and has nobody else find it. The grace period that
    /// [`Self::disconnect`] waits for begins here, so that many have one together. May sleep.
    pub fn retire(&self) {
        if let Some(connected) = &mut *self.connected.lock() {
            self.drain(connected.qp);
            if connected.retired.is_none() {
                // INVARIANT: It is drained, and destroyed after a grace period.
                self.qp.store(null_mut(), Release);
                connected.retired = Some(GracePeriod::begin());
            }
        }
    }

    /// [Retires](Self::retire) the queue pair if that has not been done, destroys it, and lets go of what it
    /// was made on. May sleep, for an RCU grace period among others.
    pub fn disconnect(&self) {
        self.retire();
        // The lock makes a second call wait for the end of the first.
        let mut connected = self.connected.lock();
        // Another call may have been faster, and another queue pair be there.
        let retired = |c: &mut Connected| c.retired.is_some();
        if let Some(Connected { qp, link, retired }) = connected.take_if(retired) {
            if let Some(grace_period) = retired {
                grace_period.wait();
            }
            // SAFETY: It came from this identifier and was taken from `connected` just now. By the
            // type invariant nobody uses it a grace period after `qp` was cleared.
            unsafe { link.destroy_qp(qp) };
            self.reach.regions.unbind();
            // Without the lock: it waits for the identifier's handler.
            drop(connected);
            drop(link);
        }
    }

    /// Moves the queue pair to its error state and waits until every posted request has completed.
    ///
    /// After that nothing reaches the regions; requests posted later are flushed. May sleep. Does
    /// nothing if it is not connected or has been done.
    pub fn shutdown(&self) {
        // The lock keeps the queue pair from being destroyed meanwhile.
        if let Some(connected) = &*self.connected.lock() {
            self.drain(connected.qp);
        }
    }

    #[cfg(all(SRP_KUNIT, CONFIG_KUNIT))]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.qp.load(Acquire)
    }

    /// Called with `connected` locked, which had this queue pair.
    fn drain(&self, qp: NonNull<bindings::ib_qp>) {
        if self.drained.load(Acquire) {
            return;
        }
        self.ending.store(true, Release);
        self.stop(qp);
        // Draining polls such a queue as well; its pause between two polls is 0.1 s, for each direction.
        let _guard = self.is_polled().then(|| self.poll_lock.lock());
        // What completes during the first may post something behind it; nothing does after that. A
        // polled queue is polled until it is empty.
        for _ in 0..if self.is_polled() { 1 } else { 2 } {
            // SAFETY: The caller has it from `connected`, so it is valid; both queues have one more entry
            // than we use, and so has the completion queue.
            unsafe { bindings::ib_drain_qp(qp.as_ptr()) };
        }
        // In this order, see `Pd`.
        self.reach.regions.set_dead();
        self.drained.store(true, Release);
        self.pd.drained();
    }

    /// Moves the queue pair to its error state. `ib_drain_qp()` goes on without, and would leave memory to others
    /// that a peer can still write to. So this has no deadline: a device that does not take the command is reset
    /// by its driver, which then takes it, or is removed.
    fn stop(&self, qp: NonNull<bindings::ib_qp>) {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        let mut said = false;
        loop {
            // SAFETY: The caller has it from `connected`, so it is valid.
            match unsafe { bindings::ib_modify_qp(qp.as_ptr(), &mut attr, mask) } {
                0 => return,
                e if !said => pr_err!(
                    "{}: a queue pair cannot be stopped (error {e}); its memory is kept until it can\n",
                    format_args!("{}", self.pd.device().name())
                ),
                _ => {}
            }
            said = true;
            fsleep(STOP_AGAIN);
        }
    }

    /// It is not connected, or [`Self::shutdown`] has done its work.
    #[cfg(SRP_KUNIT)]
    pub fn is_shut_down(&self) -> bool {
        self.drained.load(Acquire)
    }
}

impl<H: Handler> Qp<H> {
    /// [Disconnects](Self::disconnect), and has nobody hear of completions any more, for ever. The grace period
    /// that the drop waits for begins here, so that many have one together. May sleep.
    pub fn finish(&self) -> GracePeriod {
        self.disconnect();
        // With the lock, so that nobody connects it meanwhile.
        let _connected = self.connected.lock();
        self.cq.stop()
    }
}

/// A queue pair is its handler, connected.
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
    }
}
