// SPDX-License-Identifier: GPL-2.0

//! Runs all executions of a test.

use crate::rcu;
use std::sync::{
    atomic::{AtomicUsize, Ordering},
    Arc,
};

/// Runs `test` in every interleaving with at most `preemptions` preemptions, or
/// `LOOM_MAX_PREEMPTIONS` if that is set, and prints the number of interleavings.
pub fn model(name: &str, preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let bound = *builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = builder.max_branches.max(20_000);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let began = std::time::Instant::now();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        rcu::reset();
        test();
        rcu::forget();
    });
    println!(
        "loom {name}: {} interleavings, at most {bound} preemptions, {:.1} s",
        count.load(Ordering::Relaxed),
        began.elapsed().as_secs_f32()
    );
}
