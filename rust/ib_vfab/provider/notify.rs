// SPDX-License-Identifier: GPL-2.0

//! The interrupt of a completion queue.
//!
//! The kernel crate has no irq_work; for its timers see [`timer`](super::timer).
//!
//! The handler runs in an irq_work on the CPU that posted the request. It runs in an expired timer
//! if it is delayed, and on architectures without an interrupt for irq_work (User-Mode Linux). It
//! never runs on the poster's stack. Modules cannot queue an irq_work on another CPU, so completion
//! vectors have no effect.
//!
//! C headers: [`include/linux/irq_work.h`](srctree/include/linux/irq_work.h),
//! [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use super::params;
use crate::{
    bindings,
    compat::NO_RESTART, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};

/// A completion queue that is being created.
pub struct CqHandle(pub(super) NonNull<bindings::ib_cq>);

/// The interrupt of a completion queue.
///
/// # Invariants
///
/// `cq` is valid until [`Notify::stop`] has returned.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub struct Notify {
    #[pin]
    work: Opaque<bindings::irq_work>,
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    cq: NonNull<bindings::ib_cq>,
    by_work: bool,
    /// Time to the handler, in ns.
    latency: u32,
    /// Whether [`Notify::raise_in`] was called, and the handler has not run since.
    delayed: Atomic<bool>,
    stopped: Atomic<bool>,
}

// SAFETY: Neither an irq_work nor a timer is bound to a thread.
unsafe impl Send for Notify {}
// SAFETY: Both can be queued concurrently; the other fields are constant or atomic.
unsafe impl Sync for Notify {}

impl Notify {
    /// An interrupt that is not raised.
    pub fn new(cq: CqHandle) -> impl PinInit<Self> {
        let latency = params::interrupt_ns();
        // SAFETY: No precondition.
        let by_work = unsafe { bindings::srp_vfab_irq_work_has_interrupt() } && latency == 0;
        // INVARIANT: `ib_core` keeps the queue until `destroy_cq`, which calls `stop`.
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is valid for writes and is pinned.
                unsafe { bindings::srp_vfab_irq_work_init(slot, Some(worked)) };
            }),
            timer <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is valid for writes and is pinned.
                unsafe {
                    bindings::srp_vfab_hrtimer_setup(
                        slot,
                        Some(expired),
                        bindings::hrtimer_mode_HRTIMER_MODE_REL_HARD,
                    )
                };
            }),
            cq: cq.0,
            by_work,
            latency,
            delayed: Atomic::new(false),
            stopped: Atomic::new(false),
        })
    }

    /// Raises the interrupt; all calls until the handler runs raise it once. Any context except
    /// NMI.
    #[inline]
    pub fn raise(&self) {
        if self.by_work {
            // SAFETY: The irq_work is initialised, and lives until `stop` has synchronised it.
            unsafe { bindings::irq_work_queue(self.work.get()) };
        } else {
            self.start(0);
        }
    }

    /// Raises the interrupt in `ns` nanoseconds, unless [`Self::raise_now`] raises it before. Any
    /// context except NMI.
    pub fn raise_in(&self, ns: u64) {
        self.delayed.store(true, Relaxed);
        self.start(ns);
    }

    /// Raises the interrupt that is delayed. Any context except NMI.
    pub fn raise_now(&self) {
        self.delayed.store(false, Relaxed);
        // If the handler runs already, it runs twice, which `ib_core` permits.
        // SAFETY: The timer is initialised.
        unsafe { bindings::hrtimer_try_to_cancel(self.timer.get()) };
        self.raise();
    }

    /// Whether the interrupt is delayed.
    #[inline]
    pub fn is_delayed(&self) -> bool {
        self.delayed.load(Relaxed)
    }

    fn start(&self, ns: u64) {
        let ns = ns.saturating_add(self.latency.into());
        // SAFETY: The timer is initialised, and lives until `stop` has cancelled it.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                i64::try_from(ns).unwrap_or(i64::MAX),
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_REL_HARD,
            )
        };
    }

    /// Disables the interrupt, and waits for a running handler. Sleeps.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
        // SAFETY: The irq_work is initialised.
        unsafe { bindings::irq_work_sync(self.work.get()) };
        // SAFETY: The timer is initialised.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }

    fn handle(&self) {
        self.delayed.store(false, Relaxed);
        if self.stopped.load(Relaxed) {
            return;
        }
        let cq = self.cq.as_ptr();
        // SAFETY: `cq` is valid; the field is constant.
        let handler = unsafe { (*cq).comp_handler };
        // SAFETY: `cq` is valid; the field is constant.
        let context = unsafe { (*cq).cq_context };
        if let Some(handler) = handler {
            // SAFETY: This is the context in which the handler expects to be called, with its own
            // queue.
            unsafe { handler(cq, context) };
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Notify {
    fn drop(self: Pin<&mut Self>) {
        self.stop();
    }
}

/// # Safety
///
/// `work` is a field of a `Notify`.
unsafe extern "C" fn worked(work: *mut bindings::irq_work) {
    let this = work.cast::<Opaque<bindings::irq_work>>();
    // SAFETY: `work` is a field of a `Notify`, which is not freed before its irq_work has run.
    let this = unsafe { &*kernel::container_of!(this, Notify, work) };
    this.handle();
}

/// # Safety
///
/// `timer` is a field of a `Notify`.
unsafe extern "C" fn expired(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    let this = timer.cast::<Opaque<bindings::hrtimer>>();
    // SAFETY: `timer` is a field of a `Notify`, which is not freed before its timer has run.
    let this = unsafe { &*kernel::container_of!(this, Notify, timer) };
    this.handle();
    NO_RESTART
}
