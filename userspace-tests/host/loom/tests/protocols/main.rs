// SPDX-License-Identifier: GPL-2.0

//! The atomic protocols of the driver, in every interleaving within a bound.
//!
//! What is tested is the driver's own files; see `docs/testing.md` for what stands in for the rest.
//! A test names its bound, which is that of the fast set; `LOOM_MAX_PREEMPTIONS` is another one for
//! all.

mod cell;
mod channel;
mod poll;
mod regions;
mod slot;
mod wait_queue;

use loom::thread;

/// A thread that has what the test shares.
fn beside<S: Clone + 'static, T: 'static>(
    shared: &S,
    run: impl FnOnce(S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = shared.clone();
    thread::spawn(move || run(shared))
}
