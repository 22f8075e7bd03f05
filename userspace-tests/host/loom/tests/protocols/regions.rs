// SPDX-License-Identifier: GPL-2.0

//! Memory that a peer may access: it is released when no peer can access it, and regions are
//! recreated when no queue pair uses them.
//!
//! A write by the device to released memory is an unordered access, which loom reports.

use crate::{beside, channel::pd};
use kernel::{error::code::EBUSY, sync::Arc};
use loom::thread;
use srp_loom::{
    bindings,
    dma::DataDirection,
    model,
    rdma::{
        mr::{Handle, Regions},
        pd::Pd,
        test::{self, Posted},
    },
    scsi::{Cmnd, Command, ScsiResult},
};
use srp_loom_core::cell::UnsafeCell;

/// A region as the device sees it.
#[derive(Clone, Copy)]
struct Mr(*mut bindings::ib_mr);

// SAFETY: Loom runs all threads of an execution on one OS thread.
unsafe impl Send for Mr {}

impl Mr {
    /// The peer writes to the region's memory.
    fn write(self) {
        // SAFETY: The object stays until the end of the execution.
        unsafe { bindings::remote_write(self.0) };
    }

    /// The peer reads the region's memory. It may do so on two queue pairs at once.
    fn read(self) {
        // SAFETY: The object stays until the end of the execution.
        unsafe { bindings::remote_read(self.0) };
    }

    /// The handle reads the fields that go into a message.
    fn look_at(self) {
        // SAFETY: The object stays until the end of the execution.
        unsafe { bindings::look_at(self.0) };
    }

    /// Asserts that the device has forgotten the region's key.
    fn is_forgotten(self) {
        // SAFETY: The object stays until the end of the execution.
        unsafe { bindings::assert_forgotten(self.0) };
    }
}

fn bound(pd: &Arc<Pd>) -> (Arc<Regions>, Handle<Command>) {
    let (regions, handles) = Regions::new(pd, 1, 1).unwrap();
    test::bind(&regions).unwrap();
    pd_begin(pd).unwrap();
    (regions, handles.into_iter().next().expect("one"))
}

fn pd_begin(pd: &Pd) -> kernel::error::Result {
    test::begin(pd)
}

/// The regions of a queue pair, and a handle with a command whose memory the peer can access
/// through them.
fn lend(pd: &Arc<Pd>) -> (Arc<Regions>, Handle<Command>, Mr) {
    let (regions, mut handle) = bound(pd);
    map(&mut handle);
    let mr = Mr(test::lend(&regions, &mut handle));
    (regions, handle, mr)
}

fn map(handle: &mut Handle<Command>) {
    assert!(handle.attach(Command(Cmnd::read(0))).is_ok());
    handle.map(DataDirection::FromDevice, 0).unwrap();
}

/// Takes the memory back, unless a peer can access it.
fn take_back(handle: &mut Handle<Command>) -> bool {
    match handle.detach() {
        Ok(command) => {
            command.expect("attached").done(ScsiResult::DID_OK);
            true
        }
        Err(_) => false,
    }
}

/// Drains a queue pair as the driver does.
fn drain(pd: &Pd, regions: &Regions) {
    test::set_dead(regions);
    test::drained(pd);
}

/// Ends a test: no memory is accessible when all queue pairs are drained.
fn end(mut handle: Handle<Command>) {
    if handle.get().is_some() {
        assert!(take_back(&mut handle));
    }
}

/// The requests posted on a queue pair.
struct Queue(UnsafeCell<Vec<Posted>>);

// SAFETY: Loom checks the accesses.
unsafe impl Sync for Queue {}

impl Queue {
    fn post(&self, what: Posted) {
        // SAFETY: Loom checks the accesses.
        unsafe { &mut *self.0.get() }.push(what);
    }
}

/// The response arrives while the registration is being posted: the invalidation is posted once,
/// after the registration.
#[test]
fn regions_answered() {
    model("regions_answered", 3, || {
        let pd = pd();
        let (regions, mut handle) = bound(&pd);
        map(&mut handle);
        let queue = std::sync::Arc::new(Queue(UnsafeCell::new(Vec::new())));
        let answer = |mut handle| {
            let (regions, queue) = (regions.clone(), queue.clone());
            thread::spawn(move || {
                test::invalidate(&regions, &mut handle, |what| queue.post(what));
                handle
            })
        };
        let answered = test::register(&regions, handle, answer, |what| queue.post(what));
        let mut handle = answered.join().unwrap();
        // SAFETY: The other thread has ended.
        let posted = unsafe { &*queue.0.get() };
        assert_eq!(*posted, [Posted::Registration, Posted::Invalidation]);
        assert!(!take_back(&mut handle));
        test::invalidated(&regions, 0);
        assert!(take_back(&mut handle));
        drain(&pd, &regions);
    });
}

/// The memory is released after its invalidation.
#[test]
fn regions_invalidated() {
    model("regions_invalidated", 3, || {
        let pd = pd();
        let (regions, mut handle, mr) = lend(&pd);
        let device = {
            let (pd, regions) = (pd.clone(), regions.clone());
            thread::spawn(move || {
                mr.write();
                test::invalidated(&regions, 0);
                drain(&pd, &regions);
            })
        };
        if take_back(&mut handle) {
            // The region can be used again. The peer learns that from a new message.
            map(&mut handle);
        }
        device.join().unwrap();
        end(handle);
    });
}

/// Without an invalidation, memory is released when all queue pairs of the domain are drained,
/// because a key is valid on each of them.
#[test]
fn regions_drained() {
    model("regions_drained", 2, || {
        let pd = pd();
        let (regions, mut handle, mr) = lend(&pd);
        let (others, _) = bound(&pd);
        let drains = [regions, others].map(|regions| {
            let pd = pd.clone();
            thread::spawn(move || {
                mr.read();
                drain(&pd, &regions);
            })
        });
        take_back(&mut handle);
        drains.into_iter().for_each(|t| t.join().unwrap());
        end(handle);
    });
}

/// A queue pair is created while another one ends whose key a peer has: the creation fails, or the
/// memory is not released.
#[test]
fn regions_stale() {
    model("regions_stale", 3, || {
        let pd = pd();
        let (regions, mut handle, mr) = lend(&pd);
        let goes = beside(&pd, move |pd| drain(&pd, &regions));
        let comes = beside(&pd, move |pd| {
            let comes = pd_begin(&pd).is_ok();
            if comes {
                mr.write();
                test::drained(&pd);
            }
            comes
        });
        take_back(&mut handle);
        goes.join().unwrap();
        comes.join().unwrap();
        end(handle);
    });
}

/// A queue pair is created while the regions of an ended one are recreated: when the creation
/// succeeds, the device has forgotten the old keys.
#[test]
fn regions_renewed() {
    model("regions_renewed", 3, || {
        let pd = pd();
        let (regions, mut handle, mr) = lend(&pd);
        drain(&pd, &regions);
        test::unbind(&regions);
        assert!(take_back(&mut handle));
        let renews = beside(&regions, move |regions| {
            test::bind(&regions).unwrap();
            test::unbind(&regions);
        });
        if pd_begin(&pd).is_ok() {
            mr.is_forgotten();
            test::drained(&pd);
        }
        renews.join().unwrap();
        assert!(pd_begin(&pd).is_ok());
        test::drained(&pd);
        end(handle);
    });
}

/// Only one queue pair at a time gets the regions.
#[test]
fn regions_bound_once() {
    model("regions_bound_once", 3, || {
        let pd = pd();
        let (regions, mut handle, _) = lend(&pd);
        drain(&pd, &regions);
        test::unbind(&regions);
        assert!(take_back(&mut handle));
        // Some regions must be recreated each time.
        let bind = |regions: &Regions, handle: Option<&mut Handle<Command>>| {
            if test::bind(regions).is_ok() {
                if let Some(handle) = handle {
                    map(handle);
                    test::expose(handle);
                    assert!(take_back_dead(regions, handle));
                }
                test::unbind(regions);
            }
        };
        let other = beside(&regions, move |regions| bind(&regions, None));
        bind(&regions, Some(&mut handle));
        other.join().unwrap();
        end(handle);
    });
}

fn take_back_dead(regions: &Regions, handle: &mut Handle<Command>) -> bool {
    test::set_dead(regions);
    take_back(handle)
}

/// Two queue pairs want the regions, but the second of two regions is still in use, so neither gets
/// them.
#[test]
fn regions_not_bound() {
    model("regions_not_bound", 3, || {
        let pd = pd();
        let (regions, handles) = Regions::new(&pd, 2, 1).unwrap();
        test::bind(&regions).unwrap();
        pd_begin(&pd).unwrap();
        let mut handles: Vec<Handle<Command>> = handles.into_iter().collect();
        for handle in &mut handles {
            map(handle);
            test::expose(handle);
        }
        drain(&pd, &regions);
        test::unbind(&regions);
        assert!(take_back(&mut handles[0]));
        let bind = |regions: &Regions| assert_eq!(test::bind(regions), Err(EBUSY));
        let other = beside(&regions, move |regions| bind(&regions));
        bind(&regions);
        other.join().unwrap();
        handles.into_iter().for_each(end);
    });
}

/// A region is recreated when no command uses it, and the next command uses the new region.
#[test]
fn regions_mapped() {
    model("regions_mapped", 3, || {
        let pd = pd();
        let (regions, mut handle, mr) = lend(&pd);
        drain(&pd, &regions);
        test::unbind(&regions);
        let renews = beside(&regions, move |regions| {
            if test::bind(&regions).is_ok() {
                test::unbind(&regions);
            }
        });
        mr.look_at();
        assert!(take_back(&mut handle));
        assert!(handle.attach(Command(Cmnd::read(0))).is_ok());
        // Refused while the region is the last connection's.
        let _ = handle.map(DataDirection::FromDevice, 0);
        renews.join().unwrap();
        end(handle);
    });
}

/// A thread that finds a region accessible finds it mapped, and does not recreate it.
#[test]
fn regions_exposed() {
    model("regions_exposed", 3, || {
        let pd = pd();
        let (regions, mut handle) = bound(&pd);
        drain(&pd, &regions);
        test::unbind(&regions);
        let renews = beside(&regions, move |regions| {
            if test::bind(&regions).is_ok() {
                test::unbind(&regions);
            }
        });
        map(&mut handle);
        test::expose(&mut handle);
        renews.join().unwrap();
        end(handle);
    });
}
