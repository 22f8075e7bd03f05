// SPDX-License-Identifier: GPL-2.0

//! `WaitQueue`: no wake-up is lost, however late the waiter comes. A lost wake-up causes a
//! deadlock, which loom reports.

use kernel::{
    init::PinInit,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
};
use loom::thread;
use srp_loom::{model, sync::WaitQueue};
use std::sync::Arc;

struct Shared {
    queue: WaitQueue,
    set: Atomic<bool>,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        queue: WaitQueue::new().make().unwrap(),
        set: Atomic::new(false),
    })
}

/// Two waiters and a waker. The lock of the queue orders accesses to the condition.
#[test]
fn wait_queue_wakes() {
    model("wait_queue_wakes", 2, || {
        let shared = shared();
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || shared.queue.wait(|| shared.set.load(Relaxed)))
        };
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.set.store(true, Relaxed);
                shared.queue.wake_all();
            })
        };
        let result = shared.queue.wait_timeout(1000, || shared.set.load(Relaxed));
        assert!(result.is_ok());
        waiter.join().unwrap();
        waker.join().unwrap();
    });
}

/// Without the wake-up there is a deadlock: the model can lose one.
#[test]
#[should_panic(expected = "deadlock")]
fn wait_queue_needs_a_wake_up() {
    model("wait_queue_needs_a_wake_up", 3, || {
        let shared = shared();
        let setter = {
            let shared = shared.clone();
            thread::spawn(move || shared.set.store(true, Release))
        };
        shared.queue.wait(|| shared.set.load(Acquire));
        setter.join().unwrap();
    });
}
