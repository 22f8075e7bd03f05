// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use super::pd::Pd;
use crate::{
    bindings,
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

/// A completion queue. ib_core takes its completions in a softirq on the CPU of its interrupt; or it is polled, and has
/// no interrupts.
///
/// # Invariants
///
/// `cq` is a completion queue of the device of `pd`, which has a softirq unless it is `polled`. The softirq is
/// disabled from the moment on that `stopped` has a grace period.
#[pin_data(PinnedDrop)]
pub(super) struct Cq {
    cq: NonNull<bindings::ib_cq>,
    polled: bool,
    /// The softirq does not begin any more since this began.
    #[pin]
    stopped: Mutex<Option<GracePeriod>>,
    // Dropped after the queue.
    pd: Arc<Pd>,
}

// SAFETY: The verbs lock for themselves.
unsafe impl Send for Cq {}
// SAFETY: As for `Send`: a shared queue can be stopped, under a lock, and given to the verbs.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue with room for `entries` completions, whose callbacks find `context` in it. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device has no such vector, which not all drivers look at, otherwise what the device driver says.
    pub(super) fn new(
        pd: &Arc<Pd>,
        context: *mut c_void,
        entries: i32,
        vector: u32,
        polled: bool,
    ) -> impl PinInit<Self, Error> {
        let pd = pd.clone();
        let alloc = move |pd: &Pd| {
            if vector >= pd.device().limits().num_comp_vectors {
                return Err(EINVAL);
            }
            let how = if polled {
                bindings::ib_poll_context_IB_POLL_DIRECT
            } else {
                bindings::ib_poll_context_IB_POLL_SOFTIRQ
            };
            // SAFETY: The device is registered. The context is only handed on.
            let cq = from_err_ptr(unsafe {
                bindings::__ib_alloc_cq(
                    pd.device().as_raw(),
                    context,
                    entries,
                    // CAST: A device has some thousands at most.
                    vector as i32,
                    how,
                    super::CALLER.as_char_ptr(),
                )
            })?;
            NonNull::new(cq).ok_or(ENOMEM)
        };
        // INVARIANT: It was made of this domain's device just now.
        try_pin_init!(Self {
            cq: alloc(&pd)?,
            polled,
            stopped <- new_mutex!(None, "Cq::stopped"),
            pd,
        }? Error)
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.cq.as_ptr()
    }

    /// Waits for a softirq that is under way, and has none begin any more, for ever. There must be no queue pair.
    /// The end of the queue waits for the grace period, which is the same each time, so that many have one together.
    /// Sleeps.
    pub(super) fn stop(&self) -> GracePeriod {
        *self.stopped.lock().get_or_insert_with(|| {
            if let Some(iop) = self.iop() {
                // SAFETY: The queue has it and is valid. It is disabled once, under the lock.
                unsafe { bindings::irq_poll_disable(iop) };
            }
            GracePeriod::begin()
        })
    }

    /// [`Self::stop`] was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.lock().is_some()
    }

    /// The softirq, if there is one.
    fn iop(&self) -> Option<*mut bindings::irq_poll> {
        // SAFETY: By the type invariant the queue is valid, and one with a softirq has this of the two.
        (!self.polled).then(|| unsafe { &raw mut (*self.as_raw()).__bindgen_anon_1.iop }.cast())
    }
}

#[pinned_drop]
impl PinnedDrop for Cq {
    fn drop(self: Pin<&mut Self>) {
        // `ib_poll_handler()` says that it is done and then asks for the next interrupt. `ib_free_cq()` waits for
        // the first of the two only.
        self.stop().wait();
        if let Some(iop) = self.iop() {
            // `ib_free_cq()` disables it once more, which waits until it is enabled.
            // SAFETY: By the type invariant it is disabled.
            unsafe { bindings::irq_poll_enable(iop) };
        }
        // SAFETY: By the type invariant it is valid. Queue pairs that use it hold it, and its softirq has ended.
        unsafe { bindings::ib_free_cq(self.as_raw()) };
    }
}
