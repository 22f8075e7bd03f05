// SPDX-License-Identifier: GPL-2.0

//! RCU, modelled by its guarantee: a read-side section either sees everything that precedes the
//! grace period, or the whole section precedes everything that follows the grace period. Read-side
//! sections do not order each other.

use crate::site::{self, Kind};
use loom::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    panic::Location,
    rc::Rc,
};

/// State of one execution. `last` and `running` are accessed directly after an operation on one of
/// the atomics, at which loom may switch threads.
pub(crate) struct State {
    /// Number of grace periods that have begun. A section starts by reading it.
    begun: AtomicUsize,
    /// Number of sections that have ended. A grace period ends by reading it.
    ended: AtomicUsize,
    last: Cell<usize>,
    running: RefCell<BTreeSet<usize>>,
    polled: RefCell<Vec<BTreeSet<usize>>>,
}

thread_local! {
    // Loom runs all threads of an execution on one OS thread.
    static STATE: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
}

pub(crate) fn reset() {
    let state = State {
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        last: Cell::new(0),
        running: RefCell::default(),
        polled: RefCell::default(),
    };
    STATE.set(Some(Rc::new(state)));
}

pub(crate) fn forget() {
    STATE.set(None);
}

fn state() -> Rc<State> {
    STATE.with_borrow(|s| s.clone().expect("in a model"))
}

/// `kernel::sync::rcu::Guard`.
pub struct Guard(Option<usize>, crate::types::NotThreadSafe);

/// Begins an RCU read-side section.
#[track_caller]
pub fn read_lock() -> Guard {
    if site::order(Location::caller(), "read_lock", Kind::Barrier) == Kind::Nothing {
        return Guard(None, crate::types::NotThreadSafe);
    }
    let state = state();
    state.begun.fetch_add(0, Acquire);
    let number = state.last.get();
    state.last.set(number + 1);
    state.running.borrow_mut().insert(number);
    Guard(Some(number), crate::types::NotThreadSafe)
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            let state = state();
            state.ended.fetch_add(1, Release);
            state.running.borrow_mut().remove(&number);
        }
    }
}

/// Begins a grace period. Returns its number.
pub fn begin() -> usize {
    let state = state();
    state.begun.fetch_add(1, Release);
    let running = state.running.borrow().clone();
    let mut polled = state.polled.borrow_mut();
    polled.push(running);
    polled.len() - 1
}

/// Waits until this grace period has ended.
pub fn wait(number: usize) {
    let state = state();
    let before = state.polled.borrow()[number].clone();
    loop {
        state.ended.fetch_add(0, Acquire);
        if state.running.borrow().is_disjoint(&before) {
            return;
        }
        loom::thread::yield_now();
    }
}

/// Waits until every section that is running has ended.
#[track_caller]
pub fn synchronize_rcu() {
    if site::order(Location::caller(), "synchronize_rcu", Kind::Barrier) == Kind::Barrier {
        wait(begin());
    }
}
