// SPDX-License-Identifier: GPL-2.0

//! A user of a device, for KUnit tests of the device. It calls verbs as a driver does, on memory
//! mapped for the device.

mod connect;
mod groups;
mod limits;
mod post;
mod wr;

pub(crate) use self::{
    connect::{
        How,
        USUAL, //
    },
    limits::{
        refusals,
        Seen, //
    },
    wr::Request, //
};

use super::{
    device::Registration,
    verbs::Provider,
    wc::Status, //
};
use crate::bindings;
use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::{
        null_mut,
        NonNull, //
    },
    slice, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Size of the memory of a [`User`], in bytes.
pub(crate) const MEMORY: usize = 16 * PAGE_SIZE;
/// Number of entries per queue.
pub(crate) const DEPTH: u32 = 8;
/// Number of pages per region.
pub(crate) const PAGES: u32 = 8;

/// The fields of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: Status,
    pub(crate) opcode: u32,
    pub(crate) bytes: u32,
    pub(crate) flags: u32,
    pub(crate) ex: u32,
    pub(crate) src_qp: u32,
}

/// Access rights.
pub(crate) const LOCAL: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
pub(crate) const WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
pub(crate) const READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
/// All rights.
pub(crate) const ALL: u32 = LOCAL | WRITE | READ;

struct Counts {
    interrupts: Atomic<i32>,
    events: Atomic<u32>,
    cq_events: Atomic<u32>,
    /// The handler of the completions that `ib_core` processes.
    cqe: bindings::ib_cqe,
    processed: Atomic<u32>,
}

/// # Safety
///
/// `context` points to a `Counts`.
unsafe extern "C" fn interrupted(_: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: `context` points to a `Counts`.
    unsafe { &*context.cast::<Counts>() }
        .interrupts
        .add(1, Relaxed);
}

/// # Safety
///
/// `context` points to a `Counts`.
unsafe extern "C" fn qp_event(event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: `context` points to a `Counts`.
    let counts = unsafe { &*context.cast::<Counts>() };
    // SAFETY: The event is valid for the call.
    let kind = unsafe { (*event).event };
    let old = counts.events.load(Relaxed);
    counts.events.store(old | 1 << kind, Relaxed);
}

/// # Safety
///
/// `context` points to a `Counts`.
unsafe extern "C" fn cq_event(_: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: `context` points to a `Counts`.
    unsafe { &*context.cast::<Counts>() }
        .cq_events
        .store(1, Relaxed);
}

/// # Safety
///
/// The context of `cq` points to a `Counts`.
unsafe extern "C" fn processed(cq: *mut bindings::ib_cq, _: *mut bindings::ib_wc) {
    // SAFETY: `cq` is valid.
    let context = unsafe { (*cq).cq_context };
    // SAFETY: `context` points to a `Counts`.
    unsafe { &*context.cast::<Counts>() }
        .processed
        .add(1, Relaxed);
}

/// A protection domain, a completion queue, a queue pair, memory and a region on one device.
///
/// # Invariants
///
/// All are valid, and of one device, which is registered; `at` has [`MEMORY`] bytes.
pub(crate) struct User {
    device: *mut bindings::ib_device,
    pd: *mut bindings::ib_pd,
    cq: *mut bindings::ib_cq,
    qp: *mut bindings::ib_qp,
    mr: *mut bindings::ib_mr,
    at: NonNull<u8>,
    addr: u64,
    counts: KBox<Counts>,
}

impl User {
    /// Creates a user of a device, with a completion queue of `size` entries.
    pub(crate) fn new<P: Provider>(
        registration: &Registration<P>,
        kind: bindings::ib_qp_type,
        size: u32,
    ) -> Result<Self> {
        Self::made(registration, kind, size, false)
    }

    /// As [`User::new`], but its protection domain looks like that of a process.
    pub(crate) fn of_process<P: Provider>(
        registration: &Registration<P>,
        kind: bindings::ib_qp_type,
        size: u32,
    ) -> Result<Self> {
        Self::made(registration, kind, size, true)
    }

    fn made<P: Provider>(
        registration: &Registration<P>,
        kind: bindings::ib_qp_type,
        size: u32,
        process: bool,
    ) -> Result<Self> {
        let device = registration.device.as_ptr();
        let counts = KBox::new(
            Counts {
                interrupts: Atomic::new(0),
                events: Atomic::new(0),
                cq_events: Atomic::new(0),
                cqe: bindings::ib_cqe {
                    done: Some(processed),
                },
                processed: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let context = (&raw const *counts).cast_mut().cast::<c_void>();
        // SAFETY: The device is registered, the name is static.
        let pd =
            from_err_ptr(unsafe { bindings::__ib_alloc_pd(device, 0, c"vfab".as_char_ptr()) })?;
        if process {
            // SAFETY: Nothing else has the domain's address; the pointer is only compared with
            // null.
            unsafe { (*pd).uobject = NonNull::dangling().as_ptr() };
        }
        let attr = bindings::ib_cq_init_attr {
            cqe: size,
            ..Default::default()
        };
        // SAFETY: The device is registered; the context lives until the queue is destroyed.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device,
                Some(interrupted),
                Some(cq_event),
                context,
                &attr,
                c"vfab".as_char_ptr(),
            )
        })?;
        // SAFETY: The queue is valid, and only this function uses it.
        unsafe { (*cq).poll_ctx = bindings::ib_poll_context_IB_POLL_DIRECT };
        // SAFETY: The device is registered.
        let most = unsafe { (*device).attrs.max_recv_sge };
        let mut init = bindings::ib_qp_init_attr {
            event_handler: Some(qp_event),
            qp_context: context,
            send_cq: cq,
            recv_cq: cq,
            cap: bindings::ib_qp_cap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 3,
                // Some devices support only one.
                max_recv_sge: most.try_into().unwrap_or(1).min(3),
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: kind,
            ..Default::default()
        };
        // SAFETY: The domain and the queues are valid.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd, &mut init, c"vfab".as_char_ptr())
        })?;
        // SAFETY: The domain is valid.
        let mr = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(pd, bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, PAGES)
        })?;
        let mut addr = 0;
        // SAFETY: The device is valid and does DMA.
        let at = unsafe {
            bindings::dma_alloc_attrs(
                (*device).dma_device,
                MEMORY,
                &mut addr,
                bindings::GFP_KERNEL,
                0,
            )
        };
        let at = NonNull::new(at.cast::<u8>()).ok_or(ENOMEM)?;
        // SAFETY: The memory has `MEMORY` bytes.
        unsafe { at.as_ptr().write_bytes(0, MEMORY) };
        Ok(Self {
            device,
            pd,
            cq,
            qp,
            mr,
            at,
            addr,
            counts,
        })
    }

    pub(crate) fn num(&self) -> u32 {
        // SAFETY: The queue pair is valid.
        unsafe { (*self.qp).qp_num }
    }

    /// The user's memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: The memory has `MEMORY` bytes; the device writes to it only for requests of the
        // test.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), MEMORY) }
    }

    /// The DMA address of byte `at` of the user's memory.
    pub(crate) fn addr(&self, at: usize) -> u64 {
        self.addr + at as u64
    }

    /// The key of all memory.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: The domain is valid.
        unsafe { (*self.pd).local_dma_lkey }
    }

    /// The key of the user's region.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: The region is valid.
        unsafe { (*self.mr).rkey }
    }

    /// The first address of the user's region.
    pub(crate) fn iova(&self) -> u64 {
        // SAFETY: The region is valid.
        unsafe { (*self.mr).iova }
    }

    pub(crate) fn interrupts(&self) -> i32 {
        self.counts.interrupts.load(Relaxed)
    }

    /// One bit for each `enum ib_event_type` received.
    pub(crate) fn events(&self) -> u32 {
        self.counts.events.load(Relaxed)
    }

    pub(crate) fn cq_event(&self) -> bool {
        self.counts.cq_events.load(Relaxed) != 0
    }

    pub(crate) fn arm(&self, solicited: bool) -> bool {
        let flags = if solicited {
            bindings::ib_cq_notify_flags_IB_CQ_SOLICITED
        } else {
            bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
        };
        // SAFETY: The device is valid.
        let arm = unsafe { (*self.device).ops.req_notify_cq };
        let flags = flags | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
        // SAFETY: The queue belongs to this device.
        arm.is_some_and(|arm| unsafe { arm(self.cq, flags) } > 0)
    }

    /// Moderates the interrupt of the completion queue.
    pub(crate) fn moderate(&self, count: u16, period: u16) -> Result {
        // SAFETY: The device is valid.
        let moderate = unsafe { (*self.device).ops.modify_cq }.ok_or(EINVAL)?;
        // SAFETY: The queue belongs to this device.
        to_result(unsafe { moderate(self.cq, count, period) })
    }

    /// Replaces the user's region, which is not in use, with one of type `kind`.
    pub(crate) fn change_region(&mut self, kind: bindings::ib_mr_type) -> Result {
        // SAFETY: The domain is valid.
        let new = from_err_ptr(unsafe { bindings::ib_alloc_mr(self.pd, kind, PAGES) })?;
        let old = core::mem::replace(&mut self.mr, new);
        // SAFETY: The region is valid; nothing uses it after this.
        unsafe { bindings::ib_dereg_mr_user(old, null_mut()) };
        Ok(())
    }

    /// Deregisters the user's region, which is not in use. The device must refuse that.
    pub(crate) fn deregister(&self) -> Result {
        // SAFETY: The region is valid. It stays so if this fails, as the test expects.
        to_result(unsafe { bindings::ib_dereg_mr_user(self.mr, null_mut()) })
    }

    /// Sets the first address for the next registration of the user's region.
    pub(crate) fn set_iova(&mut self, iova: u64) {
        // SAFETY: The region is valid.
        unsafe { (*self.mr).iova = iova };
    }

    /// Describes pieces of the user's memory (offset and length) for its region. Returns how many
    /// pieces fit.
    pub(crate) fn describe(&mut self, pieces: &[(usize, usize)]) -> Result<i32> {
        self.describe_from(pieces, 0)
    }

    /// Like [`Self::describe`], from this offset into the first piece on.
    pub(crate) fn describe_from(
        &mut self,
        pieces: &[(usize, usize)],
        mut offset: u32,
    ) -> Result<i32> {
        let mut sg: [MaybeUninit<bindings::scatterlist>; 12] =
            [const { MaybeUninit::zeroed() }; 12];
        if pieces.is_empty() || pieces.len() > sg.len() {
            return Err(EINVAL);
        }
        let list = sg.as_mut_ptr().cast::<bindings::scatterlist>();
        // CAST: It is at most 12.
        let count = pieces.len() as u32;
        // SAFETY: There are `count` entries.
        unsafe { bindings::sg_init_table(list, count) };
        for (n, (at, len)) in pieces.iter().enumerate() {
            // SAFETY: The index is below `count`.
            let entry = unsafe { list.add(n) };
            // SAFETY: `entry` is one of the initialised entries.
            unsafe { bindings::srp_helper_sg_set_dma(entry, self.addr(*at), *len as u32) };
        }
        // SAFETY: The region is valid and not in use.
        Ok(unsafe {
            bindings::ib_map_mr_sg(self.mr, list, count as i32, &mut offset, PAGE_SIZE as u32)
        })
    }

    pub(crate) fn poll(&self) -> Option<Completion> {
        let mut wc = bindings::ib_wc::default();
        // SAFETY: The device is valid.
        let poll = unsafe { (*self.device).ops.poll_cq }?;
        // SAFETY: `wc` has room for one completion.
        let count = unsafe { poll(self.cq, 1, &mut wc) };
        // SAFETY: The union holds a number.
        let id = unsafe { *(&raw const wc.__bindgen_anon_1).cast::<u64>() };
        // SAFETY: The union holds a number.
        let ex = unsafe { *(&raw const wc.ex).cast::<u32>() };
        (count == 1).then_some(Completion {
            id,
            status: Status::numbered(wc.status),
            opcode: wc.opcode,
            bytes: wc.byte_len,
            flags: wc.wc_flags as u32,
            ex,
            src_qp: wc.src_qp,
        })
    }

    /// Waits for the next completion, for at most two seconds.
    pub(crate) fn wait(&self) -> Result<Completion> {
        within(|| self.poll())
    }

    /// The ID of a request whose completion `ib_core` may process. The handler counts them.
    pub(crate) fn counted_id(&self) -> u64 {
        (&raw const self.counts.cqe).expose_provenance() as u64
    }

    /// The number of completions that `ib_core` has processed, of requests with
    /// [`counted_id`](Self::counted_id).
    pub(crate) fn processed(&self) -> u32 {
        self.counts.processed.load(Relaxed)
    }

    /// Drains the receive or the send queue by the device's own function. All pending requests must
    /// have [`counted_id`](Self::counted_id).
    pub(crate) fn drain(&self, receives: bool) -> Result {
        // SAFETY: The device is valid.
        let ops = unsafe { &(*self.device).ops };
        let drain = if receives { ops.drain_rq } else { ops.drain_sq };
        // SAFETY: The queue pair belongs to this device. The number of each of its requests is the
        // address of a handler.
        unsafe { drain.ok_or(EINVAL)?(self.qp) };
        Ok(())
    }

    /// Moves the queue pair to the error state, and polls all its completions.
    pub(crate) fn drained(&self) -> Result {
        self.fail()?;
        while self.poll().is_some() {}
        Ok(())
    }
}

/// Waits until `what` returns a value, for at least two seconds. Counts its waits: a machine that
/// stops for seconds makes one of them longer, and leaves the others.
pub(crate) fn within<T>(mut what: impl FnMut() -> Option<T>) -> Result<T> {
    for _ in 0..10_000 {
        if let Some(found) = what() {
            return Ok(found);
        }
        fsleep(Delta::from_micros(200));
    }
    Err(ETIMEDOUT)
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: The queue pair is valid; nothing posts after this.
        unsafe { bindings::ib_destroy_qp_user(self.qp, null_mut()) };
        // SAFETY: The region is valid; the queue pair is gone.
        unsafe { bindings::ib_dereg_mr_user(self.mr, null_mut()) };
        // SAFETY: The queue is valid; its queue pair is gone.
        unsafe { bindings::ib_destroy_cq_user(self.cq, null_mut()) };
        // SAFETY: The domain is valid; its objects are gone.
        unsafe { bindings::ib_dealloc_pd_user(self.pd, null_mut()) };
        // SAFETY: `dma_alloc_attrs()` allocated the memory, and the device does not use it now.
        unsafe {
            bindings::dma_free_attrs(
                (*self.device).dma_device,
                MEMORY,
                self.at.as_ptr().cast(),
                self.addr,
                0,
            )
        };
    }
}
