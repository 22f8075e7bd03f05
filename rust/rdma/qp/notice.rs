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
use core::mem::offset_of;
use kernel::{
    prelude::*,
    types::Opaque, //
};

type CompletionHandler =
    unsafe extern "C" fn(cq: *mut bindings::ib_cq, context: *mut core::ffi::c_void);

/// The interrupt of a completion queue.
///
/// # Invariants
///
/// `work` is initialised with [`Self::run`], and only queued while `cq` is valid, by its handler. `softirq` is
/// what ib_core has for the completions of `cq`.
#[pin_data]
pub(super) struct Notice {
    #[pin]
    work: Opaque<bindings::irq_work>,
    cq: *mut bindings::ib_cq,
    softirq: CompletionHandler,
}

impl Notice {
    /// # Safety
    ///
    /// Called by the kernel for the `work` of a `Notice`.
    unsafe extern "C" fn run(work: *mut bindings::irq_work) {
        // SAFETY: By this function's contract.
        let this = unsafe { &*work.byte_sub(offset_of!(Self, work)).cast::<Self>() };
        // SAFETY: By the type invariant; the handler does not look at the context.
        unsafe { (this.softirq)(this.cq, core::ptr::null_mut()) };
    }

    /// No new interrupt, and waits for the last. There is no queue pair any more, but some devices tell of old
    /// completions until the queue is freed. Must not be called with interrupts off.
    pub(super) fn close(&self) {
        // SAFETY: By the type invariant the queue is valid until it is freed. A device reads this at any
        // time, and either handler is good then.
        unsafe { (&raw mut (*self.cq).comp_handler).write_volatile(Some(self.softirq)) };
        self.wait();
    }

    /// Waits until the interrupt has ended. Must not be called with interrupts off.
    pub(super) fn wait(&self) {
        // SAFETY: By the type invariant it is initialised.
        unsafe { bindings::irq_work_sync(self.work.get()) };
    }
}

impl<H: Handler> Qp<H> {
    /// Has completions that a thread reports taken by an interrupt, where the CPU can send one to itself.
    ///
    /// `cq` is new, with its context and a softirq.
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
        // INVARIANT: The handler of `cq` queues it, which `drop` takes away and waits for before it frees the queue.
        let notice = pin_init!(Notice {
            work <- Opaque::ffi_init(|slot: *mut bindings::irq_work| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::srp_helper_init_irq_work_hard(slot, Some(Notice::run)) }
            }),
            cq,
            softirq,
        });
        self.notice = Some(KBox::pin_init(notice, GFP_KERNEL)?);
        // SAFETY: No queue pair uses it yet, so there is nothing that a device could tell of.
        unsafe { (*cq).comp_handler = Some(Self::completed) };
        Ok(())
    }

    /// # Safety
    ///
    /// Called by the device driver for the completion queue of a `Qp<H>` with a `notice`.
    unsafe extern "C" fn completed(cq: *mut bindings::ib_cq, context: *mut core::ffi::c_void) {
        // SAFETY: By this function's contract.
        let this = unsafe { Self::of(cq) };
        let Some(notice) = &this.notice else {
            return;
        };
        // SAFETY: It has no precondition.
        if unsafe { bindings::srp_helper_in_interrupt() } {
            // SAFETY: It is the queue's own handler, called as the device driver has called this.
            unsafe { (notice.softirq)(cq, context) };
        } else {
            // SAFETY: By the type invariant it is initialised.
            unsafe { bindings::irq_work_queue(notice.work.get()) };
        }
    }
}
