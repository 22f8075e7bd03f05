// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::pd::Pd;
use crate::{
    bindings,
    compat,
    sync::GracePeriod, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// The context in which the callbacks of a completion queue run, one at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PollContext {
    /// A softirq on the CPU of the interrupt, if the softirqs of a CPU are serialised. Otherwise,
    /// which is possible with PREEMPT_RT, the same as [`Self::Workqueue`].
    Interrupt,
    /// A work item on the CPU of the interrupt, which may be preempted.
    Workqueue,
    /// The caller of [`Qp::poll`](super::qp::Qp::poll). There are no interrupts.
    Direct,
}

impl PollContext {
    fn as_raw(self) -> bindings::ib_poll_context {
        match self {
            Self::Interrupt if compat::SERIAL_SOFTIRQS => bindings::ib_poll_context_IB_POLL_SOFTIRQ,
            Self::Interrupt | Self::Workqueue => bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            Self::Direct => bindings::ib_poll_context_IB_POLL_DIRECT,
        }
    }
}

/// The handler that ib_core schedules on an interrupt of a queue.
enum Handler {
    Softirq(*mut bindings::irq_poll),
    Work(*mut bindings::work_struct),
}

/// A completion queue.
///
/// # Invariants
///
/// `cq` is a completion queue of the device of `pd`, and `context` determines the context of its
/// callbacks: a softirq, if the softirqs of a CPU are serialised; its work item, which never runs
/// concurrently with itself; or the poller. The softirq or work item is disabled once `stopped` is
/// set.
#[pin_data(PinnedDrop)]
pub(super) struct Cq {
    cq: NonNull<bindings::ib_cq>,
    context: bindings::ib_poll_context,
    /// The grace period that began when the softirq or work item was disabled.
    #[pin]
    stopped: Mutex<Option<GracePeriod>>,
    // Dropped after the queue.
    pd: Arc<Pd>,
}

// SAFETY: The verbs do their own locking.
unsafe impl Send for Cq {}
// SAFETY: A shared queue can be stopped, under a lock, and passed to the verbs, which do their own
// locking.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a queue for `entries` completions, with `private` as the context of its callbacks.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device has no completion vector `vector` (not all drivers check), otherwise
    /// the error of the device driver.
    pub(super) fn new(
        pd: &Arc<Pd>,
        private: *mut c_void,
        entries: i32,
        vector: u32,
        context: PollContext,
    ) -> impl PinInit<Self, Error> {
        let pd = pd.clone();
        let context = context.as_raw();
        let alloc = move |pd: &Pd| {
            if vector >= pd.device().limits().num_comp_vectors {
                return Err(EINVAL);
            }
            // SAFETY: The device is registered. `private` is only stored.
            let cq = from_err_ptr(unsafe {
                bindings::__ib_alloc_cq(
                    pd.device().as_raw(),
                    private,
                    entries,
                    // CAST: It is below the number of vectors, a C `int`.
                    vector as i32,
                    context,
                    super::CALLER.as_char_ptr(),
                )
            })?;
            NonNull::new(cq).ok_or(ENOMEM)
        };
        // INVARIANT: The queue was just created on the device of `pd`.
        try_pin_init!(Self {
            cq: alloc(&pd)?,
            context,
            stopped <- new_mutex!(None, "Cq::stopped"),
            pd,
        }? Error)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.cq.as_ptr()
    }

    /// Waits for a running softirq or work item, and permanently prevents further ones. Returns the
    /// grace period that the drop waits for. The grace period begins at the first call, so that
    /// several queues share one. Sleeps.
    pub(super) fn stop(&self) -> GracePeriod {
        *self.stopped.lock().get_or_insert_with(|| {
            match self.handler() {
                Some(Handler::Softirq(iop)) => {
                    // SAFETY: `iop` is part of the queue, which is valid. It is disabled once,
                    // under the lock.
                    unsafe { bindings::irq_poll_disable(iop) };
                }
                Some(Handler::Work(work)) => {
                    // SAFETY: `work` is part of the queue, which is valid.
                    unsafe { bindings::disable_work_sync(work) };
                }
                None => {}
            }
            GracePeriod::begin()
        })
    }

    /// Returns whether [`Self::stop`] was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.lock().is_some()
    }

    /// The softirq or work item of the queue, or `None` if it is polled.
    fn handler(&self) -> Option<Handler> {
        let cq = self.as_raw();
        match self.context {
            bindings::ib_poll_context_IB_POLL_SOFTIRQ => {
                // SAFETY: By the type invariant the queue is valid, and the union holds `iop`.
                let iop = unsafe { &raw mut (*cq).__bindgen_anon_1.iop };
                Some(Handler::Softirq(iop.cast()))
            }
            bindings::ib_poll_context_IB_POLL_WORKQUEUE => {
                // SAFETY: By the type invariant the queue is valid, and the union holds `work`.
                let work = unsafe { &raw mut (*cq).__bindgen_anon_1.work };
                Some(Handler::Work(work.cast()))
            }
            _ => None,
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Cq {
    fn drop(self: Pin<&mut Self>) {
        // `ib_poll_handler()` calls `irq_poll_complete()` and then requests the next interrupt.
        // `ib_free_cq()` waits only for the first of the two.
        self.stop().wait();
        if let Some(Handler::Softirq(iop)) = self.handler() {
            // `ib_free_cq()` disables the softirq again, and would wait until the softirq is
            // enabled.
            // SAFETY: By the type invariant the softirq is disabled.
            unsafe { bindings::irq_poll_enable(iop) };
        }
        // SAFETY: By the type invariant the queue is valid. No queue pair is left, as each keeps it
        // alive, and its softirq or work item has ended.
        unsafe { bindings::ib_free_cq(self.as_raw()) };
    }
}
