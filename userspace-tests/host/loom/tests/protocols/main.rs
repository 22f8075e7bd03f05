// SPDX-License-Identifier: GPL-2.0

//! The atomic protocols of the driver, in every interleaving within a bound.
//!
//! The tests run the driver's own files; see `docs/testing.md` for the stand-ins for the rest. Each
//! test names its bound in the fast set; `LOOM_MAX_PREEMPTIONS` overrides all of them.

mod cell;
mod channel;
mod poll;
mod regions;
mod slot;
mod wait_queue;

use loom::thread;

/// Spawns a thread with a clone of `shared`.
fn beside<S: Clone + 'static, T: 'static>(
    shared: &S,
    run: impl FnOnce(S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = shared.clone();
    thread::spawn(move || run(shared))
}
