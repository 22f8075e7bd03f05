// SPDX-License-Identifier: GPL-2.0

//! Queue pairs whose completions are callbacks.
//!
//! A [`Qp`] has one completion queue, polled in softirq context on the CPU of its interrupt, or by those
//! who wait, one after the other; so its callbacks never run at the same time as each other. Requests name messages and memory regions of
//! pools that it holds; completions name what they complete by number.
//!
//! It is connected, shut down, disconnected, and may be connected again: each time with a new
//! `struct ib_qp` on a new identifier, but with the same completion queue, memory and regions.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

mod done;
mod handler;
mod notice;
mod poll;
mod post;
mod sizes;

pub(super) use post::Live;

pub use handler::{
    Failure,
    Handler, //
};
pub use sizes::{
    Memory,
    Sizes, //
};

use super::{
    bounce::Bounce,
    dma::{
        Chunk,
        Direction,
        Pool, //
    },
    link::Link,
    mr::Regions,
    pd::Pd,
    wr::Done, //
};
use crate::{
    bindings,
    errno::ESHUTDOWN,
    sync::GracePeriod, //
};
use core::{
    cell::UnsafeCell,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    error::from_err_ptr,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex,
        UniqueArc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use notice::Notice;
use poll::Turn;

/// Receives are given back to the device in chains of this many.
pub const RECEIVE_BATCH: usize = 8;

/// The pause before a device is told once more to stop a queue pair.
const STOP_AGAIN: Delta = Delta::from_millis(500);

/// A posted receive.
#[repr(C)]
struct Receive {
    cqe: bindings::ib_cqe,
    chunk: Chunk,
}

/// Receives that wait to be given back in one chain. On cache lines of its own, as the rest of a queue pair is
/// only read by commands.
#[repr(align(64))]
struct Returned {
    list: [*const Receive; RECEIVE_BATCH],
    count: usize,
}

/// A queue pair and what it is made on.
struct Connected {
    qp: NonNull<bindings::ib_qp>,
    link: Arc<dyn Link>,
    /// Since then nobody finds it.
    retired: Option<GracePeriod>,
}

/// How far a [`Qp`] is.
struct Stage {
    connected: Option<Connected>,
    /// Since then nobody hears of completions, and there is no connection any more.
    finished: Option<GracePeriod>,
}

/// A queue pair, whether it is connected or not.
///
/// # Invariants
///
/// - `cq` is null or a completion queue whose context is this object, which does not move.
/// - `qp` is null or that of `stage`, with `cq` for both directions. It is read under RCU, and
///   destroyed a grace period after it was cleared, drained. Only then regions are replaced.
/// - The callbacks run in the softirq of `cq`, one after the other, or if it is polled while whoever looks
///   has `turn`.
/// - Every posted request names a `cqe` of this object, and memory of `messages`, `receives`, `regions` or
///   `bounce`.
pub struct Qp<H: Handler> {
    qp: Atomic<*mut bindings::ib_qp>,
    cq: *mut bindings::ib_cq,
    /// For a completion that a thread reports, if `cq` has a softirq.
    notice: Notice,
    /// There is no queue pair, or nothing completes on it any more.
    drained: Atomic<bool>,
    /// This side is ending the connection: that requests are flushed means nothing.
    ending: Atomic<bool>,
    stage: Pin<KBox<Mutex<Stage>>>,
    sizes: Sizes,
    /// For requests whose success nobody waits for.
    send_cqe: bindings::ib_cqe,
    control_cqe: bindings::ib_cqe,
    last_cqe: bindings::ib_cqe,
    /// One for each handle, by number.
    invalidate_cqes: KVVec<bindings::ib_cqe>,
    receives: KVVec<Receive>,
    /// Whose turn it is to look at a polled completion queue.
    turn: Turn,
    /// Only used by the callback of a receive, which runs once at a time.
    returned: UnsafeCell<Returned>,
    lkey: u32,
    handler: H,
    // Dropped last: what a posted request can reach.
    messages: Arc<Pool>,
    regions: Arc<Regions>,
    bounce: Option<Bounce>,
    pd: Arc<Pd>,
    /// [`Bounce::id`], 0 without.
    bounce_id: u64,
}

// SAFETY: The verbs lock for themselves; `returned` is used by one callback at a time, and `H` is
// `Send` and `Sync`.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: As above.
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
            regions,
            bounce,
        } = memory;
        let foreign = |chunk: &Chunk| !chunk.pool().is_for(pd, Direction::FromDevice);
        if receives.iter().any(foreign)
            || !messages.is_for(pd, Direction::ToDevice)
            || !regions.is_of(pd)
            || bounce.as_ref().is_some_and(|b| !b.is_of(pd))
        {
            return Err(EINVAL);
        }
        let mut list = KVVec::with_capacity(receives.len(), GFP_KERNEL)?;
        for chunk in receives {
            let cqe = bindings::ib_cqe {
                done: Some(Self::receive_done),
            };
            list.push(Receive { cqe, chunk }, GFP_KERNEL)?;
        }
        let mut invalidate_cqes = KVVec::with_capacity(sizes.handles, GFP_KERNEL)?;
        for _ in 0..sizes.handles {
            let done = Some(Self::invalidate_done as Done);
            invalidate_cqes.push(bindings::ib_cqe { done }, GFP_KERNEL)?;
        }
        let mut this = UniqueArc::new(
            Self {
                qp: Atomic::new(null_mut()),
                cq: null_mut(),
                notice: Notice::new(),
                drained: Atomic::new(true),
                ending: Atomic::new(true),
                stage: KBox::pin_init(
                    new_mutex!(
                        Stage {
                            connected: None,
                            finished: None,
                        },
                        "Qp::stage"
                    ),
                    GFP_KERNEL,
                )?,
                sizes,
                send_cqe: bindings::ib_cqe {
                    done: Some(Self::send_done),
                },
                control_cqe: bindings::ib_cqe {
                    done: Some(Self::control_done),
                },
                last_cqe: bindings::ib_cqe {
                    done: Some(Self::last_done),
                },
                invalidate_cqes,
                receives: list,
                turn: Turn::new(),
                returned: UnsafeCell::new(Returned {
                    list: [core::ptr::null(); RECEIVE_BATCH],
                    count: 0,
                }),
                lkey: pd.local_dma_lkey(),
                handler,
                messages,
                regions,
                bounce_id: bounce.as_ref().map_or(0, |b| b.id()),
                bounce,
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?;
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
                if sizes.polled {
                    bindings::ib_poll_context_IB_POLL_DIRECT
                } else {
                    bindings::ib_poll_context_IB_POLL_SOFTIRQ
                },
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The context of `cq` is this object.
        this.cq = cq;
        if !sizes.polled {
            this.interrupt()?;
        }
        Ok(this.into())
    }

    /// Creates a queue pair on `link`, whose route is resolved, and posts all receives.
    ///
    /// Regions that the last connection left in an unknown state are made anew. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is connected, if the regions serve another queue pair, or one of them is still
    /// mapped, `ESHUTDOWN` if it is [finished](Self::finish), otherwise those of [`Link::create_qp`] and of the device driver. It is as it was then.
    pub fn connect(&self, link: Arc<dyn Link>) -> Result {
        let mut stage = self.stage.lock();
        if stage.finished.is_some() {
            return Err(ESHUTDOWN);
        }
        if stage.connected.is_some() {
            return Err(EBUSY);
        }
        if let Some(bounce) = &self.bounce {
            bounce.renew()?;
        }
        self.regions.bind()?;
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(Self::event),
            qp_context: core::ptr::from_ref(self).cast_mut().cast(),
            send_cq: self.cq,
            recv_cq: self.cq,
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
                self.regions.unbind();
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
        stage.connected = Some(Connected {
            qp,
            link,
            retired: None,
        });
        self.drained.store(false, Release);
        for batch in self.receives.chunks(RECEIVE_BATCH) {
            let mut chain = [core::ptr::null(); RECEIVE_BATCH];
            for (entry, receive) in chain.iter_mut().zip(batch) {
                receive.chunk.give(receive.chunk.size());
                *entry = receive;
            }
            if let Err(e) = self.post_receives(chain.get(..batch.len()).unwrap_or_default()) {
                drop(stage);
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
        let link = self.stage.lock().connected.as_ref().map(|c| c.link.clone());
        if let Some(link) = link {
            link.disconnect();
        }
    }

    /// Drains the queue pair if that has not been done, and has nobody else find it. The grace period that
    /// [`Self::disconnect`] waits for begins here, so that many have one together. May sleep.
    pub fn retire(&self) {
        if let Some(connected) = &mut self.stage.lock().connected {
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
        let mut stage = self.stage.lock();
        // Another call may have been faster, and another queue pair be there.
        let retired = |c: &mut Connected| c.retired.is_some();
        if let Some(Connected { qp, link, retired }) = stage.connected.take_if(retired) {
            if let Some(grace_period) = retired {
                grace_period.wait();
            }
            // SAFETY: It came from this identifier and was taken from `stage` just now. By the
            // type invariant nobody uses it a grace period after `qp` was cleared.
            unsafe { link.destroy_qp(qp) };
            self.regions.unbind();
            // Without the lock: it waits for the identifier's handler.
            drop(stage);
            drop(link);
        }
    }

    /// The handler.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Moves the queue pair to its error state and waits until every posted request has completed.
    ///
    /// After that nothing reaches the regions; requests posted later are flushed. May sleep. Does
    /// nothing if it is not connected or has been done.
    pub fn shutdown(&self) {
        // The lock keeps the queue pair from being destroyed meanwhile.
        if let Some(connected) = &self.stage.lock().connected {
            self.drain(connected.qp);
        }
    }

    #[cfg(all(SRP_KUNIT, CONFIG_KUNIT))]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.qp.load(Acquire)
    }

    /// Called with `stage` locked, which had this queue pair.
    fn drain(&self, qp: NonNull<bindings::ib_qp>) {
        if self.drained.load(Acquire) {
            return;
        }
        self.ending.store(true, Release);
        self.stop(qp);
        // Draining looks at a polled queue as well; its wait for a look is 0.1 s, for each direction.
        let _looking = self.sizes.polled.then(|| self.turn.wait());
        // What completes during the first may post something behind it; nothing does after that. Looking at a
        // polled queue goes on until it is empty.
        for _ in 0..if self.sizes.polled { 1 } else { 2 } {
            // SAFETY: The caller has it from `stage`, so it is valid; both queues have one more entry
            // than we use, and so has the completion queue.
            unsafe { bindings::ib_drain_qp(qp.as_ptr()) };
        }
        self.regions.set_dead();
        self.drained.store(true, Release);
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
            // SAFETY: The caller has it from `stage`, so it is valid.
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
    pub fn is_shut_down(&self) -> bool {
        self.drained.load(Acquire)
    }
}

impl<H: Handler> Qp<H> {
    /// [Disconnects](Self::disconnect), and has nobody hear of completions any more, for ever. The grace period
    /// that the drop waits for begins here, so that many have one together. May sleep.
    pub fn finish(&self) -> GracePeriod {
        self.disconnect();
        let mut stage = self.stage.lock();
        match stage.finished {
            Some(grace_period) => grace_period,
            None => {
                self.silence();
                *stage.finished.insert(GracePeriod::begin())
            }
        }
    }
}

impl<H: Handler> Drop for Qp<H> {
    fn drop(&mut self) {
        // A softirq for an old completion looks at the queue once more after it has said that it is done,
        // which is all that `ib_free_cq()` waits for.
        self.finish().wait();
        // SAFETY: No queue pair uses it any more. The last softirq has ended, and there is no other one.
        unsafe { self.free() };
        self.notice.wait();
    }
}
