// SPDX-License-Identifier: GPL-2.0

//! Contexts that race with each other, for KUnit tests.

use crate::{
    sync::Completion,
    workqueue::{
        Flag,
        WorkQueue, //
    }, //
};
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// The function of a context, called with the object that all contexts share.
pub(crate) type Context<T> = fn(&T);

#[pin_data]
struct Racer<T: Send + Sync + 'static> {
    shared: Arc<T>,
    context: Context<T>,
    /// Number of contexts that have not reached the start.
    missing: Arc<Atomic<i32>>,
    #[pin]
    done: Completion,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl{T: Send + Sync + 'static} HasWork<Self> for Racer<T> { self.work }
}

impl<T: Send + Sync + 'static> WorkItem for Racer<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.missing.fetch_sub(1, Full);
        // Bounded, because a kernel may be unable to run all contexts at once.
        for _ in 0..1_000_000 {
            if this.missing.load(Acquire) <= 0 {
                break;
            }
            cpu_relax();
        }
        (this.context)(&this.shared);
        this.done.complete_all();
    }
}

/// The running contexts of a race.
pub(crate) struct Race<T: Send + Sync + 'static> {
    racers: KVec<Arc<Racer<T>>>,
    // Dropping the queue waits for the contexts.
    _queue: WorkQueue,
}

impl<T: Send + Sync + 'static> Race<T> {
    /// Waits until all contexts have ended, at most two minutes for each.
    pub(crate) fn wait(&self) -> Result {
        for racer in &self.racers {
            racer.done.wait_timeout(120_000)?;
        }
        Ok(())
    }
}

/// Runs all contexts concurrently, each in a worker thread, and waits until they have ended. Must
/// not be called in a context of another race.
pub(crate) fn race<T: Send + Sync + 'static>(shared: &Arc<T>, contexts: &[Context<T>]) -> Result {
    begin(shared, contexts)?.wait()
}

/// Starts all contexts concurrently, each in a worker thread.
pub(crate) fn begin<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    contexts: &[Context<T>],
) -> Result<Race<T>> {
    let queue = WorkQueue::new(c"srp_race", Flag::Unbound)?;
    let missing = Arc::new(Atomic::new(contexts.len() as i32), GFP_KERNEL)?;
    let mut racers = KVec::with_capacity(contexts.len(), GFP_KERNEL)?;
    for context in contexts {
        let (shared, missing) = (shared.clone(), missing.clone());
        racers.push(
            Arc::pin_init(
                pin_init!(Racer {
                    shared,
                    context: *context,
                    missing,
                    done <- Completion::new(),
                    work <- new_work!("Racer::work"),
                }),
                GFP_KERNEL,
            )?,
            GFP_KERNEL,
        )?;
    }
    for racer in &racers {
        queue.enqueue::<_, 0>(racer.clone()).map_err(|_| EBUSY)?;
    }
    Ok(Race {
        racers,
        _queue: queue,
    })
}
