// SPDX-License-Identifier: GPL-2.0

//! Models of the C functions that the driver's files call.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::missing_safety_doc,
    unsafe_op_in_unsafe_fn
)]

use core::{
    cell::{Cell, RefCell, UnsafeCell},
    ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void},
};
use kernel::atomic::{Atomic, Relaxed};
use loom::sync::{Condvar, Mutex};
use std::collections::HashMap;

// Waiting.

pub const TASK_NORMAL: c_uint = 3;
pub const TASK_UNINTERRUPTIBLE: u32 = 2;

#[derive(Default)]
struct Sleepers {
    /// For each waiter, whether it is still on the queue.
    queued: Vec<bool>,
}

/// A waiter on the queue sleeps until a waker removes it.
pub struct wait_queue_head {
    sleepers: Mutex<Sleepers>,
    woken: Condvar,
}

pub struct wait_queue_entry {
    head: *const wait_queue_head,
    number: usize,
}

pub unsafe fn srp_helper_init_waitqueue_head(head: *mut wait_queue_head) {
    head.write(wait_queue_head {
        sleepers: Mutex::new(Sleepers::default()),
        woken: Condvar::new(),
    });
}

pub unsafe fn __wake_up(head: *mut wait_queue_head, _: c_uint, _: c_int, _: *mut c_void) {
    let head = &*head;
    head.sleepers.lock().unwrap().queued.fill(false);
    head.woken.notify_all();
}

pub unsafe fn init_wait(entry: *mut wait_queue_entry) {
    entry.write(wait_queue_entry {
        head: core::ptr::null(),
        number: usize::MAX,
    });
}

pub unsafe fn prepare_to_wait(head: *mut wait_queue_head, entry: *mut wait_queue_entry, _: c_int) {
    let (head, entry) = (&*head, &mut *entry);
    let mut sleepers = head.sleepers.lock().unwrap();
    if entry.number == usize::MAX {
        entry.head = head;
        entry.number = sleepers.queued.len();
        sleepers.queued.push(true);
    }
    sleepers.queued[entry.number] = true;
    let this = loom::thread::current().id();
    SLEEPS.with_borrow_mut(|all| all.insert(this, (head, entry.number)));
}

type Sleeps = HashMap<loom::thread::ThreadId, (*const wait_queue_head, usize)>;

thread_local! {
    /// The queue on which each thread sleeps next, and its number there.
    static SLEEPS: RefCell<Sleeps> = RefCell::default();
    /// Whether waits ignore their timeouts.
    static PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether waits for a completion in this execution ignore their timeouts.
pub fn be_patient(patient: bool) {
    PATIENT.set(patient);
}

/// Waits for a waker. The timeout never expires.
pub unsafe fn schedule_timeout(left: c_long) -> c_long {
    let this = loom::thread::current().id();
    let (head, number) = SLEEPS.with_borrow(|all| all[&this]);
    let head = &*head;
    let mut sleepers = head.sleepers.lock().unwrap();
    while sleepers.queued[number] {
        sleepers = head.woken.wait(sleepers).unwrap();
    }
    left
}

pub unsafe fn finish_wait(head: *mut wait_queue_head, entry: *mut wait_queue_entry) {
    (*head).sleepers.lock().unwrap().queued[(*entry).number] = false;
}

/// `done` is modified under the lock, except in `reinit_completion()`.
pub struct completion {
    lock: Mutex<()>,
    woken: Condvar,
    done: Atomic<u32>,
}

pub unsafe fn init_completion(x: *mut completion) {
    x.write(completion {
        lock: Mutex::new(()),
        woken: Condvar::new(),
        done: Atomic::new(0),
    });
}

pub unsafe fn srp_helper_reinit_completion(x: *mut completion) {
    (*x).done.store(0, Relaxed);
}

pub unsafe fn complete(x: *mut completion) {
    let x = &*x;
    let _lock = x.lock.lock().unwrap();
    let done = x.done.load(Relaxed);
    x.done.store(done.saturating_add(1), Relaxed);
    x.woken.notify_one();
}

pub unsafe fn complete_all(x: *mut completion) {
    let x = &*x;
    let _lock = x.lock.lock().unwrap();
    x.done.store(u32::MAX, Relaxed);
    x.woken.notify_all();
}

impl completion {
    fn take(&self) -> bool {
        let done = self.done.load(Relaxed);
        if done != 0 && done != u32::MAX {
            self.done.store(done - 1, Relaxed);
        }
        done != 0
    }
}

pub unsafe fn completion_done(x: *mut completion) -> bool {
    (*x).done.load(Relaxed) != 0
}

pub unsafe fn wait_for_completion(x: *mut completion) {
    let x = &*x;
    let mut lock = x.lock.lock().unwrap();
    while !x.take() {
        lock = x.woken.wait(lock).unwrap();
    }
}

/// Unless the test is patient, the timeout expires as soon as other threads have run.
pub unsafe fn wait_for_completion_timeout(x: *mut completion, _: usize) -> usize {
    if PATIENT.get() {
        wait_for_completion(x);
        return 1;
    }
    let done = {
        let _lock = (*x).lock.lock().unwrap();
        (*x).take()
    };
    if !done {
        loom::thread::yield_now();
    }
    done.into()
}

pub unsafe fn wait_for_completion_interruptible_timeout(x: *mut completion, left: usize) -> c_long {
    wait_for_completion_timeout(x, left) as c_long
}

// RCU.

pub unsafe fn start_poll_synchronize_rcu() -> c_ulong {
    kernel::rcu::begin() as c_ulong
}

pub unsafe fn cond_synchronize_rcu(number: c_ulong) {
    kernel::rcu::wait(number as usize);
}

// Flags that a thread sets for itself.

pub unsafe fn srp_helper_memalloc_noio_save() -> c_uint {
    0
}

pub unsafe fn srp_helper_memalloc_noio_restore(_: c_uint) {}

pub unsafe fn srp_helper_local_bh_disable() {}

pub unsafe fn srp_helper_local_bh_enable() {}

// The verbs.

pub struct ib_device;

pub struct ib_pd {
    pub local_dma_lkey: u32,
}

pub struct ib_cq {
    /// Two concurrent polls fail the test, as loom checks the accesses.
    completions: UnsafeCell<c_int>,
}

impl ib_cq {
    pub fn new() -> Self {
        Self {
            completions: UnsafeCell::new(0),
        }
    }
}

/// Polls, and returns the number of this poll.
pub unsafe fn ib_process_cq_direct(cq: *mut ib_cq, _: c_int) -> c_int {
    let polls = (*cq).completions.get();
    *polls += 1;
    *polls
}

pub unsafe fn __ib_alloc_pd(_: *mut ib_device, _: u32, _: *const c_char) -> *mut ib_pd {
    Box::into_raw(Box::new(ib_pd { local_dma_lkey: 0 }))
}

pub unsafe fn ib_dealloc_pd_user(pd: *mut ib_pd, _: *mut c_void) {
    drop(Box::from_raw(pd));
}

pub type dma_data_direction = u32;
pub type ib_mr_type = u32;
pub const ib_mr_type_IB_MR_TYPE_MEM_REG: ib_mr_type = 0;
pub const ib_mr_type_IB_MR_TYPE_SG_GAPS: ib_mr_type = 1;
pub const ib_access_flags_IB_ACCESS_LOCAL_WRITE: u32 = 1;
pub const ib_access_flags_IB_ACCESS_REMOTE_WRITE: u32 = 2;
pub const ib_access_flags_IB_ACCESS_REMOTE_READ: u32 = 4;

/// An entry of a list, and its memory.
pub struct scatterlist {
    pub length: u32,
    pub memory: UnsafeCell<()>,
}

impl scatterlist {
    pub fn new(length: u32) -> Self {
        Self {
            length,
            memory: UnsafeCell::new(()),
        }
    }
}

impl Default for scatterlist {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Clone for scatterlist {
    fn clone(&self) -> Self {
        Self::new(self.length)
    }
}

// SAFETY: Loom checks the accesses to `memory`.
unsafe impl Sync for scatterlist {}

/// A memory region.
pub struct ib_mr {
    pub lkey: u32,
    pub rkey: u32,
    pub iova: u64,
    pub length: u64,
    /// Accesses to the object itself.
    object: UnsafeCell<()>,
    list: *const scatterlist,
}

pub unsafe fn ib_alloc_mr(_: *mut ib_pd, _: ib_mr_type, _: u32) -> *mut ib_mr {
    let mr = ib_mr {
        lkey: 0,
        rkey: 0x100,
        iova: 0,
        length: 0,
        object: UnsafeCell::new(()),
        list: core::ptr::null(),
    };
    mr.object.get();
    Box::into_raw(Box::new(mr))
}

thread_local! {
    static GONE: RefCell<Vec<*mut ib_mr>> = RefCell::default();
}

/// The object stays allocated until the end of the execution, so that loom sees a later use.
pub unsafe fn ib_dereg_mr_user(mr: *mut ib_mr, _: *mut c_void) -> c_int {
    (*mr).object.get();
    (*mr).list = core::ptr::null();
    GONE.with_borrow_mut(|gone| gone.push(mr));
    0
}

/// Ends the execution.
pub fn forget() {
    for mr in GONE.take() {
        // SAFETY: The pointer came from a box, and no other thread is left.
        drop(unsafe { Box::from_raw(mr) });
    }
}

pub unsafe fn ib_map_mr_sg(
    mr: *mut ib_mr,
    list: *mut scatterlist,
    n: c_int,
    _: *mut u32,
    _: u32,
) -> c_int {
    (*mr).object.get();
    (*mr).list = list;
    (*mr).length = (*list).length.into();
    n
}

/// The peer writes to the memory of a region.
pub unsafe fn remote_write(mr: *mut ib_mr) {
    (*mr).object.get();
    assert!(!(*mr).list.is_null(), "a region that is gone is written to");
    (*(*mr).list).memory.get();
}

/// The peer reads the memory of a region. It may do so on several queue pairs at once.
pub unsafe fn remote_read(mr: *mut ib_mr) {
    assert!(!(*mr).list.is_null(), "a region that is gone is read from");
    (*(*mr).list).memory.look();
}

/// Reads the fields of a region.
pub unsafe fn look_at(mr: *mut ib_mr) {
    (*mr).object.look();
}

/// Asserts that the device has forgotten a region.
pub unsafe fn assert_forgotten(mr: *mut ib_mr) {
    (*mr).object.get();
    assert!((*mr).list.is_null(), "the device has the region still");
}

pub unsafe fn srp_helper_ib_dma_map_sg(
    _: *mut ib_device,
    list: *mut scatterlist,
    n: c_int,
    _: u32,
) -> c_int {
    (*list).memory.get();
    n
}

pub unsafe fn srp_helper_ib_dma_unmap_sg(
    _: *mut ib_device,
    list: *mut scatterlist,
    _: c_int,
    _: u32,
) {
    (*list).memory.get();
}

pub unsafe fn sg_next(list: *mut scatterlist) -> *mut scatterlist {
    list.add(1)
}

pub unsafe fn sg_init_table(_: *mut scatterlist, _: u32) {}

pub unsafe fn srp_helper_sg_dma_address(_: *mut scatterlist) -> u64 {
    0
}

pub unsafe fn srp_helper_sg_dma_len(_: *mut scatterlist) -> u32 {
    0
}

pub unsafe fn srp_helper_sg_set_dma(_: *mut scatterlist, _: u64, _: u32) {}

// Numbers.

pub type scsi_host_status = u32;
pub const scsi_host_status_DID_OK: u32 = 0;
pub const scsi_host_status_DID_NO_CONNECT: u32 = 1;
pub const scsi_host_status_DID_ABORT: u32 = 5;
pub const scsi_host_status_DID_ERROR: u32 = 7;
pub const scsi_host_status_DID_RESET: u32 = 8;
pub const scsi_host_status_DID_SOFT_ERROR: u32 = 11;
pub const scsi_host_status_DID_TRANSPORT_DISRUPTED: u32 = 14;
pub const scsi_host_status_DID_TRANSPORT_FAILFAST: u32 = 15;
pub const sam_status_SAM_STAT_TASK_SET_FULL: u32 = 0x28;
pub const scsi_disposition_SUCCESS: u32 = 0x2002;
pub const scsi_disposition_FAILED: u32 = 0x2003;
pub const scsi_disposition_FAST_IO_FAIL: u32 = 0x2008;
