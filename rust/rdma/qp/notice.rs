// SPDX-License-Identifier: GPL-2.0

//! Completions that a device reports from a thread.
//!
//! A device without an adapter calls the completion handler in a thread: rxe always, siw for what was sent. The
//! softirq that ib_core raises there wakes `ksoftirqd`: two switches of threads for each completion, a
//! thirtieth of all that a 4 KiB read costs on rxe. From an interrupt that the CPU sends to itself the softirq
//! runs as it does with an adapter, when the interrupt ends.
//!
//! C header: [`include/linux/irq_work.h`](srctree/include/linux/irq_work.h)

use super::{
    Handler,
    Qp, //
};
use crate::bindings;
use core::{
    mem::offset_of,
    ptr::null_mut, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};

type CompletionHandler = unsafe extern "C" fn(cq: *mut bindings::ib_cq, context: *mut c_void);

/// The interrupt of a completion queue, or of none. On a cache line of its own, as it is written for each, and the
/// rest of a queue pair is only read by commands.
///
/// # Invariants
///
/// `cq` is null, or `work` is initialised with [`Self::run`], and only queued while `cq` is valid, by its handler;
/// and `softirq` is what ib_core has for the completions of `cq`.
#[repr(align(64))]
pub(super) struct Notice {
    work: Opaque<bindings::irq_work>,
    cq: *mut bindings::ib_cq,
    softirq: CompletionHandler,
}

impl Notice {
    pub(super) const fn new() -> Self {
        // INVARIANT: There is no queue.
        Self {
            work: Opaque::zeroed(),
            cq: null_mut(),
            softirq: Self::nothing,
        }
    }

    /// # Safety
    ///
    /// There is nothing to keep.
    unsafe extern "C" fn nothing(_: *mut bindings::ib_cq, _: *mut c_void) {}

    /// # Safety
    ///
    /// Called by the kernel for the `work` of a `Notice`.
    unsafe extern "C" fn run(work: *mut bindings::irq_work) {
        // SAFETY: By this function's contract.
        let this = unsafe { &*work.byte_sub(offset_of!(Self, work)).cast::<Self>() };
        // SAFETY: By the type invariant; the handler does not look at the context.
        unsafe { (this.softirq)(this.cq, null_mut()) };
    }

    /// Waits until the interrupt has ended. Must not be called with interrupts off.
    pub(super) fn wait(&self) {
        if !self.cq.is_null() {
            // SAFETY: By the type invariant it is initialised.
            unsafe { bindings::irq_work_sync(self.work.get()) };
        }
    }
}

impl<H: Handler> Qp<H> {
    /// No new interrupt and no new softirq, and waits for the last interrupt. There is no queue pair any more, but
    /// some devices tell of old completions until the queue is freed. Sleeps. Called once.
    pub(super) fn silence(&self) {
        if !self.cq.is_null() {
            // SAFETY: By the type invariant the queue is valid. A device reads this at any time, and either
            // handler is good then.
            unsafe { (&raw mut (*self.cq).comp_handler).write_volatile(Some(Notice::nothing)) };
        }
        self.notice.wait();
        if let Some(iop) = self.iop() {
            // A device may have read the handler before, and call it now.
            // SAFETY: The queue has it and is valid. It stays disabled until the queue is freed.
            unsafe { bindings::irq_poll_disable(iop) };
        }
    }

    /// Frees the completion queue, if there is one. Sleeps.
    ///
    /// # Safety
    ///
    /// [`Self::silence`] has been called, a grace period ago, and nobody uses the queue after this.
    pub(super) unsafe fn free(&self) {
        if let Some(iop) = self.iop() {
            // `ib_free_cq()` disables it once more, which waits until it is enabled.
            // SAFETY: By this function's contract it is disabled.
            unsafe { bindings::irq_poll_enable(iop) };
        }
        if !self.cq.is_null() {
            // SAFETY: By the type invariant and this function's contract.
            unsafe { bindings::ib_free_cq(self.cq) };
        }
    }

    /// What has the queue looked at by a softirq, if it is not polled.
    fn iop(&self) -> Option<*mut bindings::irq_poll> {
        if self.cq.is_null() || self.sizes.polled {
            return None;
        }
        // SAFETY: By the type invariant the queue is valid, and one with a softirq has this of the two.
        Some(unsafe { &raw mut (*self.cq).__bindgen_anon_1.iop }.cast())
    }

    /// Has completions that a thread reports taken by an interrupt, where the CPU can send one to itself.
    ///
    /// `cq` is new, with its context and a softirq, and this object will not be moved.
    pub(super) fn interrupt(&mut self) -> Result {
        // SAFETY: It has no precondition.
        let possible = unsafe { bindings::srp_helper_arch_irq_work_has_interrupt() };
        // With PREEMPT_RT a softirq is for a thread in any case.
        if !possible || cfg!(CONFIG_PREEMPT_RT) {
            return Ok(());
        }
        let cq = self.cq;
        // SAFETY: It was made just now.
        let Some(softirq) = (unsafe { (*cq).comp_handler }) else {
            return Err(EINVAL);
        };
        // SAFETY: It is this object's, which does not move any more.
        unsafe {
            bindings::srp_helper_init_irq_work_hard(self.notice.work.get(), Some(Notice::run))
        };
        self.notice.softirq = softirq;
        // INVARIANT: The handler of `cq` queues it, which `drop` takes away and waits for before it frees the queue.
        self.notice.cq = cq;
        // SAFETY: No queue pair uses it yet, so there is nothing that a device could tell of.
        unsafe { (*cq).comp_handler = Some(Self::completed) };
        Ok(())
    }

    /// # Safety
    ///
    /// Called by the device driver for the completion queue of a `Qp<H>`, with its context.
    unsafe extern "C" fn completed(cq: *mut bindings::ib_cq, context: *mut c_void) {
        // SAFETY: By the type invariant the context of the queue is a `Qp<H>`, which frees the queue before it goes.
        let this = unsafe { &*context.cast::<Self>() };
        // SAFETY: It has no precondition.
        if unsafe { bindings::srp_helper_in_interrupt() } {
            // SAFETY: It is the queue's own handler, called as the device driver has called this.
            unsafe { (this.notice.softirq)(cq, context) };
        } else {
            // SAFETY: By the type invariant it is initialised.
            unsafe { bindings::irq_work_queue(this.notice.work.get()) };
        }
    }
}
